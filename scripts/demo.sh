#!/usr/bin/env bash
# From nothing to a trained model: install, build, profile, plan, verify, simulate, train, compare.
set -Eeuo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
trap 'report_failure "$LINENO" "$BASH_COMMAND"' ERR

usage() {
  cat <<'HELP'
usage: scripts/demo.sh [--model NAME] [--workers N] [--batch-size N] [--epochs N]
                       [--torch NAME] [--output FOLDER] [--no-install]

Installs what is missing, builds Penstock, and takes a convolutional network through all of it on
this machine: measures its layers, finds the best split, proves the schedule sound, predicts its
speed, trains it on Fashion-MNIST through the pipeline, and shows prediction and measurement side by
side.

  --model NAME      a model of `penstock models` (default vgg_small)
  --workers N       threads to split it over (default: one per core, at most 4)
  --batch-size N    samples per optimiser step (default 64)
  --epochs N        passes over the data (default: as many as fit into three and a half minutes)
  --torch NAME      the libtorch to build with: debian (default), wheel or a folder, as for test.sh
  --output FOLDER   where results go (default ./demo-run)
  --no-install      do not look for missing packages
HELP
}

model=vgg_small
batch_size=64
cores="$(nproc)"
workers=$((cores < 4 ? cores : 4))
epochs=""
torch=debian
output="$CALLER_FOLDER/demo-run"
install=yes
positive() {
  [[ "$2" =~ ^[1-9][0-9]{0,5}$ ]] || die "$1: expected a whole number of at least 1, found '$2'"
}
while (($# > 0)); do
  case "$1" in
    --model) need_value "$1" $#; model=$2; shift ;;
    --workers) need_value "$1" $#; positive "$1" "$2"; workers=$2; shift ;;
    --batch-size) need_value "$1" $#; positive "$1" "$2"; batch_size=$2; shift ;;
    --epochs) need_value "$1" $#; positive "$1" "$2"; epochs=$2; shift ;;
    --torch) need_value "$1" $#; torch=$2; shift ;;
    --output) need_value "$1" $#; output=$2; shift ;;
    --no-install) install=no ;;
    -h | --help) usage; exit 0 ;;
    *) die "unknown option '$1' (try --help)" ;;
  esac
  shift
done
[[ "$output" == /* ]] || output="$CALLER_FOLDER/$output"

readonly seconds_to_train=210 all_samples=60000 wanted_accuracy=0.85

# number FILE KEY: the first number under that key in a JSON file.
number() {
  local value
  value="$(grep -o "\"$2\"[[:space:]]*:[[:space:]]*-\{0,1\}[0-9][-+.0-9eE]*" "$1" | head -n 1 |
    sed 's/.*:[[:space:]]*//')"
  [[ -n "$value" ]] || die "$1 has no number under \"$2\""
  printf '%s' "$value"
}

# text FILE KEY: the first string under that key in a JSON file.
text() { sed -n "s/.*\"$2\"[[:space:]]*:[[:space:]]*\"\([^\"]*\)\".*/\1/p" "$1" | head -n 1; }

cd "$REPO_ROOT"
say "What comes"
if [[ "$install" == yes ]]; then
  step "install the packages that are missing" "some minutes, the first time"
fi
step "build Penstock" "$(build_time "$(preset_for "$torch")" "$PROGRAMS_BUILD_MINUTES")"
step "measure, plan, prove and predict $model" "about half a minute"
if [[ -n "$epochs" ]]; then time_to_train="$epochs pass(es) over the data"; fi
step "train it on Fashion-MNIST, compare" "${time_to_train:-about 4 min}"

if [[ "$install" == yes ]]; then
  say "Install what is missing"
  if [[ "$torch" == wheel ]]; then scripts/install-deps.sh --wheel; else scripts/install-deps.sh; fi
fi

say "Build Penstock"
choose_torch "$torch"
configure_and_build "release$torch_preset" penstock
penstock="$REPO_ROOT/build/release$torch_preset/penstock"
mkdir -p "$output" || die "cannot make the folder $output"
cd "$output"
PATH="$(dirname "$penstock"):$PATH"
printf '\nResults go to %s\n' "$output" >&2

say "1. Profile: measure every layer of $model, forward and backward," \
  "with $workers copies at once as in the real run"
run penstock profile --model "$model" --batch-size "$batch_size" --concurrency "$workers" \
  -o profile.json

say "2. Plan: split the layers over $workers workers so that the slowest stage is as fast as can be"
run penstock plan --profile profile.json --workers "$workers" -o plan.json
if ((workers > 1)) && [[ "$(text plan.json strategy)" != 1f1b* ]]; then
  say "For this network on this machine plain data parallelism is predicted to be the fastest;" \
    "to show a pipeline, take the best one"
  run penstock plan --profile profile.json --workers "$workers" --strategy 1f1b -o plan.json
fi

say "3. Schedule: what each worker does, in which order; here the first eight micro-batches" \
  "(2F0 is stage 2, forward, micro-batch 0)"
run penstock schedule --plan plan.json --micro-batches 8 --compute-only --grid
run penstock schedule --plan plan.json --micro-batches 64 -o schedule.txt

say "4. Verify: prove that nothing is missing, out of order, deadlocked," \
  "or run on the wrong version of the weights"
run penstock verify schedule.txt

say "5. Simulate: predict the run from the profile; trace-predicted.json opens in ui.perfetto.dev"
run penstock simulate --plan plan.json --trace trace-predicted.json

# As many passes as fit; on a slow machine one pass over a part of the images.
samples=$all_samples
if [[ -z "$epochs" ]]; then
  predicted="$(number plan.json throughput_samples_per_s)"
  read -r epochs samples < <(awk -v rate="$predicted" -v seconds="$seconds_to_train" \
    -v all="$all_samples" 'BEGIN {
    fit = int(rate * seconds); n = int(fit / all)
    print (n < 1 ? 1 : n > 10 ? 10 : n), (n >= 1 ? all : fit < 1000 ? 1000 : fit)
  }')
fi

say "6. Train on Fashion-MNIST through the pipeline, $epochs pass(es) over $samples images"
started=$SECONDS
rm -rf checkpoints  # of an earlier demo: train does not overwrite another run's
run penstock train --model "$model" --data fashion-mnist --train-samples "$samples" \
  --plan plan.json --epochs "$epochs" --batch-size "$batch_size" \
  --optimizer sgd --lr 0.02 --momentum 0.9 --lr-schedule cosine --seed 1 \
  --checkpoint checkpoints --trace trace-measured.json --json >train.json
seconds=$((SECONDS - started))

say "7. Prediction and measurement"
accuracy="$(number train.json test_accuracy)"
measured="$(number train.json throughput_samples_per_s)"
predicted="$(number train.json predicted_throughput_samples_per_s)"
idle="$(number train.json idle_share)"
awk -v accuracy="$accuracy" -v measured="$measured" -v predicted="$predicted" -v idle="$idle" \
  -v seconds="$seconds" -v epochs="$epochs" 'BEGIN {
  printf "  test accuracy      %.2f %% after %d pass(es), %d s with evaluation\n",
    100 * accuracy, epochs, seconds
  printf "  speed, predicted   %.0f samples/s\n", predicted
  printf "  speed, measured    %.0f samples/s (%.2f of the prediction)\n",
    measured, measured / predicted
  printf "  workers idle       %.1f %% of the time\n", 100 * idle
}'
printf '\nIn %s: profile.json, plan.json, schedule.txt, train.json,' "$output"
printf ' checkpoints/ (weights.pt in there is for torch.load),\n'
printf 'trace-predicted.json and trace-measured.json (for ui.perfetto.dev; the second holds both)\n'
awk -v accuracy="$accuracy" -v wanted="$wanted_accuracy" 'BEGIN {
  if (accuracy >= wanted) exit 0
  printf "The accuracy is below the %.0f %% that this demo aims at.\n", 100 * wanted
  exit 1
}' >&2

#!/usr/bin/env bash
# Builds Penstock for CUDA and runs the GPU tests and measurements of a machine that has a GPU.
set -Eeuo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
trap 'report_failure "$LINENO" "$BASH_COMMAND"' ERR

usage() {
  cat <<'HELP'
usage: scripts/gpu-check.sh [--torch FOLDER] [--build-only] [--steps N] [-o FILE]

On a machine with a GPU: builds with a libtorch for CUDA, runs the tests labelled `gpu`, probes the
GPUs, trains small models on the CPU, on the GPU and with two workers on it, prints one table and
writes one JSON file.
Exit code: 0 all passed, 1 a test or a run failed, 2 it cannot be built, 77 there is no GPU.

  --torch FOLDER  a libtorch for CUDA, as of scripts/test.sh (default: that of python3)
  --build-only    build, and do not look for a GPU
  --steps N       optimiser steps of each run (default 200)
  -o FILE         where the JSON goes (default ./bench-results/gpu-check.json)
HELP
}

torch=""
build_only=no
steps=200
output="$CALLER_FOLDER/bench-results/gpu-check.json"
while (($# > 0)); do
  case "$1" in
    --torch) need_value "$1" $#; torch=$2; shift ;;
    --build-only) build_only=yes ;;
    --steps) need_value "$1" $#; steps=$2; shift ;;
    -o) need_value "$1" $#; output=$(cd "$CALLER_FOLDER" && realpath -m "$2"); shift ;;
    -h | --help) usage; exit 0 ;;
    *) die "unknown option '$1' (try --help)" ;;
  esac
  shift
done
[[ "$steps" =~ ^[1-9][0-9]{0,6}$ ]] || die "--steps: expected 1 to 9999999, found '$steps'"

gpus=""
if [[ "$build_only" == no ]]; then
  gpus="$(nvidia-smi -L 2>/dev/null || true)"
  if [[ "$gpus" != *"GPU 0"* ]]; then
    say "This machine has no GPU that nvidia-smi can see: nothing is checked (--build-only builds)"
    exit 77
  fi
fi
if [[ -z "$torch" ]]; then
  torch="$(python3 -c 'import torch; print(torch.__path__[0])' 2>/dev/null)" ||
    die "--torch FOLDER: python3 has no torch; name a libtorch for CUDA"
fi

choose_torch "$torch"
[[ -e "$REPO_ROOT/build/torch-path/lib/libtorch_cuda.so" ]] ||
  die "--torch: $torch is a libtorch for the CPU: lib/libtorch_cuda.so is missing"
cd "$REPO_ROOT"
preset="release$torch_preset"
configure_and_build "$preset" penstock runtime_gpu_test
[[ "$build_only" == no ]] || exit 0

folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
status=0
tests=passed
run ctest --test-dir "build/$preset" --output-on-failure --no-tests=error --label-regex '^gpu$' \
  >&2 || { tests=failed; status=1; }

run "build/$preset/penstock" probe --device cuda --json >"$folder/probe.json" || status=1

# measure NAME ARGUMENT...: one training run, whose JSON is kept.
measure() {
  local name=$1
  shift
  run "build/$preset/penstock" train --data synthetic --no-eval --warmup-steps 20 \
    --steps "$steps" --epochs 100000 --json "$@" >"$folder/$name.json" ||
    { rm -f "$folder/$name.json"; status=1; }
}
for model in mlp vgg_small resnet18 imported; do
  name=$model
  # A small CNN out of PyTorch.
  [[ "$model" != imported ]] || name=tests/data/imported/cnn.pt2
  # On a CPU this one would take an hour.
  [[ "$model" == resnet18 ]] || measure "$model.cpu" --model "$name" --strategy serial
  measure "$model.gpu" --model "$name" --strategy serial --device cuda:0
  measure "$model.two" --model "$name" --strategy 1f1b-flush --workers 2 --device cuda:0
done

mkdir -p "$(dirname "$output")"
python3 - "$folder" "$output" "$tests" "$gpus" <<'PYTHON'
import json, pathlib, sys

folder, output, tests, gpus = sys.argv[1:]
names = {"cpu": "CPU", "gpu": "GPU, 1 worker", "two": "GPU, 2 workers"}
rows = []
for model in ("mlp", "vgg_small", "resnet18", "imported"):
    for key, where in names.items():
        if (model, key) == ("resnet18", "cpu"):
            continue
        path = pathlib.Path(folder, f"{model}.{key}.json")
        row = {"model": model, "where": where, "failed": not path.exists()}
        if path.exists():
            run = json.loads(path.read_text())
            row["samples_per_s"] = run["throughput_samples_per_s"]
            row["predicted_samples_per_s"] = run["predicted_throughput_samples_per_s"]
            row["final_loss"] = run["final_loss"]
            row["device_peak_bytes"] = [d["peak_memory_bytes"] for d in run["devices"]]
        rows.append(row)
print(f"\ntests labelled gpu: {tests}\n")
print(f"{'model':<12} {'where':<16} {'samples/s':>12} {'final loss':>12} {'peak of GPU':>14}")
for row in rows:
    if row["failed"]:
        print(f"{row['model']:<12} {row['where']:<16} {'failed':>12}")
        continue
    peak = max(row["device_peak_bytes"], default=0)
    print(f"{row['model']:<12} {row['where']:<16} {row['samples_per_s']:>12.1f} "
          f"{row['final_loss']:>12.4f} {peak / 1e6:>11.1f} MB")
probe = json.loads(pathlib.Path(folder, "probe.json").read_text() or "{}")
if probe:
    print(f"\n{probe['cluster_toml']}")
pathlib.Path(output).write_text(
    json.dumps({"gpus": gpus.splitlines(), "tests": tests, "probe": probe, "runs": rows}, indent=1)
    + "\n")
print(f"\n{output}")
PYTHON
exit "$status"

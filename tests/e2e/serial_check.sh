# Every strategy trains, and --check-against-serial says that it computes what one worker computes;
# clipping, tied weights, history.
source "$(dirname "$0")/lib.sh"

run 0 profile --model tied_mlp --input 12 --classes 3 --width 16 --depth 2 --batch-size 4 \
  --samples 1 -o p.json
grep -q '"ties"' p.json || fail "the profile does not list tied weights"
grep -q '"backward_weight_ns"' p.json ||
  fail "the profile does not time the weights' part of backward"
tied="--model tied_mlp --input 12 --classes 3 --width 16 --depth 2 --data synthetic"
tied+=" --profile p.json --train-samples 88 --batch-size 16 --no-eval"
small="$tied --json"

# 5 whole mini-batches and one of 8 samples. A cut between encoder and decoder makes stages share
# weights, so all of this is under flush.
[ -n "$(strategies)" ] || fail "the tool lists no strategies"
for strategy in $(strategies); do
  case $strategy in 1f1b | 2bw | online) continue ;; esac
  run 0 train $small --strategy $strategy --workers 2 --check-against-serial --check-steps 6 \
    --clip-norm 0.5
  json_keys equal bit_for_bit losses reference_losses grad_norms first_difference first_weight \
    largest_difference steps
  grep -q '"equal":true,"bit_for_bit":true' out || fail "$strategy: $(head -c 300 out)"
  [ "$(numbers losses | wc -l)" -eq 6 ] ||
    fail "$strategy: $(numbers losses | wc -l) losses, expected 6"
  [ "$(numbers grad_norms | wc -l)" -eq 6 ] ||
    fail "$strategy: $(numbers grad_norms | wc -l) norms, expected 6"
done

# Coded messages: against one worker that codes them, too, and beside a run without codings.
run 0 train $small --strategy 1f1b-flush --workers 2 --check-against-serial --check-steps 6 \
  --boundary int8
grep -q '"equal":true,"bit_for_bit":true' out || fail "--boundary int8: $(head -c 300 out)"
[ "$(numbers uncoded_losses | wc -l)" -eq 6 ] || fail "no losses without codings"

# Separate runs with the same gradient groups have the same losses to the last digit, on however
# many workers.
alike="$tied --micro-batches 4 --gradient-groups 4"
losses_of() {  # losses_of NAME OPTIONS...
  run 0 train $alike --history "$1.json" "${@:2}"
  grep -o '"loss":[0-9.e+-]*' "$1.json" >"$1.losses"
  [ "$(wc -l <"$1.losses")" -eq 6 ] || fail "$1.json does not have 6 losses"
}
losses_of one --strategy serial
losses_of two --strategy dp --workers 2
losses_of four --strategy dp --workers 4
losses_of pipe --strategy 1f1b-flush --workers 2
for other in two four pipe; do
  cmp -s one.losses $other.losses ||
    fail "$other: other losses than one worker: $(cat one.losses $other.losses)"
done

# What plan chooses for it can be trained.
run 0 plan --profile p.json --workers 2 -o tied.json
grep -q '"weights": "flush"' tied.json ||
  fail "plan chose another policy than flush for tied weights: $(grep '"weights"' tied.json)"
run 0 train --model tied_mlp --input 12 --classes 3 --width 16 --depth 2 --data synthetic \
  --train-samples 32 --plan tied.json --no-eval

# Delayed weights: a model without ties.
make_profile
steps="--model lenet5 --data synthetic --profile p.json --train-samples 88 --batch-size 16"
steps+=" --workers 2 --check-against-serial --check-steps 6"
for weights in stash vertical-sync latest; do
  run 0 train $steps --strategy 1f1b --weights $weights
  grep -q 'losses of 6 steps equal to 0.0001' out || fail "1f1b with $weights: $(cat out)"
done
for weights in stash latest; do
  run 0 train $steps --strategy online --weights $weights
  grep -q 'losses of 6 steps equal to 0.0001' out || fail "online with $weights: $(cat out)"
done
refused "weights current" train $steps --strategy online
run 0 train $steps --strategy 2bw
grep -q 'and so are all weights' out || fail "2bw: $(cat out)"
run 0 train $steps --strategy 1f1b-flush --micro-batches 4
grep -q 'losses of 6 steps bit for bit equal' out || fail "1f1b-flush: $(cat out)"

# A plan with several stages per worker, as a file.
run 0 plan --profile p.json --workers 2 --strategy zb-v -o v.json
grep -q '"hosts"' v.json || fail "a zb-v plan does not say which worker holds which stage"
run 0 train --model lenet5 --data synthetic --train-samples 64 --plan v.json --history run.json \
  --clip-norm inf --json
json_keys losses learning_rates grad_norms stages
for key in format version model strategy plan steps epochs throughput_samples_per_s \
  predicted_throughput_samples_per_s loss learning_rate \
  grad_norm train_loss train_accuracy test_accuracy; do
  grep -q "\"$key\":" run.json || fail "the history lacks the key $key"
done
[ "$(grep -o '"grad_norm":[0-9]' run.json | wc -l)" -eq "$(numbers losses | wc -l)" ] ||
  fail "the history lacks gradient norms"
finish

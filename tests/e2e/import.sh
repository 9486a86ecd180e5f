#!/usr/bin/env bash
# Models exported from PyTorch: described, profiled, planned, trained; the same bits for any cut;
# weights go back; what cannot be trained is refused with every reason.
source "$(dirname "$0")/lib.sh" "$1"
models=$here/../data/imported

run 0 import "$models/cnn.pt2"
grep -q 'parameters  2162' out || fail "import: $(cat out)"
run 0 import "$models/transformer.pt2" --json
json_keys path torch_version schema parameters inputs output layers

# Each model, cut into two and three stages, against one thread: the same bits.
for model in cnn branches transformer random; do
  common="--model $models/$model.pt2 --data synthetic --train-samples 96 --test-samples 32
    --batch-size 24 --no-eval"
  run 0 profile --model "$models/$model.pt2" --batch-size 4 --samples 1 -o p.json
  for strategy in 1f1b-flush gpipe; do
    for workers in 2 3; do
      # A step over tied weights needs the norm's place in the schedule: the planner knows.
      run 0 train $common --profile p.json --strategy $strategy --workers $workers \
        --micro-batches 3 --steps 4 --check-against-serial
      grep -q 'bit for bit equal' out || fail "$model $strategy $workers: $(tail -n 4 out)"
    done
  done
done

# Every step of a whole line, with a checkpoint that is resumed.
run 0 plan --profile p.json --workers 2 -o plan.json
run 0 train $common --plan plan.json --epochs 1 --checkpoint saved --json
json_keys losses
run 0 train $common --plan plan.json --epochs 2 --checkpoint saved --resume --json

# Weights go back into the models in Python, where there is one with PyTorch.
python=${2:-}
if [ -n "$python" ]; then
  entries=
  for model in Cnn Branches Transformer Random; do
    run 0 train --model "$models/${model,,}.pt2" --data synthetic --train-samples 48 \
      --test-samples 8 --batch-size 24 --no-eval --strategy serial --checkpoint "back-$model"
    entries="$entries $model=$(echo "back-$model"/step-*/weights.pt)"
  done
  "$python" "$here/weights_back.py" "$models" $entries >out 2>err ||
    fail "weights do not go back: $(tail -n 3 err)"
  [ "$(grep -c 'All keys matched' out)" -eq 4 ] || fail "weights: $(cat out)"
else
  echo "going back to Python is left out: no Python with PyTorch"
fi

# What cannot be trained, and what is no model.
refused "alpha_dropout" import "$models/unseeded.pt2"
refused "has a fixed batch of 4" import "$models/fixed_batch.pt2"
refused "has a fixed batch of 4" train --model "$models/fixed_batch.pt2" --data synthetic
refused "there is no file" import nowhere.pt2
refused "no file of its own" import /dev/null
: >empty.pt2
refused "is empty" import empty.pt2
head -c 20000 "$models/cnn.pt2" >cut.pt2
refused "cut off" import cut.pt2
refused "has its own sizes" profile --model "$models/cnn.pt2" --width 5
finish

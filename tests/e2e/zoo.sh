#!/usr/bin/env bash
# The small models that come with Penstock learn with the defaults, the learning rate above all, on
# the data sets that fit them.
source "$(dirname "$0")/lib.sh" "$1"
penstock() { timeout -k 5 280 "$PENSTOCK" "$@"; }

# learns STEPS OPTIONS...: over its last quarter the loss is below four fifths of the first one.
learns() {
  local steps=$1
  shift
  run 0 train "$@" --steps "$steps" --strategy serial --no-eval --history history.json
  grep -o '"loss":[-+0-9.e]*' history.json | cut -d: -f2 >losses
  awk -v steps="$steps" 'NR == 1 { first = $1 }
    NR > steps * 3 / 4 { sum += $1; ++count }
    END { exit !(NR == steps && sum / count < 0.8 * first) }' losses ||
    fail "train $*: no learning: $(tr '\n' ' ' <losses)"
}

for model in mlp tied_mlp lenet5 vgg_small; do
  learns 64 --model "$model" --data synthetic --epochs 2
done
if [ -d /usr/share/datasets/fashion-mnist ]; then
  for model in mlp tied_mlp lenet5 vgg_small; do
    learns 32 --model "$model" --data fashion-mnist
  done
else
  echo "fashion-mnist is left out: dataset-fashion-mnist is not installed"
fi
finish

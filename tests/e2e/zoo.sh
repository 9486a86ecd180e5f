#!/usr/bin/env bash
# The models that come with Penstock learn with the defaults, the learning rate above all, on the
# data sets that fit them: zoo.sh PENSTOCK small|large.
source "$(dirname "$0")/lib.sh" "$1"
penstock() { timeout -k 5 280 "$PENSTOCK" "$@"; }

# learns STEPS SHARE OPTIONS...: over its last quarter the loss is below this share of the first
# one.
learns() {
  local steps=$1 share=$2
  shift 2
  run 0 train "$@" --steps "$steps" --strategy serial --no-eval --history history.json
  grep -o '"loss":[-+0-9.e]*' history.json | cut -d: -f2 >losses
  awk -v steps="$steps" -v share="$share" 'NR == 1 { first = $1 }
    NR > steps * 3 / 4 { sum += $1; ++count }
    END { exit !(NR == steps && sum / count < share * first) }' losses ||
    fail "train $*: no learning: $(tr '\n' ' ' <losses)"
}

if [ "$2" = large ]; then
  # A few samples again and again: a step of 64 would take minutes. vgg16 and resnet50 take larger
  # steps than a test has time for.
  few=(--data synthetic --train-samples 8 --batch-size 4 --epochs 6)
  learns 12 0.97 --model alexnet "${few[@]}"
  learns 12 0.8 --model resnet18 "${few[@]}"
  learns 6 0.9 --model inception_v3 "${few[@]}"
  finish
fi
for model in mlp tied_mlp lenet5 vgg_small; do
  learns 64 0.8 --model "$model" --data synthetic --epochs 2
done
# Language models, on synthetic tokens and on the bytes of a text.
learns 48 0.8 --model gpt --input 32 --width 64 --depth 2 --dropout 0.1 --data synthetic \
  --epochs 2 --optimizer adamw --lr 0.003
for i in $(seq 400); do echo "line $i of a text that repeats itself"; done >text.txt
learns 48 0.6 --model gpt --input 32 --width 64 --depth 2 --data text.txt --batch-size 32 \
  --epochs 4 --optimizer adamw --lr 0.003

learns 48 0.9 --model awd_lm --input 32 --classes 64 --width 64 --embedding 32 --depth 2 \
  --dropout 0.2 --data synthetic --epochs 2 --optimizer adamw --lr 0.01
learns 48 0.9 --model gnmt8 --input 12x10 --classes 32 --width 32 --depth 3 --dropout 0.1 \
  --data synthetic --epochs 2 --optimizer adamw --lr 0.01
learns 48 0.9 --model s2vt --input 6x16x8 --classes 32 --width 32 --embedding 16 \
  --data synthetic --epochs 2 --optimizer adamw --lr 0.01

# Cut anywhere they compute what one worker computes, with replicas, dropout and tied weights, too.
same() {  # same OPTIONS...
  run 0 train "$@" --data synthetic --train-samples 64 --batch-size 16 --micro-batches 4 \
    --workers 2 --check-against-serial --check-steps 3
  grep -q 'losses of 3 steps bit for bit equal, and so are all weights' out ||
    fail "train $*: $(cat out)"
}
for strategy in dp zb-h1 1f1b-flush; do
  same --model gpt --input 16 --width 32 --depth 2 --dropout 0.1 --strategy $strategy
done
for strategy in dp zb-h1; do
  same --model gnmt8 --input 7x6 --classes 32 --width 16 --ignore-index 0 --strategy $strategy
  same --model s2vt --input 4x6x3 --classes 16 --width 8 --embedding 4 --strategy $strategy
  same --model awd_lm --input 8 --classes 32 --width 24 --embedding 16 --strategy $strategy
done
same --model awd_lm --input 8 --classes 32 --width 24 --embedding 16 --strategy zb-h1 --carry-state
if [ -d /usr/share/datasets/fashion-mnist ]; then
  for model in mlp tied_mlp lenet5; do
    learns 32 0.8 --model "$model" --data fashion-mnist
  done
  # Its loss climbs first, on some processors until step 20.
  learns 64 0.8 --model vgg_small --data fashion-mnist
else
  echo "fashion-mnist is left out: dataset-fashion-mnist is not installed"
fi
finish

#!/usr/bin/env bash
# The user's own data: arrays, tokens and texts out of files; losses other than that of classes.
source "$(dirname "$0")/lib.sh" "$1"
models=$here/../data/imported
python3 "$here/make_arrays.py" . || { echo "skipped: no Python here"; exit 77; }
for i in $(seq 300); do echo "the quick brown fox jumps over the lazy dog"; done >text.txt

# falls WORDS: the losses of the run before fall, from the first five steps to the last five.
falls() {
  numbers losses >losses
  awk -v words="$*" '
    { loss[NR] = $1 }
    END {
      for (i = 1; i <= 5; ++i) { first += loss[i]; last += loss[NR - 5 + i] }
      if (NR < 10 || !(last < 0.97 * first)) { print words ": " first " -> " last; exit 1 }
    }' losses || fail "$*: the loss does not fall"
}

# Two inputs by name and targets that are ignored: any cut has the losses and weights of one worker.
tokens="--model $models/tokens.pt2 --data tokens.npz --batch-size 24 --lr 0.1"
run 0 train $tokens --strategy serial --epochs 6 --json
falls tokens.npz
json_keys test_loss test_accuracy
run 0 profile --model "$models/tokens.pt2" --batch-size 4 --samples 1 -o p.json
for options in "--strategy 1f1b-flush --workers 3 --micro-batches 4" \
  "--strategy dp --workers 2 --micro-batches 4" "--strategy zb-h1 --workers 2 --micro-batches 6" \
  "--strategy gpipe --workers 2 --micro-batches 4 --label-smoothing 0.1 --clip-norm 0.5"; do
  run 0 train $tokens --profile p.json $options --steps 4 --check-against-serial
  grep -q 'bit for bit equal' out || fail "tokens $options: $(tail -n 4 out)"
done
# The mean is over the targets of the mini-batch: the micro-batches do not matter but for rounding.
for parts in 1 2 4; do
  run 0 train $tokens --strategy serial --micro-batches $parts --steps 3 --no-eval --json
  numbers losses >losses.$parts
done
for parts in 2 4; do
  paste losses.1 losses.$parts |
    awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-5) exit 1 }' ||
    fail "$parts micro-batches have other losses: $(paste losses.1 losses.$parts | tr '\n' ' ')"
done
refused "holds -100, expected a class" train $tokens --ignore-index -1
refused "nothing can be learned from 'ignored.npz'" train --model "$models/tokens.pt2" \
  --data ignored.npz

# A text, and a row of tokens.
run 0 train --model "$models/letters.pt2" --data text.txt --strategy serial --epochs 2 \
  --batch-size 32 --lr 0.2 --momentum 0.9 --json
falls text.txt
run 0 train --model "$models/letters.pt2" --data text.txt --strategy 1f1b-flush --workers 2 \
  --micro-batches 4 --steps 3 --check-against-serial
grep -q 'bit for bit equal' out || fail "text.txt: $(tail -n 4 out)"
run 0 train --model "$models/letters.pt2" --data row.npy --strategy serial --steps 2

# A loss that is a part of the program, with its labels as an input.
for data in synthetic row.npy; do
  run 0 train --model "$models/ownloss.pt2" --data $data --strategy 1f1b-flush --workers 2 \
    --micro-batches 2 --batch-size 16 --epochs 20 --steps 30 --lr 0.1 --json
  falls "ownloss $data"
  grep -q '"test_accuracy":null' out || fail "a model's own loss has an accuracy"
done
run 0 train --model "$models/ownloss.pt2" --data row.npy --strategy gpipe --workers 3 \
  --micro-batches 3 --steps 3 --check-against-serial
grep -q 'bit for bit equal' out || fail "ownloss: $(tail -n 4 out)"
run 0 import "$models/ownloss.pt2"
grep -q 'output      its loss' out || fail "import: $(cat out)"

# Numbers as targets.
mlp="--model mlp --input 784 --width 16 --depth 2 --batch-size 16"
run 0 train $mlp --data regression.npz --loss mean-squared-error --epochs 8 --lr 0.05 --json
falls regression
run 0 train $mlp --data binary.npz --loss binary-cross-entropy --epochs 8 --lr 0.5 --json
falls binary
run 0 train $mlp --data regression.npz --loss mean-squared-error --workers 2 \
  --strategy 1f1b-flush --micro-batches 4 --steps 3 --check-against-serial
grep -q 'bit for bit equal' out || fail "regression: $(tail -n 4 out)"
run 0 train $mlp --data regression.npz --loss mean-squared-error --epochs 1 --history h.json
grep -q accuracy out err && fail "an accuracy of numbers: $(grep accuracy out err)"
run 0 train $mlp --data synthetic --loss mean-squared-error --steps 2

# What does not fit.
refused "there is no array 'attention_mask'" train --model "$models/tokens.pt2" --data no_mask.npz
refused "expected samples of int64, 8, found int32, 7" \
  train --model "$models/tokens.pt2" --data other_rows.npz
refused "sample 17 of 'input_ids' holds 16; the model's table has the rows 0 to 15" \
  train --model "$models/tokens.pt2" --data large.npz
refused "sample 5 of 'input' holds nan" train $mlp --data bad.npz
refused "sample 9 of 'targets' holds 10" train $mlp --data bad.npz
run 0 train $mlp --data bad.npz --bad-samples skip --steps 1
grep -q "2 of 96 samples are left out" err || fail "skip: $(cat err)"
refused "expected a class" train $mlp --data bad.npz
refused "expected samples of int64, one number, found float32, 10" \
  train $mlp --data regression.npz --loss cross-entropy
refused "expected 0 to 1" train $mlp --data beyond.npz --loss binary-cross-entropy
refused "unknown loss 'hinge'" train $mlp --data bad.npz --loss hinge
refused "label smoothing" train $mlp --label-smoothing 1 --data bad.npz
refused "has an image and a class" train --model "$models/tokens.pt2" --data fashion-mnist
refused "the loss model is for" train $mlp --data bad.npz --loss model
refused "has a loss of its own" train --model "$models/ownloss.pt2" --data row.npy \
  --loss cross-entropy
refused "tokens are for models of tokens" train $mlp --data text.txt
refused "there is no file" train $mlp --data nowhere.npz
refused "nowhere.npy" train --model "$models/letters.pt2" --data nowhere.npy
refused "unknown data set" train $mlp --data nowhere.xml
refused "--test-data" train $mlp --data synthetic --test-data bad.npz
refused "fatal or skip" train $mlp --data bad.npz --bad-samples maybe
# A folder of images; decoded beforehand or not, the numbers are the same.
if [[ -f $(dirname "$PENSTOCK")/penstock-opencv.so ]]; then
  photos="--model lenet5 --data photos --batch-size 20 --lr 0.05 --momentum 0.9"
  run 0 train $photos --strategy 1f1b-flush --workers 2 --micro-batches 4 --epochs 4 --json
  falls photos
  for threads in 0 1 3; do
    run 0 train $photos --strategy serial --steps 8 --data-threads $threads --json
    numbers losses >losses.$threads
    cmp losses.0 losses.$threads || fail "$threads threads for data: other losses"
  done
  run 0 train $photos --strategy dp --workers 2 --steps 4 --check-against-serial
  grep -q 'bit for bit equal' out || fail "photos: $(tail -n 4 out)"
  refused "the model and its loss take" train --model "$models/tokens.pt2" --data photos
  # One line says what is trained with; the names of the classes are kept, in their order.
  mkdir -p numbered/train numbered/val photos/train/__MACOSX
  touch photos/train/.hidden photos/train/down/notes.txt
  run 0 train $photos --strategy serial --epochs 1 --json
  line="photos: 120 training samples of 3 classes: 0 across, 1 diagonal, 2 down; 30 test samples"
  line+=" (val/); left out: 1 .txt, 1 __MACOSX, 1 hidden"
  grep -qxF "$line" err || fail "photos: $(cat err)"
  grep -qF '"classes":["across","diagonal","down"]' out || fail "no classes: $(head -c 300 out)"
  for part in train val; do
    i=0
    for name in across diagonal down; do
      names=(1 2 10)
      cp -r photos/$part/$name numbered/$part/${names[i++]}
    done
  done
  numbered="--model lenet5 --data numbered --batch-size 20 --strategy serial --checkpoint c"
  run 0 train $numbered --class-order numbers --epochs 1
  grep -q 'classes: 0 1, 1 2, 2 10' err || fail "numbers: $(cat err)"
  refused "of which class 1 is '2'; the data has 3, and class 1 is '10'" \
    train $numbered --epochs 2 --resume
  run 0 train $numbered --class-order numbers --epochs 2 --resume
  # The same images by a table.
  (echo filename,label,split
    for part in train val; do
      for name in across diagonal down; do
        for file in photos/$part/$name/*.ppm; do echo "$file,$name,$part"; done
      done
    done) >labels.csv
  run 0 train --model lenet5 --data labels.csv --batch-size 20 --strategy serial --steps 2
  line="labels.csv: 120 training samples of 3 classes: 0 across, 1 diagonal, 2 down; "
  grep -qF "${line}30 test samples (val)" err || fail "labels.csv: $(cat err)"
  # Folders in the classes count, and a class may be called train.
  mkdir -p vehicles/bus vehicles/train/de vehicles/train/fr
  cp photos/train/across/{1,2,3,4}.ppm vehicles/bus
  cp photos/train/down/{1,2,3}.ppm vehicles/train/de
  cp photos/train/diagonal/{1,2,3}.ppm vehicles/train/fr
  run 0 train --model lenet5 --data vehicles --batch-size 4 --strategy serial --steps 1
  grep -q '^vehicles: 9 training samples of 2 classes: 0 bus, 1 train; 1 test sample' err ||
    fail "vehicles: $(cat err)"
  echo damaged >photos/train/across/0.ppm
  refused "photos/train/across/0.ppm: the image cannot be decoded" train $photos --epochs 1
  run 0 train $photos --strategy serial --steps 2 --bad-samples skip
  grep -q "1 of 120 samples are left out" err || fail "skip: $(cat err)"
  refused "a class 'train' that the training images have not" \
    train --model lenet5 --data photos/val --test-data photos
  refused "expected one per class" train --model lenet5 --data photos/train/down
  refused "data-threads" train $photos --data-threads -1
fi
head -c 1000 tokens.npz >cut.npz
refused "cut off" train --model "$models/tokens.pt2" --data cut.npz
head -c 90 row.npy >cut.npy
refused "cut.npy" train --model "$models/letters.pt2" --data cut.npy
finish

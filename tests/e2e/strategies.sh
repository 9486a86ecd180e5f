# Every strategy and weight policy trains; the synchronous ones to the same losses as one worker.
# Then awkward sizes.
source "$(dirname "$0")/lib.sh"
make_profile

# 5 whole mini-batches of 16 and one of 8.
steps="$small --train-samples 88 --batch-size 16 --no-eval"
run 0 train $steps --strategy serial
numbers losses >serial.txt
for strategy in dp mp gpipe 1f1b-flush; do
  run 0 train $steps --strategy $strategy --workers 2 --micro-batches 2
  numbers losses >other.txt
  same_numbers 1e-4 serial.txt other.txt ||
    fail "$strategy: losses $(paste -sd' ' other.txt), serial has $(paste -sd' ' serial.txt)"
done
for weights in stash vertical-sync latest; do
  run 0 train $steps --strategy 1f1b --workers 2 --weights $weights
  [ "$(numbers losses | wc -l)" -eq 6 ] ||
    fail "1f1b with $weights: $(numbers losses | wc -l) losses, expected 6"
done
run 0 train $steps --strategy 2bw --workers 2
[ "$(numbers losses | wc -l)" -eq 6 ] || fail "2bw: $(numbers losses | wc -l) losses, expected 6"

# A plan whose forwards and backwards run in pairs.
run 0 plan --profile p.json --workers 2 --strategy dualpipe --micro-batches 8 -o pairs.json
run 0 schedule --plan pairs.json --grid
grep -q 'F&: together with the next' out || fail "no pairs: $(cat out)"
run 0 train --model lenet5 --data synthetic --train-samples 64 --batch-size 32 --plan pairs.json \
  --check-against-serial
grep -q 'bit for bit equal, and so are all weights' out || fail "pairs: $(tail -n 3 out)"

# More workers than layers, mini-batches of one sample, a mini-batch larger than the data set, fewer
# micro-batches than stages.
run 0 train $small --train-samples 32 --batch-size 16 --strategy 1f1b --workers 20 --no-eval
run 0 train $small --train-samples 6 --batch-size 1 --strategy gpipe --workers 2 --no-eval
[ "$(numbers losses | wc -l)" -eq 6 ] ||
  fail "6 samples one by one gave $(numbers losses | wc -l) losses"
run 0 train $small --train-samples 10 --batch-size 64 --strategy 1f1b-flush --workers 2 --no-eval
[ "$(numbers losses | wc -l)" -eq 1 ] ||
  fail "a mini-batch larger than the data gave $(numbers losses | wc -l) losses"
run 0 train $small --train-samples 32 --batch-size 16 --strategy gpipe --workers 3 \
  --micro-batches 2 --no-eval
finish

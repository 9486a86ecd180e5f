#!/usr/bin/env bash
# Clips with captions: features of a user's own, from which s2vt learns to write captions; clips of
# emoji, where their packages are installed; what is refused.
source "$(dirname "$0")/lib.sh" "$1"
penstock() { timeout -k 5 120 "$PENSTOCK" "$@"; }

meteor() { grep -o '"metric":[0-9.]*' out | cut -d: -f2 | grep . | tail -n 1; }

# features KIND: a .npy file of two frames with four numbers, of which that of the kind is 1.
features() {
  local header="{'descr': '<f4', 'fortran_order': False, 'shape': (2, 4), }" f n
  printf '\x93NUMPY\x01\x00\x76\x00%-117s\n' "$header"
  for f in 1 2; do
    for n in 0 1 2 3; do
      if [ "$n" = "$1" ]; then printf '\x00\x00\x80\x3f'; else printf '\x00\x00\x00\x00'; fi
    done
  done
}
said=("A cat sleeps." "Two dogs run home" "the red car turns left" "nobody, at all, is here")
mkdir -p clips/features
for i in $(seq 40); do
  features $((i % 4)) >"clips/features/v$i.npy"
  echo "v$i ${said[$((i % 4))]}" >>clips/captions.txt
done
echo 'v1 dogs' >>clips/captions.txt
echo 'v99 a clip that is gone' >>clips/captions.txt

run 0 data captions --from clips --frames 3 --test-share 0.2 --valid-share 0 -o folder
grep -q 'note: 1 clip with captions have no file' out || fail "the lost clip: $(cat out)"
grep -q 'next: penstock train --model s2vt --data folder --metric meteor' out ||
  fail "no next command: $(cat out)"
model=(--model s2vt --data folder --width 24 --embedding 16 --batch-size 16 --json
  --optimizer adamw --lr 0.02 --metric meteor-stem)
run 0 train "${model[@]}" --strategy serial --epochs 60 --eval-every 30 --target 0.9
meteor | awk '!($1 >= 0.9) { exit 1 }' || fail "METEOR: $(meteor) $(cat err)"

# Every way to run it writes the same captions.
expected=
for way in "--strategy serial" "--workers 2 --strategy 1f1b-flush"; do
  run 0 train "${model[@]}" $way --epochs 10 --beam 2 --micro-batches 2
  [ -z "$expected" ] || [ "$(meteor)" = "$expected" ] || fail "$way: $(meteor), not $expected"
  expected=$(meteor)
done

refused "as gnmt8 has one; the model 's2vt' has none" \
  train "${model[@]}" --beam 2 --coverage-penalty 0.2 --steps 1

if [ -e /usr/share/fonts/truetype/noto/NotoColorEmoji.ttf ] &&
  [ -e /usr/share/unicode/cldr/common/annotations/en.xml ]; then
  emoji=(data captions --from emoji --clips 60 --pictures 6 --frames 3 --side 16)
  run 0 "${emoji[@]}" -o emoji
  grep -q 'of its pairs of pictures 0.0 %' out || fail "recurring pairs: $(cat out)"
  run 0 "${emoji[@]}" -o again --json
  json_keys format task vocabulary frames parts sources recurs pairs_recur seed
  for file in train.frames.npy test.target.bin test.target.txt vocabulary.model; do
    cmp -s "emoji/$file" "again/$file" || fail "another run wrote another $file"
  done
  run 0 train --model s2vt --data emoji --depth 2 --width 8 --embedding 8 --batch-size 8 \
    --steps 3 --metric meteor-stem --workers 2 --strategy 1f1b-flush --json
  refused 'cannot be halved' train --model s2vt --data emoji --depth 5 --steps 1
  refused 'the number of clips must be from 3' data captions --from emoji --clips 1 -o bad
fi

refused 'expected captions.txt or captions.csv' data captions --from folder -o bad
refused 'are for --from emoji' data captions --from clips --clips 5 -o bad
refused "clips with captions are for models that read frames" train --model gnmt8 --input 5x5 \
  --width 8 --depth 2 --data folder --steps 1
[ ! -e bad ] || fail "a refused command wrote $(ls bad)"
finish

#!/usr/bin/env bash
# A translation is learned from two texts to a BLEU, by one worker, by a pipeline, and by two ranks.
source "$(dirname "$0")/lib.sh" "$1"
penstock() { timeout -k 5 200 "$PENSTOCK" "$@"; }

bleu() { grep -o '"metric":[0-9.]*' out | cut -d: -f2 | grep . | tail -n 1; }

# Numbers in words; every sentence once.
awk 'BEGIN {
  srand(5)
  split("one two three four five six seven eight", source)
  split("eins zwei drei vier acht sechs sieben neun", target)
  while (count < 1500) {
    a = b = ""
    for (k = 2 + int(rand() * 4); k > 0; --k) {
      n = 1 + int(rand() * 8)
      a = a source[n] " "
      b = b target[n] " "
    }
    if (a in seen) continue
    seen[a] = 1
    ++count
    print a >"source.txt"
    print b >"target.txt"
  }
}'
run 0 data translation --from pairs --source source.txt --target target.txt \
  --vocabulary-type word --min-words 1 --test-share 0.05 --valid-share 0 -o pairs
model=(--model gnmt8 --input 8x8 --width 48 --depth 2 --dropout 0 --data pairs --batch-size 32)
learn=(--optimizer adamw --lr 0.01 --metric bleu --json)

# To a target: the run ends there and says when.
run 0 train "${model[@]}" "${learn[@]}" --strategy serial --epochs 40 --eval-every 200 --target 60
bleu | awk '!($1 >= 60 && $1 <= 100) { exit 1 }' || fail "BLEU: $(cat err)"
numbers time_to_target_s | awk '!($1 > 0) { exit 1 }' || fail "no time to the target"

# Every way to run it writes the same sentences, greedily and by beam search.
for search in "--beam 1" "--beam 3" "--beam 3 --coverage-penalty 1"; do
  expected=
  for way in "--strategy serial" "--workers 2 --strategy 1f1b-flush"; do
    run 0 train "${model[@]}" "${learn[@]}" $way --steps 220 $search --micro-batches 2
    found=$(bleu)
    awk -v bleu="${found:-0}" 'BEGIN { exit !(bleu > 0) }' || fail "BLEU $found: $(cat err)"
    [ -z "$expected" ] || [ "$found" = "$expected" ] || fail "$way, $search: $found, $expected"
    expected=$found
  done
  run 0 launch --ranks 2 -- train "${model[@]}" "${learn[@]}" --workers 2 --strategy 1f1b-flush \
    --steps 220 $search --micro-batches 2
  [ "$(bleu)" = "$expected" ] || fail "two ranks, $search: $(cat err)"
done

# Sentences of like length together: the same over ranks, and the plan says which lengths it saw.
bucketed=(--lengths bucketed --steps 120 --micro-batches 2)
run 0 train "${model[@]}" "${learn[@]}" --strategy serial "${bucketed[@]}"
expected=$(bleu)
grep -q 'Lengths: micro-batches have sequences of 4 to 8 places' err || fail "lengths: $(cat err)"
run 0 launch --ranks 2 -- train "${model[@]}" "${learn[@]}" --workers 2 --strategy 1f1b-flush \
  "${bucketed[@]}"
[ "$(bleu)" = "$expected" ] || fail "two ranks, bucketed: $(cat err)"
run 0 profile "${model[@]:0:10}" --lengths-of pairs --batch-size 16 --samples 2 -o lengths.json
grep -q '"lengths"' lengths.json || fail "no lengths in the profile"
run 0 train --model gpt --input 16 --width 16 --depth 1 --data synthetic --steps 1 --lengths batch
grep -q 'have one length: --lengths changes nothing' err || fail "no note: $(cat err)"
refused 'expected one of whole, batch, bucketed' train "${model[@]}" --lengths sorted --steps 1

# What cannot be judged so is refused.
refused 'the metric bleu needs sentences to write' train --model gpt --input 16 --width 16 \
  --depth 1 --data synthetic --metric bleu --steps 1
refused "expected one of loss, accuracy" train "${model[@]}" --metric rouge --steps 1
refused 'knows 10: a model of as many is expected' train "${model[@]}" --classes 10 --steps 1
finish

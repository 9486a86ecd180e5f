#!/usr/bin/env bash
# Adapters without Python: a program is profiled, planned, simulated and trained with --lora, in one
# process and on two ranks, goes on from its checkpoints, and leaves an adapter as PEFT has it.
source "$(dirname "$0")/lib.sh" "$1"
letters=$here/../data/imported/letters.pt2
for ((i = 0; i < 60; i++)); do echo "the boat $i sinks, the bird $((i % 7)) sings"; done >text.txt
adapters="--lora 4 --lora-targets qkv,up --lora-alpha 8"
common="--model $letters --data text.txt $adapters --batch-size 12 --micro-batches 3 --no-eval"

run 0 profile --model "$letters" $adapters --batch-size 4 --samples 1 -o p.json
grep -q '"name": "blocks.0.qkv.lora_A"' p.json || fail "the profile has no adapters"
run 0 plan --profile p.json --workers 2 --strategy 1f1b-flush --straight --micro-batches 3 \
  -o plan.json
run 0 simulate --plan plan.json

# The losses of steps have the same bits in one stage, in two and on two ranks.
run 0 train $common --steps 6 --strategy serial --checkpoint whole --json
numbers losses >serial
[ "$(wc -l <serial)" -eq 6 ] || fail "losses: $(cat serial)"
own="--model $letters --data text.txt $adapters --batch-size 12 --no-eval"
run 0 train $own --steps 6 --plan plan.json --json
numbers losses | cmp -s - serial || fail "another cut: $(numbers losses)"
run 0 launch --ranks 2 -- train $own --steps 6 --plan plan.json --json
numbers losses | cmp -s - serial || fail "two ranks: $(numbers losses)"

# Only adapters are in a checkpoint, which is PEFT's, too; a run goes on from it exactly.
folder=$(echo whole/step-*)
for file in adapter_config.json adapter_model.safetensors weights.pt; do
  [ -s "$folder/$file" ] || fail "no $file in $(ls "$folder")"
done
grep -q '"r": 4' "$folder/adapter_config.json" || fail "$(cat "$folder/adapter_config.json")"
grep -aq 'base_model.model.blocks.1.up.lora_B.weight' "$folder/adapter_model.safetensors" ||
  fail "names of the adapter"
run 0 train $common --steps 3 --strategy serial --checkpoint half
run 0 train $common --steps 6 --strategy gpipe --workers 2 --checkpoint half --resume
cmp -s "$folder/adapter_model.safetensors" half/step-000000006/adapter_model.safetensors ||
  fail "a resumed run has other adapters"
resumed="train --model $letters --data text.txt --batch-size 12 --no-eval --steps 9
  --checkpoint half --resume"
refused "there rank 4, alpha 8, 4 modules" $resumed --lora 2 --lora-targets qkv,up
refused "other adapters than this run" $resumed --lora 4 --lora-targets qkv
refused "here none" $resumed

# Frozen weights in 8 bits: fewer bytes in the profile and at the peak of a run, nearly the same
# losses, the same bits in another cut.
constants() {
  grep -o '"measured":{[^}]*}' out | grep -o '"constants":[0-9]*' | head -n 1 | cut -d: -f2
}
for form in as-stored int8; do
  run 0 train $common --steps 6 --strategy serial --frozen-weights $form --json
  numbers losses >$form
  constants >$form.bytes
done
cmp -s as-stored serial || fail "as-stored is not what is usual"
same_numbers 0.01 as-stored int8 || fail "8 bits: $(paste as-stored int8 | tr '\n' ' ')"
! cmp -s as-stored int8 || fail "8 bits change nothing"
[ "$(<int8.bytes)" -lt "$(<as-stored.bytes)" ] ||
  fail "8 bits take $(<int8.bytes) bytes of $(<as-stored.bytes)"
run 0 train $common --steps 6 --strategy gpipe --workers 2 --straight --frozen-weights int8 --json
numbers losses | cmp -s - int8 || fail "8 bits in another cut: $(numbers losses)"
refused "expected as-stored or int8" train $common --frozen-weights int4
refused "--frozen-weights is for programs" profile --model mlp --frozen-weights int8

# What is no adapter of this model.
refused "'ukv' means none of its 9 linear modules; there are qkv, up, out, " \
  train --model "$letters" --data text.txt --lora 4 --lora-targets ukv
refused "expected 1 to 16" profile --model "$letters" --lora 400
refused "--lora" train --model "$letters" --data text.txt --lora-targets qkv
refused "expected a whole number of at least 1" \
  train --model "$letters" --data text.txt --lora 0
refused "--lora is for programs" train --model mlp --lora 4
finish

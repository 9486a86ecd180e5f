# Profiles of repeated layers, of some layers, and joining them.
source "$(dirname "$0")/lib.sh"

mlp() { run 0 profile --model mlp --width 32 --depth 12 --batch-size 8 --samples 3 "$@"; }

# Equal layers are measured once if one asks for it; by itself that is for large models.
mlp -o usual.json
grep -q 'timed' out && fail "a small model has layers that are not timed: $(tail -n 1 out)"
mlp --measure once -o once.json
timed=$(sed -n 's/^\([0-9]*\) of 26 layers timed; each of the others is equal.*/\1/p' out)
[ "${timed:-26}" -lt 15 ] || fail "not fewer layers are timed: $(tail -n 2 out)"
grep -q "\"measured_layers\": $timed" once.json || fail "the file does not say how many"
run 0 plan --profile once.json --workers 2
mlp --measure all -o all.json
grep -q 'timed' out && fail "--measure all leaves layers out: $(tail -n 1 out)"
grep -q 'measured_layers' all.json && fail "all layers, and the file says some"
refused "--measure: expected auto, once or all, found 'twice'" profile --model mlp --measure twice

# Some layers, which make a whole.
mlp --layers 0..9 -o front.json
grep -q "^10 of 26 layers, 'flatten' to " out || fail "not which layers: $(tail -n 2 out)"
mlp --layers 10..25 -o back.json
run 0 profile --join back.json front.json -o whole.json
grep -q '^total *26 layers' out || fail "not one table: $(cat out)"
run 0 plan --profile whole.json --workers 2
mlp --measure once --layers 10..25 -o once.json
run 0 profile --join front.json once.json --json
json_keys format layers measured_layers
run 0 profile --join all.json
refused "expected a whole profile" plan --profile front.json --workers 2
refused "are in none of the profiles (front.json)" profile --join front.json
refused "both front.json and front.json have it" profile --join front.json front.json back.json
run 0 profile --model mlp --width 32 --depth 12 --batch-size 4 --samples 3 --layers 10..25 \
  -o small.json
refused "their micro-batches differ, 8 samples and 4" profile --join front.json small.json
refused "--samples: --join measures nothing" profile --join front.json back.json --samples 1
refused "--layers there is no layer 'x'" profile --model mlp --layers 0..x
refused "comes after" profile --model mlp --layers 3..1
refused "--analytic cannot be combined with --layers" \
  profile --model mlp --analytic --device a100 --layers 0..1
refused "no_such.json" profile --join no_such.json
echo '{"format": "penstock-profile-share", "version": 1}' >bad.json
refused "bad.json" profile --join bad.json
refused "would overwrite the file of --join" profile --join front.json back.json -o front.json
[ -s front.json ] || fail "an input of --join is gone"
finish

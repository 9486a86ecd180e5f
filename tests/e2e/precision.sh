# Profiles, plans and trainings in 16 bits: they name their precision, refuse another one, and ranks
# have the bits of one process with half of the bytes between stages.
source "$(dirname "$0")/lib.sh"

unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT PENSTOCK_LISTEN
model="--model mlp --width 64"
common="$model --data synthetic --train-samples 256 --test-samples 64 --lr 0.01 --batch-size 32"

for precision in float32 bfloat16 float16; do
  run 0 profile $model --batch-size 8 --samples 1 --precision $precision -o $precision.json --json
  [ "$(grep -c "\"precision\": \"$precision\"" $precision.json)" = 1 ] ||
    fail "$precision.json does not say its precision"
  run 0 plan --profile $precision.json --strategy gpipe --workers 2 --micro-batches 4 \
    --bandwidth 10Gbps --precision $precision -o $precision.plan.json
  run 0 simulate --plan $precision.plan.json --precision $precision
  run 0 train $common --plan $precision.plan.json --check-against-serial --check-steps 4
  run 0 train $common --plan $precision.plan.json --json
  numbers losses >alone.losses
  run 0 launch -n 2 -- train $common --plan $precision.plan.json --json
  numbers losses | cmp -s - alone.losses || fail "$precision on 2 ranks: other losses"
  numbers bytes_sent | head -n 1 >$precision.bytes
done
wide=$(cat float32.bytes) narrow=$(cat bfloat16.bytes)
[ "$((narrow * 2))" -le "$((wide + wide / 10))" ] ||
  fail "bfloat16 sent $narrow bytes, float32 $wide"
run 0 train $common --strategy 1f1b --workers 2 --precision float16 --json
json_keys skipped_steps loss_scale precision

# Another precision than that of the file.
run 2 plan --profile float32.json --workers 2 --precision bfloat16
grep -q 'float32.json was measured in float32, --precision is bfloat16' err || fail "$(cat err)"
run 2 train $common --strategy gpipe --workers 2 --profile float32.json --precision bfloat16
grep -q 'float32.json was measured in float32, --precision is bfloat16' err || fail "$(cat err)"
run 2 train $common --plan float32.plan.json --precision bfloat16
grep -q 'float32.plan.json was made for float32, --precision is bfloat16' err || fail "$(cat err)"
run 2 simulate --plan float32.plan.json --precision float16
run 2 plan --profile bfloat16.json --price float32.plan.json

# What does not exist, or not here.
run 2 train $common --precision fp16
grep -q 'float32, tf32, bfloat16, float16' err || fail "$(cat err)"
run 2 train $common --precision tf32
grep -q "tf32 is a mode of NVIDIA's GPUs" err || fail "$(cat err)"
run 2 profile $model --precision tf32
run 2 train $common --plan bfloat16.plan.json --precision float16
run 2 train $common --strategy dp --workers 2 --sync asynchronous --momentum 0 --precision float16

finish

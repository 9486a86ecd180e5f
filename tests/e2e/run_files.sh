# Run files: --config and --print-config of train, stream and profile.
source "$(dirname "$0")/lib.sh"

mkdir -p settings
cat >settings/run.toml <<'EOF'
model = "mlp"
width = 16
data = "synthetic"
train-samples = 64
steps = 6
batch-size = 16
no-eval = true
history = "h.json"  # beside this file
EOF

# The file is the command line with these options.
run 0 train --config settings/run.toml --json
cp out from_file
[ -s settings/h.json ] || fail "the history does not lie beside the run file"
run 0 train --model mlp --width 16 --data synthetic --train-samples 64 --steps 6 --batch-size 16 \
  --no-eval --json
losses() { grep -o '"losses":\[[^]]*\]' "$1"; }
[ -n "$(losses out)" ] && [ "$(losses out)" = "$(losses from_file)" ] || fail "other losses"

# The command line wins; both forms of an option, and a letter.
run 0 train --config settings/run.toml --steps 2 --batch-size=8 --no-eval=false --print-config
grep -qx 'steps = 2' out && grep -qx 'batch-size = 8' out || fail "the command line: $(cat out)"
grep -q 'no-eval' out && fail "--no-eval=false does not take back the file's"
echo 'output = "p.json"
model = "mlp"' >settings/profile.toml
run 0 profile --config settings/profile.toml -o here.json --print-config
grep -qx "output = \"$PWD/here.json\"" out || fail "the letter: $(cat out)"

# What is printed gives the same back, wherever it lies.
options=(--model mlp --width 16 --depth 3 --untied --dropout 0.1 --classes 7 --input 1x8x8
  --data synthetic --train-samples 100 --class-order numbers --no-shuffle --drop-last --eval-every 3
  --metric accuracy --target 0.9 --loss cross-entropy --label-smoothing 0.05 --strategy 1f1b-flush
  --workers 2 --tensor auto --weights flush --sync ordered --sync-precision bfloat16
  --micro-batches 4 --epochs 2 --optimizer adamw,beta2=0.98 --lr 0.00031 --momentum 0.8
  --weight-decay 0 --lr-schedule cosine --lr-warmup 3 --large-batch all,-gamma
  --base-batch-size 32 --ema 0.999 --clip-norm inf --threads 2 --deadline 77 --silence 3.5
  --tls secret --checkpoint saved --seed 18446744073709551615 --history h.json --json)
run 0 train "${options[@]}" --print-config
mv out settings/printed.toml
run 0 train --config settings/printed.toml --print-config
diff out settings/printed.toml >/dev/null || fail "printed anew: $(diff out settings/printed.toml)"
for ((i = 0; i < ${#options[@]}; i++)); do
  name=${options[i]}
  [[ $name == --* ]] || continue
  grep -q "^${name#--} = " out || fail "$name is not printed"
done
run 0 stream --source generated --serve --seconds 2 --lr 0.5 --print-config
mv out stream.toml
run 0 stream --config stream.toml --print-config
diff out stream.toml >/dev/null || fail "a stream printed anew: $(diff out stream.toml)"

# A job: each rank reads the file.
run 0 launch -n 2 -- train --config settings/run.toml --workers 2 --strategy dp --json
grep -q '"ranks":2' out || fail "a job from a run file: $(head -c 300 out)"

# Refusals, with file and line.
bad() {
  local words=$1
  shift
  printf '%s\n' "$@" >bad.toml
  refused "$words" train --config bad.toml
}
bad "bad.toml:2: unknown option 'batch_size', the nearest is 'batch-size'" \
  'model = "mlp"' 'batch_size = 3'
bad "bad.toml:1: epochs: expected an integer, found a string" 'epochs = "3"'
bad "bad.toml:1: no-eval cannot be combined with 'target' in line 2" 'no-eval = true' 'target = 1'
bad "bad.toml:1: check-steps needs check-against-serial" 'check-steps = 3'
bad "bad.toml:2: not valid TOML" 'lr = 1' 'lr = 2'
bad "expected options, found the table 'run'" '[run]' 'lr = 1'
bad "--model is required" 'lr = 1'
echo 'no-eval = true' >bad.toml
refused "bad.toml:1: no-eval cannot be combined with --eval-every of the command line" \
  train --config bad.toml --model mlp --eval-every 3
refused "expected a file, found a pipe" train --config <(echo 'model = "mlp"')
refused "cannot read '.'" train --config .
refused "cannot read 'none.toml'" train --config none.toml
refused "--config: expected one value, found several" \
  train --config settings/run.toml --config settings/run.toml
refused "would overwrite the file of --config" \
  train --config settings/run.toml --history settings/run.toml
refused "bad.toml:1: no-eval" launch -n 2 -- train --config bad.toml --eval-every 2
head -c 3000000 /dev/zero | tr '\0' '#' >bad.toml
refused "bad.toml" train --config bad.toml
# Stopped while it is still measuring, a run goes on when it is started again.
early=(train --model mlp --width 64 --data synthetic --train-samples 640 --batch-size 32 --workers 2
  --strategy 1f1b-flush --no-eval --checkpoint early.saved --resume --run-folder early)
"$PENSTOCK" "${early[@]}" >out 2>err &
for _ in $(seq 2000); do
  grep -q 'starting at step 0' err && break
  sleep 0.002
done
kill -TERM $!
wait $! || fail "stopped early: exit code $?: $(tail -n 3 err)"
[ ! -e early/plan.json ] || echo "note: the run had begun before it was stopped"
run 0 "${early[@]}"
for name in config.toml plan.json environment.json history.json results.json report.html; do
  [ -s "early/$name" ] || fail "the folder of a run that was stopped early lacks $name"
done
# What a killed process has not written is named.
python=$(command -v python3) && [ -n "$python" ] && {
  "$python" - <<'EOF'
import json
history = json.load(open("early/history.json"))
history["steps"] = history["steps"][:3]
json.dump(history, open("early/history.json", "w"))
EOF
  run 0 "${early[@]}" --epochs 2
  grep -q 'early/history.json has no record of the steps 4 to 20, made before this start' err ||
    fail "the gap of the history: $(grep record err)"
}
finish

# What operators need of penstock train: run folders, metrics, logs, health, exit codes.
source "$(dirname "$0")/lib.sh"

tiny=(--model mlp --width 16 --data synthetic --train-samples 96 --test-samples 16 --epochs 2
  --batch-size 16)
losses() { grep -o '"losses": *\[[^]]*\]' "$1" | tr -d ' \n'; }
field() { grep -o "\"$2\": *[^,}]*" "$1" | head -1; }

# --- Run folders: what a run was, and the same again, bit for bit ---

mkdir -p user && git -C user init -q 2>/dev/null &&
  git -C user -c user.name=a -c user.email=a@b commit -q --allow-empty -m one
cd user || exit 1
run 0 train "${tiny[@]}" --strategy 1f1b --workers 2 --lr-schedule cosine --large-batch=all,-gamma \
  --base-batch-size 8 --checkpoint ../saved --run-folder ../runs/1 --json
cp out ../first.json
[ ! -d .git ] || grep -q "$(git rev-parse HEAD)" ../runs/1/environment.json ||
  fail "no commit: $(cat ../runs/1/environment.json)"
[ ! -d .git ] || grep -q '"has_changes": false' ../runs/1/environment.json || fail "changes?"
cd ..
for file in config.toml plan.json environment.json history.json report.html results.json; do
  [ -s "runs/1/$file" ] || fail "no runs/1/$file"
done
[ "$(losses first.json)" = "$(losses runs/1/results.json)" ] || fail "results.json has other losses"
grep -q '^checkpoint' runs/1/config.toml && fail "the run would meet its own checkpoints"

# Also where the folder was moved to, and from elsewhere.
mv runs moved
run 0 train --config moved/1/config.toml --run-folder again --json
[ -n "$(losses first.json)" ] && [ "$(losses out)" = "$(losses first.json)" ] ||
  fail "other losses: $(losses out) $(losses first.json)"
[ "$(field out test_loss)" = "$(field first.json test_loss)" ] || fail "other weights"
strip() { grep -v '^#' "$1"; }
diff <(strip moved/1/config.toml) <(strip again/config.toml) >/dev/null ||
  fail "another config: $(diff moved/1/config.toml again/config.toml)"
cmp -s moved/1/plan.json again/plan.json || fail "another plan"

# One that holds a run, or anything, is left as it is.
before=$(cksum again/*)
refused "--run-folder: 'again' holds another run" train "${tiny[@]}" --run-folder again
refused "cannot be combined with" train "${tiny[@]}" --run-folder new --check-against-serial
[ "$before" = "$(cksum again/*)" ] || fail "a refused run has changed the folder"
mkdir other && echo mine >other/notes
refused "'other' holds other files" train "${tiny[@]}" --run-folder other
refused "cannot make the folder 'other/notes'" train "${tiny[@]}" --run-folder other/notes

# A run that goes on with its checkpoints goes on with its folder; the history has both parts.
run 0 train "${tiny[@]}" --steps 3 --checkpoint kept --run-folder whole
run 0 train "${tiny[@]}" --checkpoint kept --resume --run-folder whole
[ "$(grep -o '"step":' whole/history.json | wc -l)" -ge 12 ] || fail "the history lacks steps"
refused "its checkpoints are in" train "${tiny[@]}" --checkpoint kept2 --resume --run-folder whole

# Also where it writes a history elsewhere from then on.
run 0 train "${tiny[@]}" --steps 3 --checkpoint legs --run-folder legs_folder
run 0 train "${tiny[@]}" --steps 6 --checkpoint legs --resume --run-folder legs_folder \
  --history legs.json
run 0 train "${tiny[@]}" --checkpoint legs --resume --run-folder legs_folder --history legs.json
for file in legs_folder/history.json legs.json; do
  [ "$(grep -o '"step":' $file | wc -l)" -ge 12 ] || fail "$file lacks steps: $(cat $file)"
done

# A job writes one folder; the launcher's restarts go on with it.
run 0 launch -n 2 -- train "${tiny[@]}" --strategy dp --run-folder job
grep -q '"ranks": 2' job/environment.json || fail "ranks: $(cat job/environment.json)"
run 0 launch -n 2 -- train --config job/config.toml --json
[ "$(losses out)" = "$(losses job/results.json)" ] || fail "a job again: other losses"

# So does a run whose replicas make steps by themselves, with its outer optimiser.
run 0 launch -n 2 -- train "${tiny[@]}" --strategy dp --sync diloco:2 --outer-learning-rate 0.3 \
  --outer-momentum 0 --run-folder rounds
run 0 launch -n 2 -- train --config rounds/config.toml --json
[ "$(losses out)" = "$(losses rounds/results.json)" ] || fail "rounds again: other losses"

# --- Metrics, logs and the health file of a run that is interrupted and goes on ---

# get PORT [HOST]: what /metrics answers.
get() {
  { exec 3<>"/dev/tcp/127.0.0.1/$1"; } 2>/dev/null || return 1
  printf 'GET /metrics HTTP/1.0\r\nHost: %s\r\n\r\n' "${2:-localhost}" >&3
  cat <&3
  exec 3>&-
}
# port_in FILE RANK: waits until the rank has said where it listens.
port_in() {
  local i
  for ((i = 0; i < 2000; i++)); do
    port=$(grep "\"rank\":$2,.*metrics at" "$1" 2>/dev/null |
      sed 's|.*metrics at http://127.0.0.1:\([0-9]*\)/.*|\1|')
    [ -n "$port" ] && return
    sleep 0.01
  done
  fail "rank $2 listens nowhere: $(cat "$1")"
}
# until_metrics PORT LINE: leaves `numbers` with such a line.
until_metrics() {
  local i
  for ((i = 0; i < 1000; i++)); do
    numbers=$(get "$1" | sed '1,/^\r$/d')
    grep -qE "$2" <<<"$numbers" && return
    [ -n "$numbers" ] || break  # the run has ended
    sleep 0.02
  done
  fail "no '$2' at port $1: $numbers"
}
long=(--model mlp --width 16 --data synthetic --train-samples 96 --test-samples 16 --batch-size 16
  --epochs 100000 --no-eval --workers 2 --log-format json --metrics 0)

"$PENSTOCK" train "${long[@]}" --strategy 1f1b-flush --checkpoint held \
  --health-file health --stopped-exit-code 75 >trained 2>log </dev/null &
child=$!
port_in log 0
first=$port
until_metrics "$first" '^penstock_steps_total\{rank="0"\} [1-9]'
for name in loss step epoch samples_per_second idle_share checkpoints worker_waiting_seconds_total \
  resident_memory_bytes; do
  grep -q "^penstock_$name{rank=\"0\"" <<<"$numbers" || fail "no $name in: $numbers"
done
odd=$(grep -vE '^# HELP [a-z_]+ .+|^# TYPE [a-z_]+ (gauge|counter)$' <<<"$numbers" |
  grep -vE '^[a-z_]+\{[^}]*\} [-+0-9.eNaInf]+$')
[ -z "$odd" ] || fail "lines that Prometheus does not know: $odd"
get "$first" evil.example | grep -q '403' || fail "a strange Host is answered"
grep -q '"state":"training"' health || fail "health: $(cat health)"
refused "--metrics: cannot listen at 127.0.0.1:$first: another program listens there" \
  train "${tiny[@]}" --metrics "$first" --history never.json
[ ! -e never.json ] || fail "trained in spite of a port in use"
kill -TERM "$child"
wait_within 60 "$child"
[ "$code" -eq 75 ] || fail "interrupted: exit code $code, expected 75"
[ -e held/latest ] || fail "nothing was saved"
grep -q '"state":"interrupted"' health || fail "health: $(cat health)"
grep -v '^{"time":"[0-9T:.-]*Z","rank":0,"level":"[a-z]*","message":.*}$' log >odd &&
  fail "no JSON lines: $(cat odd)"
grep -q '"event":"step"' log || fail "no line of a step"

# As text; a failure has its line, and its exit code, too.
run 0 train "${tiny[@]}" --log-format text
grep -vE '^[0-9]{4}-[0-9-]+T[0-9:.]+Z rank 0 (info|warning|error): ' err >odd &&
  fail "lines without time and rank: $(cat odd)"
run 2 train --model mlp --data none.npz --log-format json --health-file health
grep -q '"level":"error","message":".*none.npz' err || fail "an error as a line: $(cat err)"
grep -q '"state":"failed"' health || fail "health: $(cat health)"
refused "cannot" train "${tiny[@]}" --health-file no/such/health

run 0 train "${tiny[@]}" --strategy 1f1b --workers 2 --check-against-serial --health-file health
grep -q '"state":"done"' health || fail "health of a check: $(cat health)"

# Stopped while rank 0 waits for a rank that never comes.
RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20002 + $$ % 10000)) \
  PENSTOCK_JOB_TOKEN=secret "$PENSTOCK" train "${tiny[@]}" --health-file waits \
  --stopped-exit-code 75 >trained 2>log </dev/null &
child=$!
for ((i = 0; i < 1000; i++)); do
  [ -e waits ] && break
  sleep 0.01
done
sleep 0.2
kill -TERM "$child"
wait_within 60 "$child"
[ "$code" -eq 75 ] || fail "stopped while joining: exit code $code, expected 75: $(tail -n 3 log)"
grep -q '"state":"interrupted"' waits || fail "health: $(cat waits)"

# A job: each rank has its numbers, with the bytes between them, and its file.
"$PENSTOCK" launch -n 2 -- train "${long[@]}" --strategy dp --health-file alive \
  --stopped-exit-code 75 >trained 2>log </dev/null &
child=$!
port_in log 1
until_metrics "$port" '^penstock_sent_bytes_total\{rank="1"\} [1-9]'
grep -q '^penstock_worker_busy_seconds_total{rank="1",worker="1"}' <<<"$numbers" ||
  fail "rank 1 has no worker 1: $numbers"
port_in log 0
until_metrics "$port" '^penstock_steps_total\{rank="0"\} [1-9]'
grep -q '"rank":1' alive.1 && grep -q '"rank":0' alive || fail "health of two ranks"
kill -TERM "$child"
wait_within 60 "$child"
[ "$code" -eq 75 ] || fail "an interrupted job: exit code $code, expected 75: $(tail -n 3 log)"
# Started again by its launcher, without checkpoints: it begins anew in its folder.
process_in() { sed 's/.*"process":\([0-9]*\).*/\1/' "$1"; }
# until_training FILE [PROCESS]: a process has begun to train, another one than this.
until_training() {
  local i
  for ((i = 0; i < 2000; i++)); do
    grep -q '"state":"training"' "$1" 2>/dev/null && [ "$(process_in "$1")" != "${2:-}" ] && return
    sleep 0.01
  done
  fail "no training: $(cat "$1") $(tail -n 3 log)"
}
rm -f alive alive.1
"$PENSTOCK" launch -n 2 --max-restarts 1 -- train "${long[@]}" --strategy dp --health-file alive \
  --run-folder restarted --stopped-exit-code 75 >trained 2>log </dev/null &
child=$!
until_training alive
until_training alive.1
killed=$(process_in alive.1)
kill -KILL "$killed"
until_training alive.1 "$killed"
kill -TERM "$child"
wait_within 60 "$child"
[ "$code" -eq 75 ] || fail "a job started again: exit code $code, expected 75: $(tail -n 3 log)"
[ -s restarted/results.json ] || fail "no results: $(ls restarted) $(tail -n 20 log)"

# --- The examples for schedulers ---

deploy=$here/../../examples/deploy
mkdir -p srv/run7
sed "s|/srv/penstock|$PWD/srv|" "$deploy/run.toml" >service.toml
run 0 train --config service.toml --print-config
grep -qx 'stopped-exit-code = 75' out || fail "run.toml: $(cat out)"
sed -n '/run.toml: |/,$ s/^    //p' "$deploy/config.yaml" | sed "s|/tmp/|$PWD/|" >pod.toml
run 0 train --config pod.toml --print-config
grep -qx 'metrics-address = "0.0.0.0"' out || fail "config.yaml: $(cat out)"
if command -v systemd-analyze >/dev/null; then
  sed "s|/usr/bin/penstock|$PENSTOCK|" "$deploy/penstock@.service" >penstock@run7.service
  systemd-analyze verify "$PWD/penstock@run7.service" 2>odd || fail "the unit: $(cat odd)"
fi

# Ranks as pods have them: no launcher, stopped and started again by the same command.
sed -e "s|/shared|$PWD/shared|; s|= 9400|= 0|; s|0.0.0.0|127.0.0.1|; s|vgg_small|mlp|" \
  -e 's|epochs = .*|epochs = 100000\nno-eval = true\ntrain-samples = 96\nwidth = 16|' \
  -e '1s|^|strategy = "dp"\n|' \
  pod.toml >two.toml
pods() {
  local rank
  children=()
  for rank in 0 1; do
    RANK=$rank WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$1 PENSTOCK_JOB_TOKEN=secret \
      "$PENSTOCK" train --config two.toml --health-file "$PWD/pod" \
      >"out$rank" 2>"log$rank" </dev/null &
    children+=($!)
  done
  port_in log1 1
  until_metrics "$port" '^penstock_sent_bytes_total\{rank="1"\} [1-9]'
  kill -TERM "${children[@]}"
  for rank in 0 1; do
    wait_within 60 "${children[rank]}"
    [ "$code" -eq 75 ] || fail "pod $rank: exit code $code, expected 75: $(tail -n 3 "log$rank")"
  done
}
pods $((20000 + $$ % 10000))
pods $((20001 + $$ % 10000))
grep -q '"rank":0' pod && grep -q '"rank":1' pod.1 || fail "health of two pods in one folder"
grep -q "plan: that of the checkpoint" log0 || fail "the pods do not go on: $(head -n 5 log0)"
finish

# Teams of workers (tensor parallelism) as threads and as ranks: losses, checkpoints and weights are
# those of one worker within rounding; what does not fit is refused; nothing is left running.
# teams.sh PENSTOCK [PYTHON]: with a Python that has PyTorch, by torchrun, too.
source "$(dirname "$0")/lib.sh"
python=${2-}
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT PENSTOCK_LISTEN
[ "$(id -u)" -ne 0 ] || export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export TMPDIR=$work OMP_NUM_THREADS=1

model="--model gpt --depth 2 --width 32 --heads 4 --input 8 --classes 40"
run 0 profile $model --batch-size 4 --samples 1 -o profile.json
grep -q '"team"' profile.json || fail "the profile does not say what teams share out"
model+=" --data synthetic --train-samples 48 --test-samples 16"
planned="$model --batch-size 8 --lr 0.05"
common="$planned --profile profile.json --micro-batches 2 --lr-schedule constant"
run 0 train $common --strategy serial --checkpoint one --json
numbers losses >one.losses
numbers test_loss >one.test
[ "$(wc -l <one.losses)" -eq 6 ] || fail "expected 6 losses: $(cat out)"

# near_one WHAT: `out` has the losses of one worker.
near_one() {
  numbers losses >found.losses
  same_numbers 4e-5 one.losses found.losses ||
    fail "$1: other losses: $(paste one.losses found.losses)"
  numbers test_loss >found.test
  same_numbers 4e-5 one.test found.test || fail "$1: other test loss: $(cat found.test)"
}
# plan_of NAME WORKERS TEAM STRATEGY: NAME.json, for ranks of one machine.
plan_of() {
  run 0 plan --profile profile.json --workers "$2" --tensor "$3" --strategy "$4" --all-workers \
    --bandwidth 10Gbps --micro-batches 2 -o "$1.json"
}
plan_of pair 2 2 serial
plan_of four 4 4 serial
plan_of pipe 4 2 1f1b-flush
plan_of wide 4 2 dp

# Threads. Figures are those of a member.
for name in pair four pipe wide; do
  run 0 train $planned --plan $name.json --json --checkpoint threads.$name
  near_one "$name in threads"
  awk -v RS='"predicted_memory_bytes":' 'NR > 1 && !($1 + 0 > 0 && $1 + 0 < 1e6) { exit 1 }' out ||
    fail "$name: predicted memory: $(grep -o '"predicted_memory_bytes":[0-9]*' out)"
done
run 0 train $planned --plan pipe.json --trace run.trace --html run.html
grep -q 'worker 3 (stage 1, member 1) measured' out || fail "no member is named: $(cat out)"
grep -q 'stage 1, replica 0, member 1' run.trace || fail "the trace names no member"
grep -q 'PB' out && fail "the summary has wild figures: $(cat out)"
run 0 train $common --workers 4 --tensor 2 --strategy interleaved --json
near_one "interleaved"

# Ranks: the same numbers as threads; whole weights in checkpoints.
by_ranks() {  # by_ranks PLAN LAUNCHER...
  local name=$1
  shift
  rm -rf ranks
  timeout 100 "$@" train $planned --plan "$name.json" --checkpoint ranks --json >out 2>err ||
    fail "$name by $1: exit code $?: $(tail -n 5 err)"
  near_one "$name by $1"
  diff -r ranks "threads.$name" >differences || fail "$name by $1: $(cat differences)"
}
by_ranks pair "$PENSTOCK" launch -n 2 --
by_ranks four "$PENSTOCK" launch -n 4 --
by_ranks pipe "$PENSTOCK" launch -n 4 --
by_ranks pipe "$PENSTOCK" launch -n 2 --
by_ranks wide "$PENSTOCK" launch -n 4 --
if command -v mpirun >/dev/null; then
  by_ranks pair mpirun -n 2 --oversubscribe "$PENSTOCK"
  by_ranks pipe mpirun -n 4 --oversubscribe "$PENSTOCK"
else
  echo "mpirun is left out: it is not there"
fi
if [ -n "$python" ] && "$python" -c 'import torch.distributed.run' 2>/dev/null; then
  by_ranks pair "$python" -m torch.distributed.run --standalone --no-python --nproc-per-node=2 \
    "$PENSTOCK"
else
  echo "torchrun is left out: no Python with PyTorch"
fi
# Planned by the ranks themselves.
run 0 launch -n 2 -- train $common --tensor 2 --json
near_one "--tensor 2 on 2 ranks"
grep -q '"config":"1t2"' out || fail "expected a team of two: $(head -c 300 out)"
run 0 launch -n 2 -- train $common --tensor auto --json
near_one "--tensor auto on 2 ranks"

# A run goes on with teams of another size, and the proof holds within rounding.
go_on() {  # go_on OPTIONS...: a second epoch after that of a team of two
  rm -rf saved
  cp -r threads.pair saved
  run 0 train $planned --epochs 2 --checkpoint saved --resume --json "$@"
  numbers losses >later.losses
}
go_on --plan pair.json
cp later.losses pair.losses
for options in "--plan four.json" "--plan pipe.json" \
  "--profile profile.json --strategy serial --micro-batches 2"; do
  go_on $options
  same_numbers 4e-5 pair.losses later.losses ||
    fail "resumed with $options: $(paste pair.losses later.losses)"
done
run 0 train $planned --plan pipe.json --check-against-serial --check-steps 3
grep -q 'adds in another order than teams' out || fail "checked: $(cat out)"
grep -q 'equal to 0.0001 of their size, and so are all weights' out || fail "checked: $(cat out)"
run 0 launch -n 2 -- train $planned --plan pair.json --optimizer adamw --check-against-serial \
  --check-steps 3
grep -q 'weights are not compared' out || fail "checked with adamw: $(cat out)"

# A program of PyTorch.
run 0 train --model "$here/../data/imported/transformer.pt2" --data synthetic --train-samples 48 \
  --test-samples 8 --batch-size 8 --workers 2 --tensor 2 --strategy serial \
  --check-against-serial --check-steps 4
grep -q '^serial 1t2 .* adds in another order than teams' out || fail "a program: $(cat out)"
grep -q 'equal to 0.0001 of their size' out || fail "a program: $(cat out)"

# Where the size is left open and no team can be, there is none.
run 0 train $common --workers 2 --tensor auto --optimizer lamb --json
grep -q '"member":' out && fail "teams with lamb"

# Refused.
teams="train $common --workers 2 --tensor"
for size in 0 -1 abc 1e9 99999999999; do
  refused "--tensor: expected auto, or the members of each team, at least 1, found '$size'" \
    $teams $size
done
for size in 3 1000; do
  refused "2 workers cannot be shared out to teams of $size: expected teams" $teams $size
done
refused "1 worker cannot be shared out to teams of 2" train $common --tensor 2
refused "--tensor" train $planned --plan pair.json --tensor 2
refused "--optimizer lamb needs all of a weight for its step" $teams 2 --optimizer lamb
refused "--carry-state keeps states that members would share" train --model awd_lm --width 16 \
  --depth 2 --input 8 --classes 40 --data synthetic --train-samples 64 --batch-size 4 \
  --carry-state --workers 2 --tensor 2
sed 's/"tensor": 2/"tensor": 0/' pair.json >none.json
refused "stages[0].tensor: expected" train $planned --plan none.json
sed 's/"tensor": 2/"tensor": "x"/' pair.json >word.json
refused "stages[0].tensor: expected" train $planned --plan word.json
sed 's/"tensor": 2/"tensor": 1000000000/' pair.json >many.json
refused "reaches worker" train $planned --plan many.json
run 0 profile --model partime --depth 4 --width 6 --kernel 3 --task pixels --input 3x16x24 \
  --samples 1 -o stream.profile
run 0 plan --profile stream.profile --workers 2 --strategy online --all-workers -o whole.json
awk '/"replicas"/ && !done { done = 1; sub(/"replicas": 1/, "&, \"tensor\": 2") } { print }' \
  whole.json | sed -e 's/"config": "1-1"/"config": "1t2-1"/' \
  -e 's/"first_worker": 1/"first_worker": 2/' -e 's/"count": 2/"count": 3/' >stream.json
refused "stream.json has teams (1t2-1), and a stream's stages are whole" stream --size 24x16 \
  --depth 4 --width 6 --kernel 3 --task pixels --frames 10 --plan stream.json

# Ranks whose plans differ.
port=$((20000 + $$ % 10000))
mkdir elsewhere
sed 's/"recompute": false/"recompute": true/' pair.json >elsewhere/pair.json
cmp -s pair.json elsewhere/pair.json && fail "the plans do not differ"
planned_rank() {
  (cd "$2" && RANK=$1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port penstock train \
    $planned --plan pair.json) >"out.$1" 2>"err.$1"
}
planned_rank 1 elsewhere &
planned_rank 0 .
[ $? -eq 2 ] || fail "ranks of different plans: $(cat err.0)"
wait
grep -q 'the ranks of a job must have the same plan' err.1 || fail "rank 1: $(cat err.1)"

# A member that is killed ends the job at once.
"$PENSTOCK" launch -n 4 -- train $planned --plan pipe.json --epochs 100000 --no-eval \
  --checkpoint killed >launch.out 2>launch.err &
launcher=$!
for _ in $(seq 600); do
  [ -e killed/latest ] && break
  sleep 0.05
done
victims=$(pgrep -P $launcher)
for process in $victims; do
  tr '\0' '\n' <"/proc/$process/environ" 2>/dev/null | grep -qx RANK=1 && kill -KILL "$process"
done
wait_within 20 $launcher
[ "$code" -eq 137 ] || fail "after a member was killed: exit code $code: $(tail -n 5 launch.err)"
grep -q '^penstock: rank 1.* closed the connection' launch.err ||
  fail "no report: $(tail -n 20 launch.err)"
for process in $victims; do
  [ -e "/proc/$process" ] && fail "process $process is still there"
done
finish

# Training as a job of several processes: the results are those of one process, bit for bit; ranks
# that die, are stopped or do not fit are reported; nothing is left running.
source "$(dirname "$0")/lib.sh"

unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT PENSTOCK_LISTEN
model="--model mlp --width 64 --data synthetic --train-samples 512 --test-samples 64 --lr 0.01"
penstock profile --model mlp --width 64 --batch-size 8 -o profile.json >/dev/null 2>&1 ||
  fail "profile: exit code $?"
planned="$model --batch-size 32"
common="$planned --profile profile.json --micro-batches 4"
# With a plan, ranks need not measure their links before they train, which takes most of a short
# job's time. It stands in STRATEGY.WORKERS.json.
for one in gpipe.2 1f1b.3 dp.2 dp.4; do
  run 0 plan --profile profile.json --strategy ${one%.*} --workers ${one#*.} --all-workers \
    --bandwidth 10Gbps --micro-batches 4 -o $one.json
done

# same_job RANKS STRATEGY WORKERS OPTIONS...: the job's losses, accuracy and weights are those of
# one process with the same plan. $more: options of the job alone, which price its plan anew.
same_job() {
  local ranks=$1 strategy=$2 workers=$3
  shift 3
  rm -rf alone together
  run 0 plan --profile profile.json --strategy "$strategy" --workers "$workers" --all-workers \
    --bandwidth 10Gbps --micro-batches "$micro_batches" -o plan.json
  set -- --plan plan.json "$@"
  run 0 train $planned "$@" --checkpoint alone --json
  numbers losses >alone.losses
  numbers test_accuracy >alone.accuracy
  run 0 launch -n "$ranks" --servers "$servers" -- train $planned "$@" $more \
    --checkpoint together --json
  json_keys ranks bytes_sent bytes_received losses
  [ "$(numbers ranks)" = "$((ranks + servers))" ] ||
    fail "$*: expected $ranks ranks, found $(numbers ranks)"
  numbers losses | cmp -s - alone.losses || fail "$* on $ranks ranks: other losses"
  numbers test_accuracy | cmp -s - alone.accuracy || fail "$* on $ranks ranks: other accuracy"
  [ -z "$more" ] || rm alone/*/plan.json alone/*/manifest.json together/*/plan.json \
    together/*/manifest.json
  diff -r alone together >differences || fail "$* on $ranks ranks: $(cat differences)"
}
servers=0 micro_batches=4 more=
same_job 2 gpipe 2
same_job 3 1f1b-flush 3 --clip-norm 1
same_job 2 dp 4 --sync ordered
same_job 4 chimera 4 --sync ordered
same_job 2 2bw 2
same_job 2 zb-v 2 --epochs 2

# Replicas on several ranks: every method that adds in the order of one thread, with ranks that only
# add; clipping waits for all gradients. Around a ring the sums have another order.
micro_batches=3
same_job 3 dp 3 --sync ordered
cp alone.losses wide.losses
# On one host all ranks are one machine, which adds in the order of one thread.
same_job 3 dp 3 --sync hierarchical
servers=2
same_job 3 dp 3 --sync summation
micro_batches=4
same_job 2 dp 2 --sync parameter-server --clip-norm 0.5
same_job 2 chimera 4 --sync summation
servers=0
# Optimiser state that the replicas share out: the same weights, and all of it in checkpoints.
more=--shard-optimizer
same_job 2 dp 2 --optimizer adam --sync ordered
same_job 2 dp 4 --momentum 0.9 --clip-norm 0.5 --sync ordered
same_job 2 chimera 4 --optimizer adamw --sync hierarchical
micro_batches=3
same_job 3 dp 3 --optimizer adam --sync summation --sync-precision bfloat16
more= micro_batches=4
run 2 launch -n 2 -- train $planned --plan dp.2.json --sync asynchronous --shard-optimizer
grep -q 'cannot be shared out over replicas under the synch' err || fail "$(cat err)"
run 0 train $common --strategy dp --workers 4 --json
numbers losses >alone.losses
run 0 launch -n 4 -- train $planned --plan dp.4.json --sync ring --json
numbers losses >ring.losses
same_numbers 1e-3 alone.losses ring.losses || fail "ring: $(paste alone.losses ring.losses)"
# Replicas that do not wait: without staleness as those that do; with it on any place.
run 0 launch -n 2 --servers 1 -- train $planned --plan dp.4.json --sync asynchronous --staleness 0 \
  --json
numbers losses >asynchronous.losses
same_numbers 1e-3 alone.losses asynchronous.losses ||
  fail "asynchronous: $(paste alone.losses asynchronous.losses)"
run 0 launch -n 2 -- train $planned --plan dp.2.json --sync asynchronous --json
run 0 train $common --strategy dp --workers 2 --sync asynchronous --staleness 1 --json
refused "without weight decay, clipping and shared weights, found adam" \
  train $common --strategy dp --workers 2 --sync asynchronous --optimizer adam
refused "there is no serial run to compare it with" \
  train $common --strategy dp --workers 2 --sync asynchronous --check-against-serial
refused "the staleness" \
  train $common --strategy dp --workers 2 --sync asynchronous --staleness -1
refused "--sync: unknown gradient synchronisation 'rings', expected one of auto, ordered," \
  train $common --strategy dp --sync rings
refused "the job has 5 ranks, 2 of them servers, the plan 2 workers" \
  launch -n 3 --servers 2 -- train $planned --plan dp.2.json

# Gradients that travel in 16 bits, between processes or rounded within one: the same bits. The
# first ones differ from those of float32.
micro_batches=3
same_job 3 dp 3 --sync-precision bfloat16
cmp -s alone.losses wide.losses && fail "bfloat16 has the losses of float32"
servers=2
same_job 3 dp 3 --sync summation --sync-precision float16
same_job 3 dp 3 --sync parameter-server --sync-precision bfloat16
servers=0 micro_batches=4
same_job 2 dp 4 --sync-precision bfloat16 --clip-norm 0.5
same_job 2 chimera 4 --sync-precision float16
run 0 launch -n 2 -- train $planned --plan dp.2.json --sync-precision float16 --check-against-serial
grep -q 'bit for bit equal, and so are all weights' out || fail "dp in float16: $(cat out)"
run 0 launch -n 2 -- train $planned --plan dp.2.json --json
wide=$(numbers bytes_sent | head -n 1)
run 0 launch -n 2 -- train $planned --plan dp.2.json --sync-precision bfloat16 --json
half=$(numbers bytes_sent | head -n 1)
[ $((half * 100)) -lt $((wide * 52)) ] && [ $((half * 100)) -gt $((wide * 48)) ] ||
  fail "bfloat16 sent $half bytes, float32 $wide"
run 0 train $planned --plan plan.json --sync-precision float16 --json
grep -q '^plan.json: its predictions are for --sync [a-z]* --sync-precision float32$' err ||
  fail "a plan for another precision: $(cat err)"
# Around a ring only rounding differs, and the answer is not no.
run 0 launch -n 4 -- train $planned --plan dp.4.json --sync ring --check-against-serial \
  --check-steps 5
grep -q 'which adds in another order than ring' out || fail "ring: $(cat out)"
# A checkpoint goes on in another precision.
rm -rf together
run 0 train $common --strategy dp --workers 2 --checkpoint together
run 0 launch -n 2 -- train $common --strategy dp --workers 2 --checkpoint together --resume \
  --epochs 2 --sync-precision bfloat16
grep -q 'that of the checkpoint was made for' err || fail "another precision: $(cat err)"
refused "unknown precision of gradients 'float8'" \
  train $common --strategy dp --workers 2 --sync-precision float8
refused "asynchronous sends changes of weights" \
  train $common --strategy dp --workers 2 --sync asynchronous --sync-precision bfloat16
sed 's/"sync_precision": "float32"/"sync_precision": "bf16"/' plan.json >wrong.json
refused "wrong.json: sync_precision: unknown precision of gradients 'bf16'" \
  train $planned --plan wrong.json
sed 's/"sync_precision": "float32",*//' plan.json >old.json
run 0 train $planned --plan old.json --json

# Bytes: one boundary of 64 numbers, forth and back for each of 512 samples, and forth for 64 tests.
run 0 launch -n 2 -- train $planned --plan gpipe.2.json --json
sent=$(numbers bytes_sent | head -n 1)
[ "$sent" -ge $((512 * 64 * 4)) ] || fail "rank 0 sent $sent bytes"
[ "$(numbers bytes_sent | tail -n 1)" = "$(numbers bytes_received | head -n 1)" ] ||
  fail "what rank 1 sent is not what rank 0 received: $(cat out)"

# The proof against one worker; replicas on several ranks under weight stashing.
run 0 launch -n 2 -- train $planned --plan gpipe.2.json --check-against-serial
grep -q 'bit for bit equal, and so are all weights' out || fail "gpipe: $(cat out)"
run 0 launch -n 3 -- train $planned --plan 1f1b.3.json --check-against-serial
grep -q 'and so are all weights after them' out || fail "1f1b: $(cat out)"

# Without --workers, one worker per rank; fewer workers than ranks are refused.
run 0 launch -n 2 -- train $common --strategy dp --json
grep -q '"config":"2"' out || fail "expected 2 workers: $(head -c 300 out)"
refused "the job has 3 ranks, the plan 2 workers" \
  launch -n 3 -- train $common --strategy gpipe --workers 2

# Ranks that do not fit are refused, and both sides are named.
port=$((20000 + $$ % 10000))
rank() {
  RANK=$1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port penstock train $common \
    --strategy gpipe "${@:2}" >"out.$1" 2>"err.$1"
}
rank 1 --workers 2 --seed 2 &
rank 0 --workers 2 --seed 1
[ $? -eq 2 ] || fail "ranks of different seeds: $(cat err.0)"
wait
for r in 0 1; do
  grep -q 'the ranks of a job must have the same options' "err.$r" ||
    fail "rank $r: $(cat "err.$r")"
  grep -q 'options: --seed: rank 0 has 1, rank 1 has 2$' "err.$r" ||
    fail "rank $r names other options: $(cat "err.$r")"
done
rank 1 --workers 2 --fabric auto &
rank 0 --workers 2 --fabric tcp
[ $? -eq 2 ] || fail "ranks of different fabrics: $(cat err.0)"
wait
grep -q 'the same --fabric: rank 0 has tcp, rank 1 has auto' err.0 ||
  fail "ranks of different fabrics: $(cat err.0)"
# Plans of one name in different folders; a rank without the file has rank 0's.
run 0 plan --profile profile.json --strategy gpipe --workers 2 --all-workers --bandwidth 10Gbps \
  --micro-batches 4 -o plan.json
mkdir -p elsewhere without
sed 's/"recompute": false/"recompute": true/' plan.json >elsewhere/plan.json
cmp -s plan.json elsewhere/plan.json && fail "the plans do not differ"
planned_rank() {
  (cd "$2" && RANK=$1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port penstock train $planned \
    --plan plan.json --steps 2 --no-eval) >"out.$1" 2>"err.$1"
}
planned_rank 1 elsewhere &
planned_rank 0 .
[ $? -eq 2 ] || fail "ranks of different plans: $(cat err.0)"
wait
for r in 0 1; do
  grep -q 'plan.json: the ranks of a job must have the same plan: the file of rank 0 is gpipe on' \
    "err.$r" || fail "rank $r: $(cat "err.$r")"
done
planned_rank 1 without &
planned_rank 0 .
[ $? -eq 0 ] || fail "a rank without the plan: $(cat err.0)"
wait
# rank_process LAUNCHER RANK: the process of a rank.
rank_process() {
  local process
  for process in $(pgrep -P "$1"); do
    tr '\0' '\n' <"/proc/$process/environ" 2>/dev/null | grep -qx "RANK=$2" && echo "$process"
  done
}
# until_there FILE: waits for it, 30 s at most.
until_there() {
  local i
  for i in $(seq 600); do
    [ -e "$1" ] && return
    sleep 0.05
  done
  fail "$1 did not appear: $(tail -n 3 launch.err)"
}
long="--strategy gpipe --workers 4 --epochs 100000 --no-eval"

# A rank that is killed ends the job at once, with who did what; the checkpoint is intact.
rm -rf saved
"$PENSTOCK" launch -n 4 -- train $common $long --checkpoint saved >launch.out 2>launch.err &
launcher=$!
until_there saved/latest
victims=$(pgrep -P $launcher)
kill -KILL "$(rank_process $launcher 2)"
wait $launcher
code=$?
[ "$code" -eq 137 ] || fail "after a rank was killed: exit code $code: $(tail -n 5 launch.err)"
# Between two runs of the pipeline no worker does anything that could be reported.
grep -qE '^penstock: rank 2( \(worker 2: stage 2\))? closed the connection' launch.err ||
  fail "no report: $(tail -n 20 launch.err)"
for process in $victims; do
  [ -e "/proc/$process" ] && fail "process $process is still there"
done
steps=$(($(sed -n '1s/.*step-0*\([0-9]*\).*/\1/p' saved/latest) + 16))
run 0 launch -n 2 -- train $common --strategy gpipe --workers 4 --epochs 100000 --no-eval \
  --steps $steps --checkpoint saved --resume --json
[ "$(numbers steps)" = "$steps" ] || fail "resumed to step $(numbers steps), expected $steps"

# A job that is started again goes on from its checkpoint, and ends with the same weights.
rm -rf whole saved
run 0 train $common --strategy gpipe --workers 2 --epochs 30 --no-eval --checkpoint whole
"$PENSTOCK" launch -n 2 --max-restarts 2 -- train $common --strategy gpipe --workers 2 \
  --epochs 30 --no-eval --checkpoint saved >launch.out 2>launch.err &
launcher=$!
until_there saved/latest
kill -KILL "$(rank_process $launcher 1)"
wait $launcher
code=$?
[ "$code" -eq 0 ] || fail "restarted: exit code $code: $(tail -n 5 launch.err)"
grep -q 'restart 1 of 2' launch.err || fail "no restart: $(tail -n 20 launch.err)"
last=$(ls whole | grep step | tail -n 1)
cmp -s "whole/$last/weights.pt" "saved/$last/weights.pt" || fail "other weights after a restart"

# So does a job of one rank.
rm -rf saved
run 0 train $common --strategy serial --no-eval --checkpoint saved
PENSTOCK_RESTART=1 RANK=0 WORLD_SIZE=1 run 0 train $common --strategy serial --no-eval --epochs 2 \
  --checkpoint saved --json
TORCHELASTIC_RESTART_COUNT=1 RANK=0 WORLD_SIZE=1 run 0 train $common --strategy serial --no-eval \
  --epochs 3 --checkpoint saved --json
[ "$(numbers steps)" = 48 ] || fail "a restarted rank: $(numbers steps) steps, expected 48"
refused "add --resume" launch -n 1 -- train $common --strategy serial --checkpoint saved

# SIGTERM to the launcher ends all ranks after the same step, with a checkpoint.
rm -rf saved
"$PENSTOCK" launch -n 4 -- train $common $long --checkpoint saved --json >launch.out 2>launch.err &
launcher=$!
until_there saved/latest
kill -TERM $launcher
wait $launcher
code=$?
[ "$code" -eq 0 ] || fail "interrupted: exit code $code: $(tail -n 5 launch.err)"
grep -q '"interrupted":true' launch.out || fail "interrupted: $(head -c 300 launch.out)"

# So does SIGTERM to a rank that only adds gradients.
rm -rf saved
"$PENSTOCK" launch -n 2 --servers 1 -- train $common --strategy dp --sync summation \
  --stopped-exit-code 143 --epochs 100000 --no-eval --checkpoint saved --json \
  >launch.out 2>launch.err &
launcher=$!
until_there saved/latest
kill -TERM "$(rank_process $launcher 2)"
wait_within 30 $launcher
[ "$code" -eq 143 ] || fail "a stopped server: exit code $code: $(tail -n 5 launch.err)"
grep -q '"interrupted":true' launch.out || fail "a stopped server: $(head -c 300 launch.out)"

# Servers that have nothing to do are named.
run 0 launch -n 2 --servers 1 -- train $planned --plan dp.2.json --sync ordered --json
grep -q 'warning: the job.s server has nothing to do: --sync ordered' err ||
  fail "an idle server: $(cat err)"
[ "$(numbers servers)" = 1 ] || fail "servers: $(head -c 300 out)"
run 0 launch -n 2 --servers 2 -- train $planned --plan gpipe.2.json --sync summation --json
grep -q 'servers have nothing to do: the plan has no replicas' err ||
  fail "idle servers: $(cat err)"
refused "'profile' has no use for them" launch -n 1 --servers 1 -- profile --model lenet5

# Servers are marked as such.
run 0 launch -n 2 --servers 1 -- train $common --strategy dp --sync summation --html page.html
[ "$(grep -c 'a server: it only adds gradients' out)" -eq 1 ] || fail "text: $(cat out)"
grep -q '^  rank 2 .*a server' out || fail "another rank is the server: $(cat out)"
grep -q 'The job had 3 ranks; the last one, a server, only added gradients' page.html ||
  fail "the page has no servers"
PENSTOCK_SERVERS=2 run 0 train $common --strategy gpipe --json
grep -q '^warning: PENSTOCK_SERVERS=2 has no effect' err || fail "no warning: $(cat err)"

PENSTOCK_SERVERS=2 run 0 launch -n 1 -- train $common --strategy gpipe --json
grep -q '^warning: PENSTOCK_SERVERS=2 has no effect: the ranks have --servers 0' err ||
  fail "no warning of launch: $(cat err)"

# Options that change nothing are named, once.
named() {  # OPTION WHY
  local words="warning: $1 has no effect: $2"
  [ "$(grep -cF -- "$words" err)" -eq 1 ] || fail "not once '$words': $(cat err)"
}
run 0 train $common --strategy serial --silence 2 --patience 2 --fabric tcp --lr-factor 0.5 \
  --shard-optimizer --optimizer adam --momentum 0.5 --sync ring --staleness 2
for option in --silence --patience '--fabric tcp'; do
  named "$option" 'this process is not a rank of a job of several'
done
named --lr-factor '--lr-schedule is constant, expected step'
named --momentum '--optimizer is adam, expected sgd'
for option in --shard-optimizer --sync --staleness; do
  named $option 'the plan has no replicas'
done
run 0 launch -n 2 -- train $planned --plan gpipe.2.json --sync-precision bfloat16
named --sync-precision 'the plan has no replicas'
run 0 launch -n 2 -- train $planned --plan dp.2.json --sync ordered --staleness 2
named --staleness "the plan's replicas wait for each other (--sync ordered)"
run 0 launch -n 2 -- train $planned --plan dp.2.json --silence 5 --patience 20 --fabric tcp
grep '^warning: .* has no effect' err && fail "options that have an effect: $(cat err)"

# Variables of two launchers that contradict each other are used in a known order, and said.
RANK=0 WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 run 0 train $common \
  --strategy serial
grep -q '^warning: RANK=0 and WORLD_SIZE=1 make this process rank 0 of 1; OMPI_COMM_WORLD_RANK=1' \
  err || fail "contradicting launchers: $(cat err)"

# Wrong usage is said once, whoever finds it.
run 2 launch -n 3 -- train $common --nonsense
[ "$(grep -c nonsense err)" -eq 1 ] || fail "usage: $(cat err)"
run 2 launch -n 3 -- train $common --strategy gpipe --checkpoint saved --lr-every 0
[ "$(grep -c -- --lr-every err)" -eq 1 ] || fail "usage: $(cat err)"
run 2 launch -n 3 -- train --model none --data synthetic
[ "$(grep -c "'none'" err)" -eq 1 ] || fail "an unknown model: $(cat err)"

# A rank that dies, or is interrupted alone, before all are connected ends the others at once.
early() {  # SIGNAL RANK
  "$PENSTOCK" launch -n 3 -- train $common --strategy gpipe --workers 3 >launch.out 2>launch.err &
  launcher=$!
  victim=
  for _ in $(seq 1000); do
    victim=$(rank_process $launcher $2)
    [ -n "$victim" ] && break
  done
  kill -$1 "$victim"
  begin=$SECONDS
  wait_within 60 $launcher
  [ $((SECONDS - begin)) -lt 15 ] || fail "SIG$1: $((SECONDS - begin)) s: $(cat launch.err)"
}
early KILL 2
[ "$code" -eq 137 ] || fail "a rank that died early: exit code $code: $(cat launch.err)"
grep -q 'another rank of the job has ended before all were connected' launch.err ||
  fail "a rank that died early: $(cat launch.err)"
early INT 1

# A plan for threads is none for ranks; servers without replicas have nothing to add.
penstock plan --profile profile.json --workers 3 --strategy gpipe -o threads.json >/dev/null 2>&1 ||
  fail "no plan for threads"
run 0 launch -n 3 -- train $planned --plan threads.json --steps 2
grep -q 'warning: the plan was made for workers that are threads of one process' err ||
  fail "a plan for threads: $(cat err)"

# A job that is resumed goes on with the plan of its checkpoint, with fewer ranks with another one.
rm -rf saved
run 0 launch -n 3 -- train $model --batch-size 32 --strategy gpipe --checkpoint saved --no-eval
first=$(ls saved | grep step | tail -n 1)
run 0 launch -n 3 -- train $model --batch-size 32 --strategy gpipe --checkpoint saved --no-eval \
  --epochs 2 --resume
grep -q "^plan: that of the checkpoint, saved/$first/plan.json" err ||
  fail "another plan: $(cat err)"
second=$(sed -n 1p saved/latest)
cmp -s "saved/$first/plan.json" "saved/$second/plan.json" || fail "the plan has changed"
run 0 launch -n 2 -- train $model --batch-size 32 --strategy gpipe --checkpoint saved --no-eval \
  --epochs 3 --resume --json
grep -q '^plan: made anew for --strategy gpipe --workers 2 .*--workers 3 ' err ||
  fail "the plan of more ranks: $(cat err)"
[ "$(numbers ranks)" = 2 ] || fail "ranks: $(head -c 300 out)"

# A profile of a wider model is none of this one.
penstock profile --model mlp --width 128 --batch-size 8 --samples 1 -o wide.json >/dev/null 2>&1
refused "the profile wide.json is of another 'mlp': its layer" train $planned --profile wide.json

# A rank waits for the others as long as it is told.
port=$((20000 + RANDOM % 20000))
RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
  run 3 train $common --patience 0.5
grep -q 'rank 1 of 2 did not come to .* within 0.5 s' err || fail "patience: $(cat err)"
refused '--patience must lie between' train $common --patience 0

# Ranks that are interrupted while they wait for each other end at once, and rank 0 says it.
for rank in 0 1; do
  port=$((20000 + RANDOM % 20000))
  RANK=$rank WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
    "$PENSTOCK" train $common --patience 300 --json >out.$rank 2>err.$rank &
  waiting[rank]=$!
done
sleep 3
for rank in 0 1; do
  kill -TERM ${waiting[rank]}
  wait_within 30 ${waiting[rank]}
  [ "$code" -eq 0 ] || fail "rank $rank, interrupted: exit code $code: $(cat err.$rank)"
  [ -s err.$rank ] && fail "rank $rank, interrupted: $(cat err.$rank)"
done
grep -q '"interrupted":true' out.0 || fail "rank 0: $(head -c 300 out.0)"

# The ranks must have the same command.
port=$((20000 + RANDOM % 20000))
export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port
RANK=0 "$PENSTOCK" train $common >first.out 2>first.err &
first=$!
RANK=1 run 2 profile --model mlp --width 64 --batch-size 8
wait_within 60 $first
[ "$code" -eq 2 ] || fail "rank 0 with another command: exit code $code: $(cat first.err)"
for text in err first.err; do
  grep -q 'must have the same command: rank 0 has train, rank 1 has profile$' $text ||
    fail "another command: $(cat $text)"
done
finish

# Schedules of every kind, simulated without a plan: unit costs, costs from the command line,
# refusals.
source "$(dirname "$0")/lib.sh"
source "$here/report_plans.sh"

[ -n "$(kinds)" ] || fail "the tool lists no kinds"
for kind in $(kinds); do
  case $kind in serial | dp | forward-only) continue ;; esac
  run 0 schedule --kind $kind --stages 4 --micro-batches 8 -o $kind.txt
  run 0 simulate --schedule $kind.txt --json
  json_keys makespan_ns idle_share throughput_samples_per_s peak_memory_bytes
  grep -q "\"strategy\":\"$kind\"" out || fail "$kind: the kind is not named: $(cat out)"
done

# makespan FILE OPTIONS...: leaves the nanoseconds in $ns.
makespan() {
  local file=$1
  shift
  run 0 simulate --schedule "$file" "$@" --json
  ns=$(sed 's/.*"makespan_ns":\([0-9]*\).*/\1/' out)
}

# (m + p - 1)(F + B), and a third of the bubble: Qi et al., ICLR 2024.
makespan gpipe.txt && [ "$ns" -eq 33000000 ] || fail "gpipe in unit time: $ns"
makespan zb-h1.txt && [ "$ns" -eq 27000000 ] || fail "zb-h1 in unit time: $ns"
makespan gpipe.txt --forward 2ms --backward 3ms && [ "$ns" -eq 55000000 ] ||
  fail "gpipe with --forward and --backward: $ns"
makespan gpipe.txt --forward 1ms,1ms,1ms,4ms --backward 0 && [ "$ns" -eq 35000000 ] ||
  fail "gpipe with a slow stage: $ns"
makespan gpipe.txt --latency 10us && [ "$ns" -eq 33060000 ] || fail "gpipe with latency: $ns"

printf '0F0,0B0\n1F0,1B0\n' >rows.csv
makespan rows.csv && [ "$ns" -eq 6000000 ] || fail "PyTorch's rows: $ns"
# A stage that recomputes keeps its inputs, also those from a stage on its own worker: stages 1 and
# 2 are worker 1's.
run 0 schedule --kind zb-v --stages 4 --micro-batches 1 --recompute all -o again.txt
run 0 simulate --schedule again.txt --message-bytes 1MB --json
grep -qF '"peak_memory_bytes_per_worker":[1000000,2000000]' out || fail "kept inputs: $(cat out)"
run 0 simulate --schedule zb-v.txt --grid
grep -q '^w1 ' out || fail "no grid: $(cat out)"

# F and B that run together take what --overlap says.
makespan dualpipe.txt && [ "$ns" -eq 26000000 ] || fail "dualpipe in unit time: $ns"
makespan dualpipe.txt --overlap 1 && [ "$ns" -eq 22000000 ] || fail "dualpipe, all hidden: $ns"
refused '--overlap must lie between 0 and 1, found 1.5' simulate --schedule dualpipe.txt \
  --overlap 1.5
refused '--overlap' simulate --schedule dualpipe.txt --overlap nan

refused '--plan or --schedule' simulate
refused '2 values, expected one or one for each of the 4 stages' simulate --schedule gpipe.txt \
  --forward 1ms,2ms
refused 'is not the sum' simulate --schedule gpipe.txt --backward 1ms --backward-input 2ms
refused '--forward' simulate --schedule gpipe.txt --forward fast
refused '--forward' simulate --schedule gpipe.txt --forward 1ms,,1ms,1ms
refused '292 years' simulate --schedule gpipe.txt --forward 1000000h --backward 1000000h
refused 'leave out --mini-batches' simulate --schedule gpipe.txt --mini-batches 5
refused 'at least 0' simulate --schedule gpipe.txt --credits -2
refused 'needs --plan' simulate --schedule gpipe.txt --html page.html
refused 'not sound with 0 credit' simulate --schedule 1f1b-flush.txt --credits 0

# A schedule is judged by the credits that it is simulated with: any number, unless --credits says
# otherwise.
run 0 schedule --kind eager-1f1b --stages 4 --micro-batches 16 --slack 4 -o slack.txt
run 0 simulate --schedule slack.txt
run 0 simulate --schedule slack.txt --credits 3
refused 'not sound with 1 credit' simulate --schedule slack.txt --credits 1
grep -q 'it needs 3' err || fail "the message does not say how many credits are needed: $(cat err)"

# With a plan: the configuration of its file; a schedule of compute actions, or PyTorch's rows, gets
# the messages of the plan's links.
make_plan 8 8 zb-v flush 0,1,2,3,3,2,1,0 >v.json
run 0 simulate --plan v.json --mini-batches 1 --json
grep -q '"config":"4x2 chunks"' out ||
  fail "simulate names another configuration than the plan: $(cat out)"
grep -o '"actions":[0-9]*' out >planned
run 0 schedule --plan v.json --compute-only -o rows.txt
run 0 schedule --plan v.json --compute-only --format pytorch -o rows.csv
for file in rows.txt rows.csv; do
  run 0 simulate --plan v.json --schedule "$file" --json
  grep -q '"config":"4x2 chunks"' out ||
    fail "$file: another configuration than the plan: $(cat out)"
  grep -o '"actions":[0-9]*' out | cmp -s - planned ||
    fail "$file: not as many actions as the plan: $(cat out)"
done
refused 'has 4 stages, the plan 8' simulate --plan v.json --schedule gpipe.txt

# More workers than a page draws: said before anything is simulated or written.
make_plan 1 5000 dp flush |
  sed 's/"replicas": 1,/"replicas": 5000,/; s/"count": 1,/"count": 5000,/' >wide.json
run 0 simulate --plan wide.json --mini-batches 1
refused 'at most 4096 workers, this run has 5000' simulate --plan wide.json --mini-batches 1 \
  --trace trace.json --html page.html
[ ! -e trace.json ] && [ ! -e page.html ] || fail "a refused simulation left a file"

# Coded messages over a slow link: smaller, and the plan says so.
run 0 profile --model mlp --width 64 --depth 3 --input 16 --classes 4 --batch-size 8 --analytic \
  --device cpu-core -o mlp.json
run 0 plan --profile mlp.json --workers 2 --bandwidth 10Mbps --strategy 1f1b-flush --straight \
  --boundary int8 -o coded.json
grep -q '"coding": "int8"' coded.json || fail "the plan's link has no coding"
grep -q 'messages in int8' out || fail "the table does not name the coding: $(cat out)"
makespan_of_plan() {
  run 0 simulate --plan coded.json "$@" --json
  ns=$(sed 's/.*"makespan_ns":\([0-9]*\).*/\1/' out)
}
makespan_of_plan
coded=$ns
makespan_of_plan --boundary bfloat16
half=$ns
makespan_of_plan --boundary float32
[ "$coded" -lt "$half" ] && [ "$half" -lt "$ns" ] ||
  fail "int8 $coded, bfloat16 $half, float32 $ns ns"
refused 'expected one of float32, bfloat16' simulate --plan coded.json --boundary int4
refused 'it needs --plan' simulate --schedule gpipe.txt --boundary int8
finish

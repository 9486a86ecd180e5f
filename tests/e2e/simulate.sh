# Schedules of every kind, simulated without a plan: unit costs, costs from the command line, refusals.
source "$(dirname "$0")/lib.sh"

for kind in gpipe 1f1b 1f1b-flush 2bw eager-1f1b interleaved zb-h1 zb-h2 zb-v dualpipe-v chimera; do
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
makespan gpipe.txt --forward 2ms --backward 3ms && [ "$ns" -eq 55000000 ] || fail "gpipe with --forward and --backward: $ns"
makespan gpipe.txt --forward 1ms,1ms,1ms,4ms --backward 0 && [ "$ns" -eq 35000000 ] || fail "gpipe with a slow stage: $ns"
makespan gpipe.txt --latency 10us && [ "$ns" -eq 33060000 ] || fail "gpipe with latency: $ns"

printf '0F0,0B0\n1F0,1B0\n' >rows.csv
makespan rows.csv && [ "$ns" -eq 6000000 ] || fail "PyTorch's rows: $ns"
run 0 simulate --schedule zb-v.txt --grid
grep -q '^w1 ' out || fail "no grid: $(cat out)"

# refused PATTERN OPTIONS...
refused() {
  local pattern=$1
  shift
  run 2 simulate "$@"
  grep -q -- "$pattern" err || fail "simulate $*: expected '$pattern', found: $(cat err)"
}
refused '--plan or --schedule'
refused '2 values, expected one or one for each of the 4 stages' --schedule gpipe.txt --forward 1ms,2ms
refused 'is not the sum' --schedule gpipe.txt --backward 1ms --backward-input 2ms
refused '--forward' --schedule gpipe.txt --forward fast
refused '--forward' --schedule gpipe.txt --forward 1ms,,1ms,1ms
refused 'at least 0' --schedule gpipe.txt --credits -2
refused 'needs --plan' --schedule gpipe.txt --html page.html
refused 'deadlocks with 0 credits' --schedule 1f1b-flush.txt --credits 0
finish

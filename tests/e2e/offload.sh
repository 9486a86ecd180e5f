# Activations that move to the memory of the host: plans choose it instead of recomputing, schedules
# have it, are verified and simulated; a run on the CPU has the same results and says that nothing
# moves.
source "$(dirname "$0")/lib.sh"
# An estimate: in a measured one a view might be a stage of its own, which keeps nothing.
run 0 profile --model lenet5 --batch-size 8 --analytic --device cpu-core -o p.json
cluster() {  # FILE HOST_BANDWIDTH
  printf '[[level]]\ncount = 4\nbandwidth = "10GB/s"\n[device]\nname = "gpu"\n' >"$1"
  echo "host_bandwidth = $2" >>"$1"
}
cluster fast.toml '"50GB/s"'
cluster slow.toml '"1MB/s"'
plan="plan --profile p.json --strategy 1f1b-flush --straight --micro-batches 8"

# Nothing moves without need.
run 0 $plan --cluster fast.toml -o free.json
grep -q '"offload"' free.json && fail "moves without need: $(cat err)"
run 0 $plan --cluster slow.toml -o slow.json
grep -q '"offload"' slow.json && fail "moves over a slow link: $(cat err)"

# What is asked for is done, and shown.
run 0 $plan --cluster fast.toml --offload always -o plan.json
[ "$(grep -o '"offload": *true' plan.json | wc -l)" -eq 4 ] || fail "not all stages move"
run 0 $plan --cluster fast.toml --offload always
grep -q 'offloads' out || fail "the table does not say it: $(cat out)"
grep -q '4 of 4 stages move activations to the memory of the host and back' out ||
  fail "no note: $(cat out)"
run 0 schedule --plan plan.json --micro-batches 8 -o s.txt
grep -q '^# offload: 0 1 2 3' s.txt || fail "the schedule does not say it: $(head -n 9 s.txt)"
grep -q '0OFFLOAD0,.*0LOAD0,.*0B0' s.txt || fail "no moves: $(tail -n 4 s.txt)"
run 0 verify s.txt
run 0 simulate --plan plan.json
run 0 simulate --schedule s.txt --move 5ms --stash-bytes 1MB --trace trace.json
grep -q 'OFFLOAD' trace.json || fail "the trace has no moves: $(head -c 300 trace.json)"
sed 's/,0LOAD0//' s.txt >broken.txt
run 1 verify broken.txt
grep -q '0LOAD0: is missing' out || fail "a missing LOAD: $(cat out)"

# On the CPU.
run 0 train --model lenet5 --data synthetic --train-samples 64 --batch-size 32 --plan plan.json \
  --check-against-serial --check-steps 2
grep -q 'warning: the plan moves activations to the memory of the host, where this' err ||
  fail "no warning: $(cat err)"
grep -q 'bit for bit equal, and so are all weights' out || fail "other results: $(cat out)"

refused "'host_bandwidth' of [device]" $plan --workers 4 --bandwidth 10GB/s --offload always
refused 'expected never, always or auto' $plan --cluster fast.toml --offload perhaps
refused 'one of the two choices' $plan --cluster fast.toml --offload always --recompute always
cluster bad.toml '"-1GB/s"'
refused 'bad.toml:6' $plan --cluster bad.toml
refused "--offload expects 'all' or stage numbers from 0 to 3" schedule --kind gpipe --offload 4
refused 'stage 1 recomputes, so it has no activations to move' \
  schedule --kind gpipe --recompute 1 --offload all
finish

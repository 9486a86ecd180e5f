# penstock plan: tables, comparison, what-if, pictures, pricing, and what it says to bad options.
# Needs no libtorch.
source "$(dirname "$0")/lib.sh"

# Six layers: convolutions that compute, dense layers that weigh.
node() {
  printf '%s -- %s -- forward_compute_time=%s, backward_compute_time=%s' "${@:1:4}"
  printf ', activation_size=%s, parameter_size=%s\n' "${@:5}"
}
{
  node node1 'Input0' 0 0 1000000 0
  node node2 'Conv2d(3, 64)' 20 40 8000000 200000
  node node3 'Conv2d(64, 64)' 30 60 4000000 400000
  node node4 'Conv2d(64, 128)' 30 60 2000000 800000
  node node5 'Linear(4096, 4096)' 3 6 500000 200000000
  node node6 'Linear(4096, 1000)' 1 2 4000 60000000
  for k in 1 2 3 4 5; do printf '\tnode%d -- node%d\n' "$k" $((k + 1)); done
} >net.graph.txt
cat >cluster.toml <<'END'
[[level]]
name = "server"
count = 4
bandwidth = "12GB/s"
latency = "5us"
[[level]]
name = "rack"
count = 2
bandwidth = "10Gbps"
latency = "20us"
[device]
name = "v100"
memory = "16GB"
END
plan="plan --profile net.graph.txt --cluster cluster.toml"

run 0 $plan --json -o plan.json
json_keys config throughput_samples_per_s bottleneck_ns depth stages alternatives layers replicas \
  compute_ns sync_ns memory_bytes first_worker
json_keys search searched_s found_after_s improvements after_s
grep -q '"search"' plan.json && fail "the plan depends on a clock"
run 0 $plan
grep -Eq '^found after [0-9.]+ s of [0-9.]+ s searched$' err ||
  fail "no time of the search: $(cat err)"
for words in 'per micro-batch' 'of limit' 'compute' 'server 0' 'slowest part:' \
  'memory limit 16.0 GB' 'against this plan'; do
  grep -q "$words" out || fail "the table lacks '$words': $(cat out)"
done
[ "$(awk '{ if (length($0) > most) most = length($0) } END { print most }' out)" -le 120 ] ||
  fail "the table is wider than 120 columns"

run 0 $plan --compare
for family in serial dp mp gpipe 1f1b 1f1b-flush 2bw; do
  grep -Eq "^[* ] +$family " out || fail "the comparison lacks $family: $(cat out)"
done
[ "$(grep -c '^\*' out)" -eq 1 ] || fail "not exactly one winner is marked: $(cat out)"
grep -Eq 'next best|as fast|is this plan' out || fail "the winner has no reason: $(cat out)"

run 0 $plan --what-if --json -o whatif.json
json_keys what_if change feasible speedup
run 0 $plan --what-if
for change in 'one more server' 'one server fewer' 'twice the bandwidth of level rack' \
  'half the memory (8.00 GB per worker)' 'every worker twice as fast'; do
  grep -qF "$change" out || fail "what-if lacks '$change': $(cat out)"
done
run 0 simulate --plan whatif.json --json

run 0 $plan --html plan.html --what-if --compare
for part in 'Strategies' 'What if' 'Stages' 'Notes' '</html>'; do
  grep -q "$part" plan.html || fail "the page lacks $part"
done
grep -Eq ' href=| src=' plan.html && fail "the page needs more than itself"
grep -q '<div id="bars">' plan.html || fail "the page has no bars"
grep -q 'prefers-color-scheme' plan.html || fail "the page has no dark style"

# Every model has a plan; one found under another model and priced under sosp2019 is never better
# than sosp2019's own.
run 0 $plan --cost-model sosp2019 --json -o best.json
best=$(numbers bottleneck_ns)
for model in penstock sosp2019 released report2018; do
  run 0 $plan --cost-model $model --json -o $model.json
  grep -q "\"cost_model\":\"$model\"" out || fail "$model is not named in the plan"
  run 0 plan --profile net.graph.txt --price $model.json --cost-model sosp2019 --json
  [ "$(numbers bottleneck_ns)" -ge "$best" ] ||
    fail "the plan of $model takes $(numbers bottleneck_ns) ns under sosp2019, its own best $best"
done
for method in ring parameter-server summation asynchronous hierarchical; do
  run 0 $plan --sync $method --strategy dp --json
done
links="plan --profile net.graph.txt --workers 2 --bandwidth 100Mbps --strategy dp"
for precision in float32 bfloat16 float16; do
  run 0 $links --sync-precision $precision --json -o $precision.json
  numbers sync_ns | sort -n | tail -n 1 >$precision.ns
  grep -q "\"sync_precision\": \"$precision\"" $precision.json || fail "the plan lacks $precision"
  run 0 $links --sync-precision $precision --html $precision.html
  [ $precision = float32 ] && continue
  grep -q "gradients by ordered in $precision" out $precision.html ||
    fail "the plan card lacks $precision: $(cat out)"
  grep -q "ways to add gradients (--sync) in $precision" out || fail "prices: $(cat out)"
  [ $((2 * $(cat $precision.ns))) -lt $((11 * $(cat float32.ns) / 10)) ] ||
    fail "$precision takes $(cat $precision.ns) ns, float32 $(cat float32.ns)"
done
# Machines that are described inside: the table says how their devices add.
cp cluster.toml pcie.toml
cat >>pcie.toml <<'END'
[machine]
switches = 2
device_bandwidth = "13GB/s"
switch_bandwidth = "13GB/s"
cross_bandwidth = "10GB/s"
END
inside="plan --profile net.graph.txt --cluster pcie.toml --strategy dp"
run 0 $inside --sync auto
grep -q 'hierarchical \*' out || fail "machines are not added inside first: $(cat out)"
grep -q 'hierarchical inside a machine: under each PCIe switch, then by the CPU' out ||
  fail "the way inside a machine is not named: $(cat out)"
run 0 $inside --sync hierarchical --json -o inside.json
grep -q '"inside_machine":{[^}]*"way":"cpu-assisted"' out || fail "no way in JSON: $(cat out)"
run 0 plan --profile net.graph.txt --price inside.json --json
grep -q '"switches":2' out || fail "the plan's own cluster has no inside: $(cat out)"
run 0 simulate --plan inside.json --json
sed -i 's/switches = 2/switches = 3/' pcie.toml
refused 'divides its 4 devices, found 3' $inside
for choice in never always auto; do run 0 $plan --recompute $choice --json; done
[ -n "$(strategies)" ] || fail "the tool lists no strategies"
for kind in $(strategies); do
  run 0 $plan --strategy $kind --json -o $kind.json
  case $kind in hybrid) expected=1f1b-flush ;; *) expected=$kind ;; esac
  grep -q "\"strategy\":\"$expected\"" out || fail "--strategy $kind gives another plan"
  run 0 plan --profile net.graph.txt --price $kind.json --json
  run 0 simulate --plan $kind.json --json
done
run 0 $plan --strategy interleaved --chunks 2 --micro-batches 8 --json
run 0 $plan --strategy eager-1f1b --slack 3 --json
grep -q '"slack":3' out || fail "--slack 3 is not in the plan: $(cat out)"
run 0 $plan --strategy 1f1b-flush --gradient-groups 12 --micro-batches 24 --json
run 0 $plan --all-workers --json
run 0 $plan --optimizer adam --mini-batch 64 --json
grep -q '"optimizer_state_per_weight":2' out || fail "adam's state is not in the plan: $(cat out)"

# The machines that somebody has.
cat >hosts.toml <<'END'
[network]
bandwidth = "1Gbps"
[[machine]]
name = "desk"
device = "v100"
count = 2
[[machine]]
name = "laptop"
device = "t4"
memory = "8GB"
END
run 0 plan --profile net.graph.txt --machines hosts.toml --time-limit 1s
for words in '2 x desk (v100, 16.0 GB); laptop (t4, 8.00 GB); network 1 Gbps' 'the model fits' \
  'one more desk' 'one more laptop' 'a network of 10Gbps' '^  DDP ' '^  FSDP ' \
  'tensor parallel: no layer of the model is known to be divisible'; do
  grep -q -- "$words" out || fail "the answer for machines lacks '$words': $(cat out)"
done
run 0 plan --profile net.graph.txt --machines hosts.toml --time-limit 1s --json -o hosts.json
json_keys machines fits what_would_help other_ways low_samples_per_s wire_ns
run 0 simulate --plan hosts.json --json
# 260 MB of weights, their gradients and state do not fit into 300 MB.
sed -e 's/^count = 2/count = 2\nmemory = "300MB"/' -e 's/8GB/300MB/' hosts.toml >small.toml
run 1 plan --profile net.graph.txt --machines small.toml --strategy dp --time-limit 1s
for words in 'the model does not fit: ' 'does not fit' 'desk has 300 MB'; do
  grep -q "$words" out || fail "the answer 'no' for machines lacks '$words': $(cat out)"
done
run 1 plan --profile net.graph.txt --machines small.toml --strategy dp --time-limit 1s --json
json_keys ok reason machines what_would_help
run 1 plan --profile net.graph.txt --machines hosts.toml --memory-limit 300MB --strategy dp
grep -q 'DDP .*desk has 300 MB' out || fail "--memory-limit does not hold for DDP: $(cat out)"
refused 'cannot be combined with' plan --profile net.graph.txt --machines hosts.toml --workers 2
refused 'expected one of them' plan --profile net.graph.txt --model mlp --machines hosts.toml
refused 'is missing' plan --model mlp --workers 2
refused 'estimates know the numbers' plan --model mlp --machines hosts.toml --precision bfloat16
refused 'is missing' plan --model mlp --machines hosts.toml --price plan.json
cp hosts.toml model.pt2
refused 'would overwrite the file of --model' plan --model model.pt2 --machines hosts.toml \
  -o model.pt2
refused 'expected --model with it' $plan --width 64
refused 'expected --profile FILE' plan --machines hosts.toml
printf '[[machine]]\ndevice = "v100"\ncount = 2\n' >alone.toml
refused 'alone.toml:1: expected a [network]' plan --profile net.graph.txt --machines alone.toml

# A "no" is exit 1 with the reason; bad options are exit 2 with one message.
run 1 $plan --memory-limit 1MB --json
grep -q '"ok":false' out && grep -q 'no plan:' err ||
  fail "an infeasible request gives no reason: $(cat err)"
refused '--cluster FILE' plan --profile net.graph.txt
refused 'found --workers 0' plan --profile net.graph.txt --workers 0 --bandwidth 1GB/s
refused 'at most 1000000' plan --profile net.graph.txt --workers 1000001 --bandwidth 1GB/s
refused 'cannot be combined with' $plan --workers 2
refused '--bandwidth' plan --profile net.graph.txt --workers 2
run 0 plan --profile net.graph.txt --workers 2 --bandwidth 10
grep -q 'warning: --bandwidth 10 is 10 B per second' err ||
  fail "no warning of a bandwidth without a unit: $(cat err)"
run 1 plan --profile net.graph.txt --workers 2 --bandwidth 1GB/s --memory-limit 16
grep -q 'warning: --memory-limit 16 is 16 B' err ||
  fail "no warning of a limit without a unit: $(cat err)"
refused "unknown strategy 'nope'" $plan --strategy nope
refused 'expected' $plan --cost-model nope
refused "--sync: unknown gradient synchronisation 'nope', expected one of auto, ordered" $plan \
  --sync nope
for sync in ordered ring parameter-server summation asynchronous hierarchical; do
  run 0 $plan --strategy dp --sync $sync
  grep -q "^  $sync \* " out || fail "--sync $sync is not among the methods: $(cat out)"
done
# Published profiles do not say how many samples a micro-batch has: samples are samples then.
run 0 $plan --strategy dp --json
numbers throughput_samples_per_s | head -n 1 >micro-batches
run 0 $plan --strategy dp --batch-size 32 --json -o sized.json
numbers throughput_samples_per_s | head -n 1 >samples
awk 'NR == FNR { one = $1; next } { exit !($1 / one > 31.9 && $1 / one < 32.1) }' \
  micro-batches samples || fail "32 samples a micro-batch: $(cat micro-batches samples)"
grep -q '"micro_batch_size": 32' sized.json || fail "the plan does not know its samples"
refused 'batch-size' $plan --batch-size 0
refused 'one of float32, bfloat16, float16' $plan --sync-precision nope
refused 'changes of weights' $plan --sync asynchronous --sync-precision bfloat16
refused 'cannot be combined with --sync-precision' $plan --price plan.json --sync-precision float16
refused 'expected' $plan --recompute nope
refused 'expected sgd, adam, adamw' $plan --optimizer nope
refused "the optimiser adam has no 'alpha'; it has beta1" $plan --optimizer adam,alpha=0.5
refused 'lamb needs whole weights' $plan --optimizer lamb --shard-optimizer always
refused 'mini-batch' $plan --mini-batch -1
refused 'chunks must lie between 2 and' $plan --strategy interleaved --chunks 0
refused 'chunks must lie between 2 and' $plan --strategy interleaved --chunks 1
refused 'only strategy interleaved' $plan --strategy zb-v --chunks 3
refused 'slack must lie between 0 and' $plan --strategy eager-1f1b --slack -1
refused 'expected gradient groups' $plan --gradient-groups -1
refused 'only strategy eager-1f1b' $plan --strategy 1f1b --slack 1
refused '--time-limit' $plan --time-limit soon
refused '--memory-budget' $plan --memory-budget much
run 1 $plan --memory-budget 100
grep -q 'none was found within a memory budget of 100 B' err || fail "no budget: $(cat err)"
refused 'expected two files' $plan --html same -o same
refused 'expected two files' $plan --html same -o ./same
refused 'expected two files' $plan --html other/../same -o "$(pwd -P)/same"
[ ! -e same ] || fail "a refused plan left a page"
cp net.graph.txt kept.txt
ln -s kept.txt link.txt
for output in kept.txt ./kept.txt link.txt; do
  refused "would overwrite the file of --profile" plan --profile kept.txt --workers 2 -o $output
done
cmp -s net.graph.txt kept.txt || fail "a profile was overwritten"
refused "--time-limit expected at least 1 ms, such as 10s or 2min, or 0 for none, found '5'" \
  $plan --time-limit 5
refused '--html expected a file name' $plan --html -
refused 'cannot be combined with --compare' $plan --price plan.json --compare
refused 'net.graph.txt' $plan --price net.graph.txt
# Bytes that are no UTF-8, or steer a terminal, are not handed on; others are.
refused "unknown strategy 'caf??'" $plan --strategy "$(printf 'caf\351\377')"
refused "unknown strategy 'café'" $plan --strategy "$(printf 'caf\303\251')"
refused 'caf?' "$(printf 'caf\351')"
# What torch.distributed.pipelining needs, which cuts before submodules only.
models=$here/../data/imported
if [ -e "$(dirname "$PENSTOCK")/penstock-train" ]; then
  run 0 profile --model "$models/tokens.pt2" --batch-size 4 --samples 1 -o tokens.json
  tokens="plan --profile tokens.json --workers 2 --straight"
  run 0 $tokens --strategy gpipe --micro-batches 4 --format pytorch -o split.json
  grep -q 'for torch.distributed.pipelining' out || fail "no table for PyTorch: $(cat out)"
  grep -q '"split_spec"' split.json || fail "no split for PyTorch: $(cat split.json)"
  [ "$(grep -c '^[01]F0,' split.csv)" -eq 2 ] || fail "no schedule for PyTorch: $(cat split.csv)"
  module=$(sed -n 's/.*"split_spec": *{ *"\([^"]*\)".*/\1/p' <(tr -d '\n' <split.json))
  run 0 $tokens --strategy gpipe --format pytorch --cut-at "$module" -o split.json
  grep -q "cut before modules that fit '$module'" out || fail "no price of a pattern: $(cat out)"
  run 1 $tokens --strategy gpipe --format pytorch --cut-at 'none.*' -o split.json
  grep -q "0 such places" err || fail "a pattern that fits nothing: $(cat err)"
  refused 'expected --format pytorch' $tokens --cut-at "$module"
  refused 'give --output' $tokens --strategy gpipe --format pytorch
  run 1 $tokens --strategy 1f1b --format pytorch -o split.json
  grep -q 'synchronous schedules only' err || fail "a plan that PyTorch does not run: $(cat err)"
  refused 'expected --output FILE.json' $tokens --strategy gpipe --format pytorch -o split.csv
fi
run 0 plan --help
for option in --cost-model --sync --sync-precision --recompute --optimizer --mini-batch \
  --compare --what-if --price --html --time-limit --memory-budget --batch-size --cut-at; do
  grep -qF -- "$option" out || fail "the help lacks $option"
done
finish

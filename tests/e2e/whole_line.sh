# models, profile, plan, schedule, verify, simulate and train after each other, as a newcomer would
# type them.
source "$(dirname "$0")/lib.sh"

run 0 models --json
json_keys models
grep -q '"lenet5"' out || fail "lenet5 is not in the list of models"

run 0 profile --model lenet5 --batch-size 16 --samples 2 --json -o lenet5.profile.json
json_keys layers batch_size
run 0 plan --profile lenet5.profile.json --workers 2 --straight --strategy 1f1b --json -o plan.json
json_keys config throughput_samples_per_s bottleneck_ns depth stages alternatives layers replicas \
  compute_ns sync_ns memory_bytes
grep -q '"config":"1-1"' out || fail "a straight plan for two workers is not 1-1"

run 0 schedule --plan plan.json -o s.txt --json
json_keys actions text
run 0 verify s.txt --json
json_keys ok violations min_credits
grep -q '"ok":true' out || fail "the plan's schedule is not sound"

printf '%s\n' '# penstock schedule 1' '# replicas: 1 1' \
  '# micro-batches: 1  accumulate: 1  weights: flush' \
  '0RECV_B0,0F0@0,0SEND_F0,0B0@0,0FREE0@0,0STEP0@0' \
  '1RECV_F0,1F0@0,1B0@0,1SEND_B0,1FREE0@0,1STEP0@0' >deadlock.txt
run 1 verify deadlock.txt --json
grep -q '"ok":false.*"rule":"deadlock"' out || fail "the deadlock is not named: $(cat out)"

run 0 simulate --plan plan.json --trace predicted.json --json
json_keys makespan_ns idle_share throughput_samples_per_s peak_memory_bytes
grep -q traceEvents predicted.json || fail "the predicted trace is empty"

data=synthetic
[ -e /usr/share/datasets/fashion-mnist ] && data=fashion-mnist
run 0 train --model lenet5 --data $data --train-samples 640 --test-samples 128 --plan plan.json \
  --trace measured.json --json
json_keys losses final_loss final_loss_first_step final_loss_last_step test_accuracy \
  throughput_samples_per_s predicted_throughput_samples_per_s idle_share peak_memory_bytes \
  prediction_low_samples_per_s prediction_high_samples_per_s
[ "$(numbers losses | wc -l)" -eq 40 ] ||
  fail "640 samples in mini-batches of 16 gave $(numbers losses | wc -l) losses"
grep -q traceEvents measured.json || fail "the measured trace is empty"

run 0 train --model lenet5 --data synthetic --train-samples 128 --strategy auto --workers 2
grep -q 'measured / predicted' out ||
  fail "prediction and measurement are not shown beside each other"
# A profile whose mean is known has an interval; plan, simulate and train show it, and it is around
# the prediction.
run 0 profile --model lenet5 --batch-size 16 --samples 20 -o known.json
run 0 plan --profile known.json --workers 2 --strategy 1f1b -o known.plan.json
grep -qE '^predicted [0-9.,]+ samples/s, [0-9,.]+ to [0-9,.]+' out || fail "no interval: $(cat out)"
run 0 simulate --plan known.plan.json --mini-batches 50 --json
for command in simulate train; do
  low=throughput_low_samples_per_s high=throughput_high_samples_per_s
  predicted=throughput_samples_per_s
  if [ $command = train ]; then
    run 0 train --model lenet5 --data synthetic --train-samples 640 --no-eval \
      --plan known.plan.json --json --history known.history.json --html known.html
    low=prediction_low_samples_per_s high=prediction_high_samples_per_s
    predicted=predicted_throughput_samples_per_s
    grep -q "\"$low\"" known.history.json || fail "the history has no interval"
    # Of what the process held when it was largest, nearly all has a name. A sanitizer's allocator
    # does not say what it holds.
    sanitized ||
      awk -v share="$(numbers named_share)" 'BEGIN { exit !(share > 0.95 && share < 1.05) }' ||
      fail "the account of memory names $(numbers named_share) of the peak"
    grep -q '"measured":{[^}]*"weights":[1-9]' known.history.json ||
      fail "the history does not say what workers' memory consisted of"
    grep -q '<h2>Memory at its peak</h2>' known.html || fail "the page has no bars of memory"
  fi
  awk -v low="$(numbers $low)" -v at="$(numbers $predicted)" -v high="$(numbers $high)" '
    BEGIN { exit !(0 < low && low < at && at < high) }' ||
    fail "$command: $(numbers $low) to $(numbers $high) around $(numbers $predicted)"
done
run 0 train --model lenet5 --data synthetic --train-samples 640 --no-eval \
  --plan known.plan.json
where='the run lay (within|below|above)'
grep -qE "predicted [0-9,.]+ samples/s, [0-9,.]+ to [0-9,.]+: $where" out ||
  fail "the summary does not say where the run lay: $(cat out)"
# Without a measured error there is none.
run 0 simulate --plan plan.json --stragglers 50%x2 --json
grep -q '"throughput_low_samples_per_s":null' out || fail "an interval for stragglers: $(cat out)"

run 0 train --help
run 0 --version
finish

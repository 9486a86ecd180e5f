# Plans for another step than they were made for: what train shows before the run is the prediction
# of that run.
source "$(dirname "$0")/lib.sh"
make_profile
lenet="--model lenet5 --data synthetic --train-samples 64 --no-eval"

# memory: of the first stage, in the table on standard error.
memory() { grep -m 1 '^ *0  ' err | grep -oE '[0-9.]+ [kMG]?B' | head -n 1; }
# predicted: samples/s of the table on standard error.
predicted() { sed -n 's/^predicted \([0-9.,]*\) samples.*/\1/p' err | tr -d ,; }

# A profile of 8 samples, a step of 64: throughput, memory and notes are those of 64.
run 0 train $lenet --profile p.json --strategy serial --batch-size 8 --json
small=$(memory)
run 0 train $lenet --profile p.json --strategy serial --batch-size 64 --json
grep -q 'p.json has micro-batches of 8 samples' err || fail "nothing on the scale: $(cat err)"
grep -q '1 micro-batch of 64 samples per step' err || fail "the step is not 64 samples: $(cat err)"
[ "$small" != "$(memory)" ] || fail "64 samples take as much memory as 8: $small"
shown=$(predicted)
numbers predicted_throughput_samples_per_s | awk -v shown="$shown" '
  { if ($1 < 0.9 * shown || $1 > 1.1 * shown) exit 1 }' ||
  fail "$shown samples/s are shown, $(numbers predicted_throughput_samples_per_s) are predicted"

# A plan of 8 samples, the same.
run 0 plan --profile p.json --workers 2 --strategy 1f1b --straight -o plan.json
run 0 train $lenet --plan plan.json --json
small=$(memory)
run 0 train $lenet --plan plan.json --batch-size 32 --json
grep -q 'Made for micro-batches of 8 samples' err || fail "nothing on the scale: $(cat err)"
[ "$small" != "$(memory)" ] || fail "32 samples take as much memory as 8: $small"

# A step has no more micro-batches than samples; the bar ends at --steps.
run 0 train $lenet --profile p.json --strategy gpipe --workers 2 --batch-size 3 --micro-batches 4 \
  --steps 2
grep -q -- '--micro-batches 4: a step of 3 samples has 3 micro-batches' err ||
  fail "four micro-batches of three samples: $(cat err)"
grep -q '3 micro-batches of 1 sample per step' err || fail "the table: $(cat err)"
grep -q 'epoch 1/1 \[#*\] 2/2 ' err || fail "the bar does not end at two steps: $(cat err)"
grep -q 'ETA' err && fail "a finished run has an ETA: $(cat err)"

# Measured twice with a word why, and the alternatives are of the second time.
run 0 train --model mlp --width 64 --data synthetic --train-samples 640 --no-eval --strategy dp \
  --workers 2 --batch-size 64 --micro-batches 2
[ "$(grep -c '^profiling mlp' err)" -le 1 ] || fail "profiled twice: $(cat err)"
run 0 train --model mlp --width 64 --data synthetic --train-samples 640 --no-eval --workers 2
# Two workers are expected to have a micro-batch each; one alone takes all samples at once.
if grep -q 'measuring again' err; then
  grep -q 'measuring again with micro-batches of 64 samples' err || fail "the reason: $(cat err)"
  grep -q '1 micro-batch of 64 samples per step' err || fail "the step: $(cat err)"
else
  grep -q '2 micro-batches of 32 samples per step' err || fail "the step: $(cat err)"
fi

# A signal that comes while the program loads, reads, profiles or plans ends it in order, too.
ready() {  # ready PID: it is the program, and holds or handles SIGINT and SIGTERM
  local masks
  # The shell holds them too, for a moment, before it becomes the program.
  grep -q '^penstock' "/proc/$1/comm" 2>/dev/null || return 1
  masks=$(sed -n 's/^Sig\(Blk\|Cgt\):[[:space:]]*//p' "/proc/$1/status" 2>/dev/null) || return 1
  local all=0 mask
  for mask in $masks; do all=$((all | 0x${mask: -8})); done
  [ $((all & 0x4002)) -eq $((0x4002)) ]
}
for signal in INT TERM; do
  for delay in 0 0.05 0.5; do
    rm -rf early
    (trap - INT; exec "$PENSTOCK" train --model lenet5 --data synthetic --train-samples 6400 \
      --epochs 1000 --workers 2 --checkpoint early --json >out 2>err) &
    pid=$!
    for _ in $(seq 1000); do
      ready $pid && break
      sleep 0.01
    done
    sleep $delay
    kill -$signal $pid
    wait $pid
    code=$?
    [ $code -eq 0 ] && grep -q '"interrupted":true' out ||
      fail "SIG$signal after $delay s: exit code $code: $(tail -n 2 err) $(head -c 200 out)"
  done
done
# What was saved before there was a plan does not hold the run to one that nobody made.
rm -rf early
(trap - INT; exec "$PENSTOCK" train --model lenet5 --data synthetic --train-samples 128 \
  --strategy dp --workers 2 --checkpoint early --json >out 2>err) &
pid=$!
for _ in $(seq 1000); do
  ready $pid && break
  sleep 0.01
done
kill -INT $pid
wait $pid
run 0 train --model lenet5 --data synthetic --train-samples 128 --strategy dp --workers 2 \
  --checkpoint early --resume --no-eval --json
grep -q '"strategy":"dp"' out || fail "resumed with another plan: $(head -c 100 out)"

# Interrupted without a folder, nothing is saved; a comparison has no answer.
for check in '' '--check-against-serial --check-steps 1000000'; do
  rm -f err  # the words waited for below are in that of the run before, too
  (trap - INT; exec "$PENSTOCK" train $lenet --profile p.json --strategy serial --epochs 1000000 \
    $check >out 2>err) &
  pid=$!
  for _ in $(seq 100); do
    grep -q 'samples per step' err 2>/dev/null && break
    sleep 0.1
  done
  sleep 0.5
  kill -INT $pid
  wait $pid
  code=$?
  if [ -z "$check" ]; then
    [ $code -eq 0 ] && grep -qF 'interrupted: nothing saved (no --checkpoint)' out ||
      fail "interrupted: exit code $code: $(tail -n 2 err) $(cat out)"
  else
    [ $code -eq 3 ] && grep -q 'interrupted after .*: nothing compared' err ||
      fail "an interrupted comparison: exit code $code: $(tail -n 2 err)"
  fi
done
finish

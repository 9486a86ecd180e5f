# Limits of the system: memory, sizes of files, closed pipes, a process that is stopped. A command
# ends with a message and exit code 3, never without a word, and it always ends.
source "$(dirname "$0")/lib.sh"
tool=$(readlink -f "$PENSTOCK")
make_profile
steps="$small --train-samples 80 --batch-size 16 --no-eval"

# decent CODE WHAT: 0, or 3 with a message that is one of ours.
decent() {
  case $1 in
    0) ;;
    3)
      grep -q '^penstock: ' err || fail "$2: exit code 3 without a message: $(tail -n 2 err)"
      ;;
    *) fail "$2: exit code $1, expected 0 or 3: $(tail -n 3 err)" ;;
  esac
  grep -qE 'terminate called|frame #|Exception raised from' err && fail "$2: $(head -n 5 err)"
}

# Memory: whatever the limit, an answer. OpenBLAS asks for ever for a buffer that it cannot have.
# Sanitizers need terabytes.
if ! grep -qaE '__(a|t)san_init' "$tool"; then
  for limit in 1000000 1050000 1100000 1200000 1300000 1500000; do
    (ulimit -v $limit && penstock train $steps --strategy gpipe --workers 2 >out 2>err </dev/null)
    decent $? "train in $limit kB"
    (ulimit -v $limit && penstock profile --model mlp --samples 1 >out 2>err </dev/null)
    decent $? "profile in $limit kB"
  done
  (ulimit -v 4000000 && penstock train $steps --strategy gpipe --workers 2 >out 2>err </dev/null) ||
    fail "train in 4 GB: $(tail -n 2 err)"
  (ulimit -v 2000000 &&
    penstock train $small --train-samples 64 --strategy dp --workers 64 >out 2>err </dev/null)
  code=$?
  [ $code -eq 3 ] && grep -q '64 threads need at least' err ||
    fail "64 workers in 2 GB: exit code $code: $(tail -n 2 err)"
fi

# Files: what can be written is written, and the rest is said.
(ulimit -f 20 && penstock train $steps --checkpoint small >out 2>err </dev/null)
code=$?
[ $code -eq 3 ] && grep -q 'File too large' err ||
  fail "files of 20 kB: exit code $code: $(tail -n 2 err)"
penstock train $steps --history h.json --html h.html --trace h.trace >/dev/full 2>err </dev/null
code=$?
[ $code -eq 3 ] || fail "a full standard output: exit code $code"
for file in h.json h.html h.trace; do
  [ -s $file ] || fail "a full standard output: $file is lost"
done

# Pipes that nobody reads.
{ penstock train $steps --epochs 20 2>err </dev/null; echo $? >code; } | true
[ "$(cat code)" -eq 3 ] && grep -q 'standard output' err ||
  fail "nobody reads standard output: exit code $(cat code): $(tail -n 2 err)"
{ penstock train $steps --epochs 20 2>&1 >out </dev/null; echo $? >code; } | true
[ "$(cat code)" -eq 0 ] && grep -q '"losses"' out ||
  fail "nobody reads standard error: exit code $(cat code)"

# until_started: waits until the run of process $pid has made its first checkpoint.
until_started() {
  for _ in $(seq 200); do
    [ -e "$1/latest" ] && return
    sleep 0.1
  done
  fail "no checkpoint in $1: $(tail -n 2 err)"
}

# Two processes that a launcher has not told of each other: the second one says so.
"$PENSTOCK" train $small --train-samples 4000 --no-eval --strategy serial --epochs 1000000 \
  --history both.json --checkpoint first --stopped-exit-code 75 >first.out 2>first.err </dev/null &
pid=$!
until_started first
refused "both.json' is what another run is to write (process $pid on " train $small \
  --strategy serial --history both.json
refused "another run is saving into 'first'" \
  train $small --strategy serial --epochs 1000000 --checkpoint first --resume
kill -TERM $pid
wait $pid
code=$?
[ $code -eq 75 ] || fail "stopped by SIGTERM: exit code $code: $(tail -n 3 first.err)"
[ -s both.json ] || fail "no history"
[ ! -e .both.json.lock ] || fail "the lock of a file is left"

# A run that is stopped for longer than its deadline goes on.
"$PENSTOCK" train $small --train-samples 4000 --batch-size 16 --no-eval --strategy mp --workers 2 \
  --epochs 1000000 --deadline 2 --checkpoint paused >out 2>err </dev/null &
pid=$!
until_started paused
sleep 0.3  # into an epoch, where one worker or the other always waits
kill -STOP $pid
sleep 5
kill -CONT $pid
sleep 1
kill -TERM $pid
wait $pid
code=$?
[ $code -eq 0 ] || fail "stopped for 5 s: exit code $code: $(tail -n 3 err)"

# The second signal, whichever it is, ends a run at once, even inside a long mini-batch.
run 0 profile --model mlp --width 2048 --batch-size 8 --samples 1 -o wide.json
"$PENSTOCK" train --model mlp --width 2048 --data synthetic --train-samples 40000 \
  --batch-size 40000 --epochs 100 --strategy serial --profile wide.json >out 2>err </dev/null &
pid=$!
sleep 3
kill -TERM $pid
sleep 0.2
kill -INT $pid 2>/dev/null
wait_within 10 $pid
case $code in
  130 | 143) ;;
  *) fail "two signals: exit code $code: $(tail -n 3 err)" ;;
esac
finish

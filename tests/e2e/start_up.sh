# Commands that need no libtorch do not load it, and start at once; the training part is found
# through links and after an installation; what keeps it from starting is said.
source "$(dirname "$0")/lib.sh"
tool=$(readlink -f "$PENSTOCK")
part=$(dirname "$tool")/penstock-train

layer='Linear -- forward_compute_time=1.0, backward_compute_time=2.0, activation_size=4096.0'
printf 'node%d -- %s, parameter_size=4096.0\n' 1 "$layer" 2 "$layer" >graph.txt
printf '\tnode1 -- node2\n' >>graph.txt
plan="plan --profile graph.txt --workers 2 --bandwidth 10Gbps"
run 0 $plan --json -o plan.json
run 0 schedule --kind 1f1b --stages 2 --micro-batches 4 -o schedule.txt

cat >commands.txt <<'END'
0 --help
0 --version
0 models --help
0 profile --help
0 profile --list-devices
0 probe --help
0 plan --help
0 schedule --help
0 verify --help
0 simulate --help
0 train --help
0 launch --help
0 report --help
2 nonsense
2 train --modle lenet5
2 train --model lenet5 --workers x
2 train --model lenet5 --resume
2 train --model lenet5 --history missing/h.json
2 profile --model lenet5 -o missing/p.json
0 plan --profile graph.txt --workers 2 --bandwidth 10Gbps
0 schedule --kind 1f1b --stages 2 --micro-batches 4
0 verify schedule.txt
0 simulate --plan plan.json --mini-batches 2
0 report --plan plan.json -o page.html
END

# Analytic profiles belong to the training part, which a build without libtorch does not have.
[ -x "$part" ] || sed -i '/--list-devices/d' commands.txt

# The dynamic linker says which libraries each command loads, one line each.
while read -r expected command; do
  LD_DEBUG=files LD_DEBUG_OUTPUT="$work/loaded" penstock $command >out 2>err </dev/null
  code=$?
  [ "$code" -eq "$expected" ] ||
    fail "penstock $command: exit code $code, expected $expected: $(tail -n 2 err)"
  cat loaded.* >libraries.txt
  rm -f loaded.*
  [[ $command == *' --help' ]] && grep -q 'penstock train --help' out &&
    fail "penstock $command ends with the help of another command"
  grep -qE 'libtorch|libc10' libraries.txt && fail "penstock $command loads libtorch"
  count=$(grep -c 'calling init:' libraries.txt)
  [ "$count" -ge 1 ] && [ "$count" -le 30 ] ||
    fail "penstock $command loads $count libraries, expected at most 30"
done <commands.txt

# A limit on address space far below what libtorch takes does not matter to them. Sanitizers need
# terabytes.
if ! sanitized; then
  while read -r expected command; do
    (ulimit -v 300000 && penstock $command >out 2>err </dev/null)
    code=$?
    [ "$code" -eq "$expected" ] ||
      fail "penstock $command in 300 MB: exit code $code, expected $expected: $(tail -n 2 err)"
  done <commands.txt
fi

# Without libtorch there is no training part to look for.
if [ ! -e "$part" ]; then
  refused "needs libtorch" train --model lenet5
  finish
fi

# limited KB ARGUMENTS...: refused with 3 and what is needed.
limited() {
  local limit=$1 code
  shift
  (ulimit -v "$limit" && penstock "$@" >out 2>err </dev/null)
  code=$?
  [ "$code" -eq 3 ] ||
    fail "penstock $* in $limit kB: exit code $code, expected 3: $(tail -n 2 err)"
  grep -q 'address space' err || fail "the limit is not named: $(cat err)"
}
if ! sanitized; then
  limited 300000 models
  limited 700000 models
  limited 700000 train --model lenet5 --data synthetic
  (ulimit -v 976563 && penstock models >out 2>err) || fail "models in 1 GB: $(tail -n 2 err)"
fi

# Links, PATH, another folder, as an installation has it.
mkdir -p bin links "prefix with space/bin" "prefix with space/libexec/penstock"
ln -s "$tool" links/first
ln -s ../links/first bin/penstock
run 0 models
cp out expected.txt
(PATH="$work/bin:$PATH" && unset LD_LIBRARY_PATH && cd / && command penstock models) >out 2>err ||
  fail "through PATH and two links: $(tail -n 2 err)"
cmp -s out expected.txt || fail "through PATH and two links the models are others"
cp "$tool" "prefix with space/bin/penstock"
installed="$work/prefix with space/bin/penstock"
"$installed" $plan >out 2>err || fail "a copy cannot plan: $(cat err)"
"$installed" models >out 2>err
[ $? -eq 3 ] || fail "without its training part the tool does not exit with 3"
grep -q 'training part of penstock is missing' err ||
  fail "a missing training part is not named: $(cat err)"
[ ! -s out ] || fail "an error left this on standard output: $(head -c 100 out)"
cp "$part" "prefix with space/libexec/penstock/penstock-train"
"$installed" models >out 2>err ||
  fail "the training part in libexec is not found: $(cat err)"
cmp -s out expected.txt || fail "the installed tool's models are others"

# Arguments arrive as they are: spaces, empty ones, bytes above 0x7f.
"$installed" train --model lenet5 --data idx --data-folder 'no such folder' >out 2>err
[ $? -eq 2 ] && grep -q 'no such folder' err || fail "an argument with spaces: $(tail -n 2 err)"
"$installed" models '' >out 2>err
[ $? -eq 2 ] || fail "an empty argument is dropped"

# A training part of another version, none at all, and one that is no program.
"$part" --part-of-penstock=0.0.1 models >out 2>err
[ $? -eq 3 ] || fail "another version is accepted"
grep -q '0\.0\.1' err || fail "another version is not named: $(cat err)"
"$part" models >out 2>err
[ $? -eq 2 ] && grep -q 'part of penstock' err ||
  fail "the training part runs on its own: $(cat err)"
cp "$tool" "prefix with space/libexec/penstock/penstock-train"
"$installed" models >out 2>err
[ $? -eq 3 ] && grep -q 'libexec/penstock/penstock-train is penstock itself' err ||
  fail "the tool in the training part's place: $(cat err)"
ln -sf gone "prefix with space/libexec/penstock/penstock-train"
"$installed" models >out 2>err
[ $? -eq 3 ] && grep -q 'is a broken link to gone' err || fail "a broken link: $(cat err)"
rm "prefix with space/libexec/penstock/penstock-train"
: >"prefix with space/libexec/penstock/penstock-train"
"$installed" models >out 2>err
[ $? -eq 3 ] && grep -q 'cannot start' err || fail "an unusable training part: $(cat err)"

# started PID: whether the process is the program yet; before that it is a copy of this shell,
# which ignores SIGINT in the background.
started() { [[ "$(readlink "/proc/$1/exe")" == */penstock* ]]; }

# A signal while libtorch loads ends the program without a word and without a file.
for signal in INT TERM; do
  for delay in 0.005 0.03 0.1 0.2; do
    env --default-signal=INT,TERM "$PENSTOCK" train --model lenet5 --data synthetic \
      --epochs 100000 --no-eval >out 2>err &
    pid=$!
    for _ in {1..500}; do
      ! started $pid || break
      sleep 0.01
    done
    sleep $delay
    kill -$signal $pid
    wait_within 30 $pid
    case $code in
      0 | 130 | 143) ;;
      *) fail "SIG$signal after $delay s: exit code $code: $(tail -n 2 err)" ;;
    esac
    grep -qi 'terminate called\|error' err && fail "SIG$signal after $delay s: $(tail -n 2 err)"
  done
done

# The time of a start: the median of nine, with room for a loaded machine (30 ms are the aim,
# 400 ms are libtorch).
now_ms() { echo $(($(date +%s%N) / 1000000)); }
for _ in 1 2 3 4 5 6 7 8 9; do
  begin=$(now_ms)
  "$PENSTOCK" $plan >out 2>err
  echo $(($(now_ms) - begin))
done | sort -n >times.txt
median=$(sed -n 5p times.txt)
sanitized || [ "$median" -le 200 ] ||
  fail "planning two layers takes $median ms, expected about 10"
# SIGUSR1 asks a stream for its weights, also while libtorch is loaded.
"$PENSTOCK" stream --size 24x16 --depth 2 --width 4 --kernel 3 --source-fps 50 --json \
  --model partime --checkpoint early >out 2>err &
pid=$!
for ((i = 0; i < 2000; i++)); do
  [ "$(cat /proc/$pid/comm)" = penstock-train ] && break
done
kill -USR1 $pid
for ((i = 0; i < 600; i++)); do
  grep -q '^weights: ' err && break
  kill -0 $pid 2>/dev/null || break
  sleep 0.05
done
grep -q '^weights: ' err || fail "an early SIGUSR1 saved nothing: $(tail -n 2 err)"
kill -INT $pid
wait_within 20 $pid
[ "$code" -eq 0 ] || fail "a stream after an early SIGUSR1: exit code $code: $(tail -n 2 err)"

finish

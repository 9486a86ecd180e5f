# Every kind of schedule by the tool: generated, proven sound, written as PyTorch's CSV and read
# back; the grids in docs/schedules.md are what the tool draws.
source "$(dirname "$0")/lib.sh"

# The unit tests go over the grid of shapes. Here the start of a process is what takes time (half a
# second of libtorch), so every kind gets the one shape that has it all, and both processes of a
# pair start at once.
sound() {
  penstock schedule "$@" 2>err </dev/null |
    penstock verify /dev/stdin --json --credits "${credits:-1}" >out 2>err2
  local codes="${PIPESTATUS[*]}"
  [ "$codes" = "0 0" ] ||
    fail "penstock schedule $*: exit codes $codes: $(cat err err2 | tail -n 3)"
  grep -q '"ok":true' out || fail "penstock schedule $*: not sound: $(head -c 300 out)"
}

[ -n "$(kinds)" ] || fail "the tool lists no kinds"
for kind in $(kinds); do
  case $kind in serial | dp | forward-only) continue ;; esac
  # With a norm, online needs as much room as frames are under way.
  credits=1
  [ "$kind" = online ] && credits=8
  sound --kind "$kind" --stages 4 --replicas 2 --micro-batches 13 --accumulate 8 --recompute 0,3 \
    --norm
done
credits=1
sound --kind interleaved --stages 12 --chunks 3 --micro-batches 7
sound --kind zb-h1 --replicas 3,1,2 --micro-batches 12
# One number of replicas is that of every stage; a list says how many stages there are.
shape() {  # shape STAGES WORKERS ARGUMENTS...
  run 0 schedule "${@:3}" --json
  grep -q "\"stages\":$1,\"workers\":$2," out ||
    fail "schedule ${*:3}: expected $1 stages on $2 workers: $(head -c 200 out)"
}
shape 4 8 --kind 1f1b --replicas 2
shape 2 3 --kind 1f1b --replicas 2,1
shape 1 2 --kind 1f1b --stages 1 --replicas 2
shape 1 3 --kind dp --replicas 3
shape 8 8 --kind zb-v --replicas 2
run 0 schedule --kind eager-1f1b --slack 3 -o s.txt
run 0 verify s.txt --credits 3
run 1 verify s.txt

for kind in interleaved interleaved-zb dualpipe-v; do
  sound --kind "$kind" --format pytorch --compute-only
done
# With messages, for the PyTorch that is to read them.
for kind in 1f1b-flush interleaved zb-v dualpipe-v; do
  run 0 schedule --kind $kind --stages 4 --format pytorch --pytorch 2.15 -o waits.csv
  run 0 schedule --kind $kind --stages 4 --format pytorch --pytorch 2.14.1 -o plain.csv
  waits=$(grep -o 'WAIT_SEND_[FB]' waits.csv | wc -l)
  [ "$waits" -gt 0 ] && [ "$waits" = "$(grep -o ',[0-9]*SEND_[FB]' plain.csv | wc -l)" ] ||
    fail "$kind: not one wait for each send"
  for file in waits.csv plain.csv; do
    run 0 verify $file --json
    grep -q '"ok":true' out || fail "$kind, $file: $(cat out)"
  done
done
refused 'whose schedule files are known (2.13, 2.14 or 2.15)' schedule --kind gpipe \
  --format pytorch --pytorch 2.16
refused 'expected --format pytorch with it' schedule --kind gpipe --pytorch 2.15
run 2 schedule --kind 1f1b --format pytorch
for kind in 'chimera --stages 4' 'dualpipe --stages 4' 'gpipe --replicas 2' 'forward-only'; do
  run 1 schedule --kind $kind --format pytorch -o rows.csv
  grep -q '^penstock: PyTorch does not run' err || fail "$kind: $(cat err)"
  [ ! -e rows.csv ] || fail "$kind: a file that PyTorch refuses"
done

# Messages that fill the links: zb-auto is made for links that they share, as in the simulator.
costs='--forward 2ms --backward-input 1.5ms --backward-weight 2ms --step 3ms --latency 1ms'
costs="$costs --bandwidth 1GB/s --message-bytes 10MB"
time_of() {  # time_of ARGUMENTS...: the simulated time of that schedule
  run 0 schedule --stages 4 --micro-batches 32 "$@" -o timed.txt
  run 0 simulate --schedule timed.txt $costs --json
  numbers makespan_ns
}
for kept in 4:zb-h1 4:1f1b-flush 7:zb-h2 7:eager-1f1b 32:gpipe; do
  own=$(time_of --kind zb-auto --keep "${kept%:*}" $costs)
  other=$(time_of --kind "${kept#*:}")
  [ "$own" -gt 0 ] && [ "$own" -le "$other" ] ||
    fail "zb-auto that keeps ${kept%:*} takes $own ns, ${kept#*:} $other ns"
done

# A value that is empty, as from a variable of the shell that is not set, is none.
for option in --output --forward --recompute --keep --micro-batches; do
  refused "$option" schedule --kind zb-auto $option ''
done
refused '--grid cannot be combined with --json' schedule --kind gpipe --grid --json
refused '--grid shows the grid' schedule --kind gpipe --grid --format pytorch
refused 'no text' verify /dev/zero

refused 'even number of stages, found 5' schedule --kind zb-v --stages 5
refused 'same number of replicas' schedule --kind zb-v --stages 4 --replicas 1,2,1,1
refused 'chunks must lie between 2 and' schedule --kind interleaved --chunks 1
refused 'only strategy interleaved' schedule --kind zb-v --chunks 3
refused "found '9'" schedule --kind zb-h1 --stages 3 --recompute 0,9
refused '--format' schedule --kind zb-h1 --format csv

# Each "$ penstock ..." line of the document and what follows it, up to an empty line.
grids=0
while IFS= read -r line; do
  case $line in
    '    $ penstock schedule '*)
      grids=$((grids + 1))
      # shellcheck disable=SC2086
      run 0 ${line#'    $ penstock '}
      sed 's/ *$//' out | grep . >drawn
      : >documented
      ;;
    '    w'[0-9]* | '    f, b'*) [ -f documented ] && echo "${line#    }" >>documented ;;
    *)
      if [ -f documented ]; then
        cmp -s drawn documented ||
          fail "docs/schedules.md: the tool draws another grid number $grids"
        rm documented
      fi
      ;;
  esac
done <"$here/../../docs/schedules.md"
[ "$grids" -ge 9 ] || fail "docs/schedules.md shows $grids grids, expected at least 9"
# A file that cannot be written is named at once; standard output by another name is itself.
refused '--output: cannot write' schedule --kind 1f1b --stages 2 -o missing/s.txt
run 0 schedule --kind 1f1b --stages 2
cp out plain.txt
run 0 schedule --kind 1f1b --stages 2 -o /dev/stdout
cmp -s out plain.txt || fail "-o /dev/stdout is not what goes there anyway"
run 0 schedule --kind 1f1b --stages 2 -o /dev/stdout --json
json_keys kind text
finish

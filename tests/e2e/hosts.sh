# A job on several hosts, all of them this machine: one launch each. A host that does not come back
# is left out, and the training goes on with fewer ranks and a new plan.
source "$(dirname "$0")/lib.sh"

unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT PENSTOCK_PORT
train="train --model mlp --width 64 --data synthetic --train-samples 512 --test-samples 64 --lr 0.01
  --batch-size 32 --strategy dp --silence 3 --no-eval --checkpoint saved --json"
port=$((20000 + $$ % 10000))

refused "--hosts is missing" launch -n 1 --host 1 -- $train
refused "--hosts is missing" launch -n 1 --min-ranks 1 -- $train
refused "--hosts needs --port" launch -n 1 --hosts 2 --host 0 -- $train
refused "--hosts needs --host" launch -n 1 --hosts 2 --port $port -- $train
refused "--host must lie between 0 and 1 (--hosts 2), found 2" \
  launch -n 1 --hosts 2 --host 2 --port $port -- $train
refused "--rejoin must lie between" \
  launch -n 1 --hosts 2 --host 0 --port $port --rejoin -1 -- $train

# host NUMBER RANKS OPTIONS...: the launch of a host.
host() {
  exec env --default-signal=INT,TERM "$PENSTOCK" launch -n "$2" --hosts 3 --host "$1" \
    --port $port --grace 10 "${@:3}" >"out.$1" 2>"err.$1" </dev/null
}
epochs=100000
host 0 2 --max-restarts 2 --min-ranks 3 --rejoin 4 -- $train --epochs $epochs &
first=$!
host 1 1 --rejoin 60 -- $train --epochs $epochs &
second=$!
host 2 1 --rejoin 60 -- $train --epochs $epochs &
third=$!
for _ in {1..600}; do
  [ -e saved/latest ] && break
  sleep 0.1
done
[ -e saved/latest ] || fail "no checkpoint: $(cat err.0)"
kill -KILL $third
for _ in {1..900}; do
  sed '1,/plan: made anew/d' err.0 | grep -q '^epoch' && break
  sleep 0.1
done
grep -q 'the launch of host 2 is gone' err.0 || fail "not noticed: $(cat err.0)"
grep -q 'host 2 is left out: 3 ranks train' err.0 || fail "not left out: $(tail -n 20 err.0)"
grep -q 'plan: made anew for --strategy dp --workers 3 .*--workers 4 ' err.0 ||
  fail "no new plan: $(tail -n 20 err.0)"

# Another launch of a host whose ranks run is refused after a while, and changes nothing.
run 2 launch -n 1 --hosts 3 --host 1 --port $port --rejoin 2 -- $train --epochs $epochs
grep -q 'has refused this one: a launch of host 1 is there already, and its ranks run' err ||
  fail "a second launch of host 1: $(cat err)"
kill -0 $second || fail "the first launch of host 1 is gone: $(tail -n 5 err.1)"
grep -q 'the launch of host 1 is gone' err.0 && fail "taken for gone: $(tail -n 5 err.0)"

# What answers as no launch does is given up.
if command -v python3 >/dev/null; then
  silent=$((port + 1))
  python3 -c "
import socket, time
listener = socket.create_server(('127.0.0.1', $silent))
time.sleep(60)" &
  silence=$!
  sleep 1
  run 3 launch -n 1 --hosts 2 --host 1 --port $silent --rejoin 2 -- $train
  grep -q "what listens at 127.0.0.1, port $silent, has not answered within 2 s" err ||
    fail "a silent port: $(cat err)"
  kill $silence
fi

# A signal to one launch ends all ranks after the same step.
kill -INT $second
wait_within 60 $first
[ "$code" -eq 0 ] || fail "host 0: exit code $code: $(tail -n 5 err.0)"
wait_within 60 $second
[ "$code" -eq 0 ] || fail "host 1: exit code $code: $(tail -n 5 err.1)"
mv out.0 out
json_keys losses ranks
[ "$(numbers ranks)" = 3 ] || fail "expected 3 ranks: $(head -c 200 out)"
grep -q '"interrupted":true' out || fail "not interrupted: $(head -c 200 out)"
[ ! -s out.1 ] || fail "host 1 has printed: $(head -c 200 out.1)"
finish

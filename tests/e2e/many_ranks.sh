# 64 ranks on one machine, with a tiny model: they start, train, and end cleanly on SIGINT.
source "$(dirname "$0")/lib.sh"

unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT PENSTOCK_LISTEN
ranks=64 most_start_s=${2:-30} most_end_s=${3:-30}
now_ms() { echo $(($(date +%s%N) / 1000000)); }
run 0 profile --model mlp --width 16 --batch-size 1 --samples 1 -o profile.json
run 0 plan --profile profile.json --strategy dp --workers $ranks --all-workers --bandwidth 10Gbps \
  --micro-batches $ranks -o plan.json

idle=$(awk -v cores="$(nproc)" '$1 < cores { print "yes" }' /proc/loadavg)
begin=$(now_ms)
env --default-signal=INT "$PENSTOCK" launch -n $ranks -- train --model mlp --width 16 \
  --data synthetic --train-samples $((ranks * 4)) --test-samples $ranks --batch-size $ranks \
  --lr 0.01 --plan plan.json --no-eval --epochs 100000 --checkpoint saved --json >out 2>err &
launcher=$!
for _ in $(seq 3000); do
  grep -q '^epoch 1:' err && break
  kill -0 $launcher 2>/dev/null || break
  sleep 0.1
done
trained=$(($(now_ms) - begin))
processes=$(pgrep -P $launcher)
# Loading libtorch takes nearly all of it. Where other programs run as well, only the time of the
# processors says anything.
ticks=$(for p in $processes; do cat "/proc/$p/stat" 2>/dev/null; done |
  sed 's/.*) //' | awk '{ sum += $12 + $13 } END { print sum + 0 }')
cpu_ms=$((ticks * 1000 / $(getconf CLK_TCK)))
grep -q '^epoch 1:' err || fail "no epoch in $trained ms: $(tail -n 5 err)"
echo "$ranks ranks trained their first epoch after $trained ms, $cpu_ms ms of processor time"
[ $cpu_ms -le $((most_start_s * 1000 * $(nproc))) ] ||
  fail "the start took $cpu_ms ms of $(nproc) processors, expected at most $most_start_s s of each"
[ -z "$idle" ] || [ $trained -le $((most_start_s * 1000)) ] ||
  fail "the first epoch took $trained ms, expected at most $most_start_s s"
[ "$(wc -w <<<"$processes")" -eq $ranks ] || fail "expected $ranks ranks: $processes"
most_kib=0 threads=0
for process in $processes; do
  kib=$(awk '/^RssAnon/ { print $2 }' "/proc/$process/status" 2>/dev/null || echo 0)
  [ "${kib:-0}" -gt $most_kib ] && most_kib=$kib
  threads=$(ls "/proc/$process/task" 2>/dev/null | wc -l)
done
echo "a rank has at most $most_kib KiB of its own memory, the last one $threads threads"

begin=$(now_ms)
kill -INT $launcher
wait_within $((most_end_s * 4)) $launcher
ended=$(($(now_ms) - begin))
echo "ended $ended ms after SIGINT"
[ "$code" -eq 0 ] || fail "after SIGINT: exit code $code: $(tail -n 5 err)"
[ -z "$idle" ] || [ $ended -le $((most_end_s * 1000)) ] ||
  fail "ended after $ended ms, expected $most_end_s s"
json_keys losses interrupted
grep -q '"interrupted":true' out || fail "not interrupted: $(head -c 300 out)"
[ "$(numbers ranks)" = $ranks ] || fail "expected $ranks ranks, found $(numbers ranks)"
for process in $processes; do
  [ -e "/proc/$process" ] && fail "process $process is left running"
done
finish

# penstock launch: what it refuses and with which words, and whose output goes where. `probe` stands
# for the commands that may be launched.
source "$(dirname "$0")/lib.sh"

unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT PENSTOCK_LISTEN
quick="probe --seconds 0.3"

# The command's own options.
refused "--ranks is required" launch
refused "not in range 1 to 4096" launch -n 0 -- $quick
refused "not in range 1 to 4096" launch -n 4097 -- $quick
refused "--ranks" launch -n two -- $quick
refused "not in range 1 to 65535" launch -n 2 --port 0 -- $quick
refused "--max-restarts" launch -n 2 --max-restarts -1 -- $quick
refused "--grace: expected a number, found nan" \
  launch -n 2 --grace nan -- $quick
refused "--grace must lie between" launch -n 2 --grace -1 -- $quick
refused "unknown option '--nonsense'" launch -n 2 --nonsense -- $quick
refused "unknown option '--hosts'" launch -n 2 --hosts 2 -- $quick
refused "cannot make the folder '/dev/null/logs' for logs" \
  launch -n 2 --log-dir /dev/null/logs -- $quick

refused "unknown option '--limit'" train --model lenet5 --limit 5

# What may follow.
refused "there is nothing to launch: expected train, profile or probe after" launch -n 2
refused "there is nothing to launch" launch -n 2 --
refused "expected \`--\` before 'train'" launch -n 2 train
refused "expected \`--\` before 'train'" launch -n 2 train --model lenet5
refused "expected train, profile or probe after \`--\`, found 'plan'" launch -n 2 -- plan
refused "a launch cannot be launched" launch -n 2 -- launch -n 2 -- train
refused "cannot start 'trian': No such file or directory" launch -n 2 -- trian --model lenet5
run 0 launch -n 2 -- sh -c 'echo "$0 $RANK of $WORLD_SIZE"' rank
grep -qx 'rank 0 of 2' out || fail "the output of a program's rank 0: $(cat out)"
grep -qx '\[rank 1\] rank 1 of 2' err || fail "the output of a program's rank 1: $(cat err)"
run 3 launch -n 2 -- sh -c 'exit 3'

# A rank launches nothing; a broken environment is named. The shell of a Slurm batch script is none.
RANK=1 WORLD_SIZE=4 MASTER_ADDR=n01 MASTER_PORT=29500 \
  refused "this process is rank 1 of 4 already (torchrun)" launch -n 2 -- $quick
RANK=4 WORLD_SIZE=4 MASTER_ADDR=n01 MASTER_PORT=29500 \
  refused "environment variable RANK: expected a whole number from 0 to 3" launch -n 2 -- $quick
SLURM_NTASKS=4 SLURM_PROCID=0 SLURM_LOCALID=0 run 0 launch -n 1 -- probe --help

# Ranks: rank 0's output is unchanged, the others' lines have a prefix.
run 0 launch -n 2 -- $quick --json
json_keys ranks hosts cluster_toml
grep -q '^penstock:' err && fail "a job without a failure has messages: $(grep penstock: err)"
run 0 launch -n 2 -- probe --help
grep -q '^Usage: penstock probe' out || fail "rank 0's output is changed: $(head -c 300 out)"
grep -q '^\[rank 1\] Usage: penstock probe' err || fail "no prefix: $(head -c 300 err)"
run 0 launch -n 2 --log-dir logs -- probe --help
grep -q '^Usage: penstock probe' logs/rank_0.log || fail "rank_0.log lacks rank 0's output"
grep -q '^Usage: penstock probe' logs/rank_1.log || fail "rank_1.log lacks rank 1's output"
grep -q '\[rank' err logs/* && fail "with --log-dir there are prefixes"

# Wrong usage of the command is its own exit code, and no reason to start again.
run 2 launch -n 2 --max-restarts 3 -- probe --seconds 0
grep -q '^penstock: --seconds: expected 0.3 to 600' err || fail "rank 0 is silent: $(cat err)"
grep -qE '^penstock: rank [01] ended with exit code 2$' err || fail "no rank is named: $(cat err)"
grep -q restart err && fail "wrong usage is repeated: $(cat err)"
[ ! -s out ] || fail "an error left this on standard output: $(head -c 100 out)"
# So is a training that diverges: it would do so again.
run 1 launch -n 2 --max-restarts 3 -- train --model mlp --width 64 --data synthetic --no-eval \
  --train-samples 256 --batch-size 32 --strategy dp --workers 2 --lr 1e30
grep -q '^penstock: the loss is no longer finite' err || fail "divergence: $(tail -n 3 err)"
grep -q 'restart 1' err && fail "a training that diverges is repeated: $(cat err)"

# A signal ends the job, and nothing is left.
env --default-signal=INT,TERM "$PENSTOCK" launch -n 3 -- probe --seconds 60 >out 2>err &
pid=$!
children() { cat /proc/$pid/task/$pid/children 2>/dev/null; }
for _ in {1..500}; do
  [ "$(children | wc -w)" -lt 3 ] || break
  sleep 0.01
done
ranks=$(children)
[ "$(wc -w <<<"$ranks")" -eq 3 ] || fail "expected 3 ranks, found '$ranks'"
kill -TERM $pid
wait $pid
code=$?
[ $code -eq 143 ] || fail "after SIGTERM: exit code $code, expected 143: $(tail -n 3 err)"
for rank in $ranks; do
  kill -0 "$rank" 2>/dev/null && fail "process $rank is left running"
done
finish

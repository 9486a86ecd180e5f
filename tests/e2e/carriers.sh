# What carries messages between ranks makes no difference to results: Gloo and MPI beside the
# connections. What cannot carry is refused; ranks that are killed or stopped are reported as over
# connections. MPI is left out where mpirun or the module is missing.
source "$(dirname "$0")/lib.sh"

unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR PENSTOCK_LISTEN
# Parts of messages of 64 KiB and more: activations of 32 x 1024, weights of 1024 x 1024.
model="--model mlp --width 1024 --data synthetic --train-samples 256 --test-samples 32 --lr 0.01"
run 0 profile --model mlp --width 1024 --batch-size 32 --samples 1 -o profile.json
planned="$model --batch-size 128"
common="$planned --profile profile.json --silence 2"

has_mpi=no
if command -v mpirun >/dev/null && [ -e "$(dirname "$(readlink -f "$PENSTOCK")")/penstock-mpi.so" ]
then
  has_mpi=yes
else
  echo "MPI is left out: no mpirun, or a build without it"
fi
[ "$(id -u)" -ne 0 ] || export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export MASTER_PORT=$((20000 + $$ % 10000))
# Open MPI's own: two that start at once fail over its folder in /tmp.
export TMPDIR=$work
mkdir other.tmp
# ranks FABRIC N: the launcher of so many ranks and $servers more that only add gradients.
servers=0
ranks() {
  case $1 in
    mpi)
      echo "env PENSTOCK_SERVERS=$servers" \
        "mpirun -n $(($2 + servers)) --oversubscribe $PENSTOCK"
      ;;
    *) echo "$PENSTOCK launch -n $2 --servers $servers --" ;;
  esac
}
fabrics=gloo
penstock launch -n 2 -- train $common --strategy dp --workers 2 --steps 1 --fabric gloo \
  >out 2>err
if grep -q 'this penstock was built without Gloo' err; then
  echo "Gloo is left out: a build without it"
  fabrics=
fi
[ $has_mpi = no ] || fabrics="$fabrics mpi"

# same_job RANKS STRATEGY OPTIONS...: losses and checkpoints are those over connections.
same_job() {
  local ranks=$1 strategy=$2 fabric
  shift 2
  run 0 plan --profile profile.json --strategy "$strategy" --workers "$ranks" --all-workers \
    --bandwidth 10Gbps --micro-batches "$micro_batches" -o plan.json
  rm -rf tcp
  timeout 60 $(ranks tcp $ranks) train $planned --plan plan.json "$@" --fabric tcp \
    --checkpoint tcp --json >out 2>err || fail "$strategy over tcp: $(tail -n 3 err)"
  numbers losses >tcp.losses
  for fabric in $fabrics; do
    rm -rf other
    timeout 60 $(ranks $fabric $ranks) train $planned --plan plan.json "$@" \
      --fabric $fabric --checkpoint other --json >out 2>err ||
      fail "$strategy by $fabric: exit code $?: $(tail -n 3 err)"
    numbers losses | cmp -s - tcp.losses || fail "$strategy by $fabric: other losses"
    diff -r tcp other >differences || fail "$strategy by $fabric: $(cat differences)"
  done
}
micro_batches=4
same_job 2 gpipe
same_job 3 1f1b --clip-norm 1
micro_batches=3
same_job 3 dp --sync ordered
micro_batches=4
same_job 2 dp --sync ring
same_job 4 chimera
servers=1
same_job 2 dp --sync summation
servers=0

# What cannot be.
refused "unknown fabric 'ib'" train $common --fabric ib
refused "NCCL moves the memory of GPUs" train $common --fabric nccl
refused "all workers are threads of one process" launch -n 2 -- train $common --fabric local
run 0 train $common --strategy serial --fabric local --json
for fabric in $fabrics; do
  run 0 train $common --strategy serial --fabric $fabric --json
  grep -q "warning: --fabric $fabric has no effect" err || fail "no warning: $(cat err)"
done
if [ $has_mpi = yes ]; then
  refused "start them with mpirun" launch -n 2 -- train $common --fabric mpi
  # Ranks of two launchers that do not agree.
  RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 timeout 60 mpirun -n 1 "$PENSTOCK" train $common \
    --fabric mpi >out.0 2>err.0 &
  TMPDIR=$work/other.tmp RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 timeout 60 \
    mpirun -n 1 "$PENSTOCK" train $common --fabric mpi >out.1 2>err.1
  wait
  grep -q "rank 0 of 1, the job's variables say rank [01] of 2" err.0 err.1 ||
    fail "two launchers: $(cat err.0 err.1)"
fi

# rank_process LAUNCHER RANK: the process of a rank.
rank_process() {
  local process
  for process in $(pgrep -P "$1"); do
    tr '\0' '\n' <"/proc/$process/environ" 2>/dev/null |
      grep -qxE "(RANK|OMPI_COMM_WORLD_RANK)=$2" && echo "$process"
  done
}
# after SIGNAL FABRIC WORDS: rank 1 of three gets the signal in the middle of training; the others
# say so in these words within seconds, and nothing is left.
after() {
  local signal=$1 fabric=$2 words=$3 launcher victim all process begin i
  rm -rf saved
  $(ranks $fabric 3) train $common --strategy dp --workers 3 --epochs 100000 --no-eval \
    --fabric $fabric --checkpoint saved >launch.out 2>launch.err &
  launcher=$!
  for i in $(seq 300); do [ -e saved/latest ] && break; sleep 0.1; done
  all=$(pgrep -P $launcher)
  victim=$(rank_process $launcher 1)
  kill -$signal "$victim"
  begin=$SECONDS
  for i in $(seq 150); do
    grep -q "$words" launch.err && break
    sleep 0.1
  done
  grep -q "$words" launch.err || fail "$fabric after SIG$signal: $(tail -n 5 launch.err)"
  [ $((SECONDS - begin)) -lt 10 ] || fail "$fabric: SIG$signal took $((SECONDS - begin)) s"
  # A launcher gives what is stopped some time to end.
  kill -KILL "$victim" 2>/dev/null
  wait_within 30 $launcher
  [ "$code" -ne 0 ] || fail "$fabric after SIG$signal: exit code 0"
  for process in $all; do
    # One that has ended may wait to be collected: it has no command line any more.
    [ -n "$(tr -d '\0' 2>/dev/null <"/proc/$process/cmdline")" ] &&
      fail "$fabric after SIG$signal: process $process is still there"
  done
}
for fabric in $fabrics; do
  after KILL $fabric 'rank 1.* closed the connection'
  after STOP $fabric 'rank 1.* has not answered for 2.0 s'
done
finish

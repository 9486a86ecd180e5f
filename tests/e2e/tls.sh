# Jobs whose connections are encrypted learn the same, bit for bit; ranks that do not fit say why
# and end. Certificates are left out where the command openssl is missing, mpirun likewise.
source "$(dirname "$0")/lib.sh"

unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT PENSTOCK_LISTEN
unset PENSTOCK_TLS PENSTOCK_JOB_TOKEN
model="--model mlp --width 64 --data synthetic --train-samples 256 --test-samples 32 --lr 0.01"
run 0 profile --model mlp --width 64 --batch-size 8 --samples 1 -o profile.json
for strategy in 1f1b-flush dp; do
  run 0 plan --profile profile.json --strategy $strategy --workers 2 --all-workers \
    --bandwidth 10Gbps --micro-batches 4 -o $strategy.json
done
common="$model --batch-size 32 --fabric tcp --json"

kinds="secret"
if command -v openssl >/dev/null; then
  kinds="secret $work/tls"
  # certificate FOLDER AUTHORITY DAYS: of a rank.
  certificate() {
    mkdir -p "$1"
    local new_key="-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
    [ -e "$2.crt" ] || openssl req -x509 $new_key -days 2 -subj "/CN=$2" \
      -keyout "$2.key" -out "$2.crt" 2>>openssl.log
    openssl req $new_key -subj "/CN=${1##*/}" -keyout "$1/tls.key" -out one.csr 2>>openssl.log
    openssl x509 -req -in one.csr -CA "$2.crt" -CAkey "$2.key" -CAcreateserial -days "$3" \
      -out "$1/tls.crt" 2>>openssl.log
    cp own.crt "$1/ca.crt"
  }
  certificate tls own 1
  certificate foreign other 1
else
  echo "certificates are left out: no command openssl"
fi

# By the option and by the variable, of penstock launch.
for strategy in 1f1b-flush dp; do
  run 0 launch -n 2 -- train $common --plan $strategy.json --tls off
  numbers losses >off.losses
  [ "$(wc -l <off.losses)" -eq 8 ] || fail "$strategy: $(wc -l <off.losses) losses, expected 8"
  for kind in $kinds; do
    run 0 launch -n 2 -- train $common --plan $strategy.json --tls "$kind"
    numbers losses | cmp -s - off.losses || fail "$strategy, TLS $kind: other losses"
    PENSTOCK_TLS=$kind run 0 launch -n 2 -- train $common --plan $strategy.json
    numbers losses | cmp -s - off.losses || fail "$strategy, PENSTOCK_TLS=$kind: other losses"
  done
done
if command -v mpirun >/dev/null; then
  [ "$(id -u)" -ne 0 ] || export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  TMPDIR=$work MASTER_PORT=$((20000 + $$ % 10000)) PENSTOCK_JOB_TOKEN=0123456789abcdef \
    timeout 60 mpirun -n 2 --oversubscribe "$PENSTOCK" train $common --plan dp.json --tls secret \
    >out 2>err || fail "mpirun: exit code $?: $(tail -n 3 err)"
  numbers losses | cmp -s - off.losses || fail "mpirun: other losses"
else
  echo "mpirun is left out: it is missing"
fi
# What measures as a job reads the variable.
PENSTOCK_TLS=secret run 0 launch -n 2 -- probe --seconds 0.3 --json
PENSTOCK_TLS=$work/nowhere run 2 launch -n 2 -- probe --seconds 0.3 --json
grep -q "cannot read '$work/nowhere/tls.crt': No such file or directory" err ||
  fail "a folder that is missing: $(cat err)"

# What cannot be had.
for fabric in gloo mpi; do
  run 2 launch -n 2 -- train ${common/tcp/$fabric} --plan dp.json --tls secret
  grep -q -- "--fabric $fabric: what it carries goes past the connections, which alone are" err ||
    fail "$fabric with TLS: $(cat err)"
done
run 0 train $common --plan dp.json --steps 1 --tls secret
grep -q 'warning: --tls has no effect: this process is not a rank of a job' err ||
  fail "TLS without a job: $(cat err)"

# misfit WORDS0 WORDS1 VARIABLE0 VARIABLE1: ranks 0 and 1 have one variable each, end, and say why.
misfit() {
  local port=$((20000 + RANDOM % 10000)) rank pids=() codes=()
  for rank in 0 1; do
    local variable=$((rank + 3))
    env RANK=$rank WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port LOCAL_RANK=$rank \
      LOCAL_WORLD_SIZE=2 PENSTOCK_JOB_TOKEN=0123456789abcdef "${!variable}" \
      "$PENSTOCK" train $common --plan dp.json --patience 3 >out.$rank 2>err.$rank </dev/null &
    pids+=($!)
  done
  for rank in 0 1; do
    wait_within 20 "${pids[rank]}"
    [ $code -eq 3 ] || fail "rank $rank of '$3' and '$4': exit code $code, expected 3"
  done
  grep -qF -- "$1" err.0 || fail "rank 0 of '$3' and '$4': '$1' is not in: $(cat err.0)"
  grep -qF -- "$2" err.1 || fail "rank 1 of '$3' and '$4': '$2' is not in: $(cat err.1)"
}
misfit 'rank 1 has TLS off, and rank 0 has TLS by a secret: all ranks must have the same' \
  'rank 0 has TLS by a secret, and rank 1 has TLS off: all ranks must have the same' \
  PENSTOCK_TLS=secret PENSTOCK_TLS=off
if [ "$kinds" != secret ]; then
  misfit '/CN=foreign: unable to get local issuer certificate' \
    "does not take this rank's certificate, $work/foreign/tls.crt" \
    PENSTOCK_TLS=$work/tls PENSTOCK_TLS=$work/foreign
fi

finish

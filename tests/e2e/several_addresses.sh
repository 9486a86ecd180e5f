# Rank 0's machine has a name with several addresses, and a rank that gets them in another order
# finds the one at which rank 0 listens. Needs root, for files of hosts; skipped otherwise.
source "$(dirname "$0")/lib.sh"

unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT PENSTOCK_LISTEN
addresses() { for address in "$@"; do echo "$address rank0.example"; done; }
addresses 127.0.0.2 127.0.0.3 >hosts.0
addresses 127.0.0.3 127.0.0.2 >hosts.1
with_hosts() {
  unshare -m sh -c 'mount --bind "$0" /etc/hosts && exec "$@"' "$work/$1" "${@:2}"
}
with_hosts hosts.0 true 2>/dev/null || { echo "skipped: cannot have a file of hosts"; exit 77; }
for order in 0 1; do
  with_hosts hosts.$order getent ahostsv4 rank0.example | awk '!seen[$1]++ { print $1 }' >found
  addresses $(cat found) | cmp -s - hosts.$order ||
    { echo "skipped: this system gives one of several addresses: $(xargs <found)"; exit 77; }
done

export WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=rank0.example
export MASTER_PORT=$((20000 + $$ % 10000)) PENSTOCK_JOB_TOKEN=0123456789abcdef
for rank in 0 1; do
  RANK=$rank LOCAL_RANK=$rank with_hosts hosts.$rank timeout 50 "$PENSTOCK" probe --seconds 0.3 \
    >out.$rank 2>err.$rank </dev/null &
  pids[rank]=$!
done
for rank in 0 1; do
  wait_within 60 "${pids[rank]}"
  [ $code -eq 0 ] || fail "rank $rank: exit code $code: $(cat err.$rank)"
done

finish

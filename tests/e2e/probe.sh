# penstock probe: what it writes is what plan takes, and what it cannot do it says.
source "$(dirname "$0")/lib.sh"

quick="--seconds 0.2 --workers 2 --size 256KiB"
run 0 probe $quick -o threads.toml
grep -q '^by_reference = true' threads.toml ||
  fail "workers are not threads by default: $(cat threads.toml)"
grep -q '^# summation, each of 2 workers ' threads.toml ||
  fail "the figures are not among the comments"
grep -q '^TCP bandwidth ' out || fail "the figures are not shown"
run 0 probe $quick --transport tcp -o tcp.toml --json
json_keys workers figures hand_over_ns tcp_bytes_per_s sum_shared_bytes_per_s median notes \
  cluster_toml
grep -q '^name = "loopback"' tcp.toml || fail "workers are not processes with --transport tcp"
run 0 probe $quick
cp out shown.toml

node() {  # node NAME CLASS FORWARD BACKWARD BYTES
  printf '%s -- %s -- forward_compute_time=%s, backward_compute_time=%s' "$1" "$2" "$3" "$4"
  printf ', activation_size=%s, parameter_size=%s\n' "$5" "$5"
}
{
  node node1 Input0 0.0 0.0 0.0
  node node2 Linear 1.0 2.0 4096.0
  node node3 Linear 1.0 2.0 4096.0
  printf '\tnode1 -- node2\n\tnode2 -- node3\n'
} >graph.txt
for file in threads tcp shown; do
  run 0 plan --profile graph.txt --cluster $file.toml --json
  json_keys config
done

run 2 probe --workers -1 -o x.toml
run 2 probe --workers 100000
run 2 probe --seconds nan
run 2 probe --seconds 1e9
run 2 probe --size 7
run 2 probe --size 1000000TB
run 2 probe --size fast
grep -q -- '--size' err || fail "the option is not named: $(cat err)"
run 2 probe --transport udp
grep -q "expected threads or tcp" err || fail "the transports are not named: $(cat err)"
run 2 probe -o -
run 2 probe -o missing/x.toml
run 2 probe -o .
[ -e x.toml ] && fail "a refused probe left a file"
finish

# profile and probe as ranks of a job: rank 0 writes what all have measured, and plan takes it.
source "$(dirname "$0")/lib.sh"

unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT PENSTOCK_LISTEN

# probe: a cluster of processes.
run 0 launch -n 2 -- probe --seconds 0.6 -o cluster.toml
grep -q '^job of 2 ranks on 1 host; between ranks of a host ' out || fail "no links: $(cat out)"
grep -q '^host 0: ' out || fail "no host: $(cat out)"
[ ! -s err ] || grep -q '\[rank 1\]' err && fail "rank 1 prints: $(cat err)"
grep -q '^name = "host"' cluster.toml || fail "no level of ranks: $(cat cluster.toml)"
run 0 launch -n 3 --servers 1 -- probe --seconds 0.6 --workers 2 --json
json_keys ranks servers hosts link_in_host cluster_toml
grep -q '"ranks":3,.*"servers":1' out || fail "servers are taken for workers: $(cat out)"
refused_in_job() {
  run 2 launch -n 2 -- "${@:2}"
  grep -q -- "$1" err || fail "expected '$1', found: $(cat err)"
}
run 0 launch -n 1 --servers 1 -- probe --seconds 0.6
refused_in_job "--size: expected nothing inside a job" probe --size 1MB
refused_in_job "--device: expected nothing inside a job" probe --device cuda
refused "penstock: --device expected cpu, cuda" probe --device gpu
refused "--workers: expected nothing beside --device" probe --device cuda --workers 2
refused_in_job "--transport: expected nothing inside a job" probe --transport tcp
refused_in_job "--seconds: expected 0.3 to 600 inside a job, found 0.1" probe --seconds 0.1
refused_in_job "--output" probe --seconds 0.6 -o /dev/null/c.toml

# profile: the ranks of a host share the layers.
run 0 launch -n 2 -- profile --model lenet5 --batch-size 8 --samples 3 -o profile.json
[ "$(grep -c '^total' out)" -eq 1 ] || fail "not one table: $(cat out)"
grep -q '\[rank 1\]' err && fail "rank 1 prints: $(cat err)"
run 0 plan --profile profile.json --cluster cluster.toml
run 0 launch -n 2 -- profile --model mlp --width 16 --depth 20 --samples 3 --measure once \
  -o shared.json
grep -q '^[0-9]* of 42 layers timed' out || fail "all layers are timed: $(tail -n 2 out)"
run 0 plan --profile shared.json --workers 2
refused_in_job "--layers: expected nothing inside a job" profile --model lenet5 --layers 0..1
run 0 launch -n 2 -- profile --model lenet5 --analytic --device a100
[ "$(grep -c '^total' out)" -eq 1 ] || fail "not one table: $(cat out)"

# Ranks with other options are refused, both are named.
run 0 profile --model lenet5 --samples 1
port=$(( 20000 + RANDOM % 20000 ))
for rank in 0 1; do
  RANK=$rank WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
    "$PENSTOCK" profile --model lenet5 --samples $((rank + 1)) >out$rank 2>err$rank &
  pids[rank]=$!
done
for rank in 0 1; do
  wait "${pids[rank]}" && fail "rank $rank accepts other options"
done
grep -q "must have the same options: --samples: rank 0 has 1" err0 || fail "$(cat err0)"
finish

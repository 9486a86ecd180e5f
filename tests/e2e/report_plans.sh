# Plans for the tests of `penstock report`, written by hand:
# make_plan STAGES MICRO_BATCHES STRATEGY WEIGHTS [HOSTS] >plan.json
make_plan() {
  local stages=$1 micro_batches=$2 strategy=$3 weights=$4 hosts=${5:-} s worker
  local workers=$stages
  [ -n "$hosts" ] && workers=$(tr ',' '\n' <<<"$hosts" | sort -n | tail -n 1) &&
    workers=$((workers + 1))
  printf '{"format": "penstock-plan", "version": 3, "model": "chain",'
  printf ' "strategy": "%s", "weights": "%s",\n' "$strategy" "$weights"
  printf ' "cost_model": "penstock", "throughput_samples_per_s": 900,'
  printf ' "bottleneck_ns": 12000000, "latency_ns": 0, "idle_share": 0.1,\n'
  printf ' "micro_batch_size": 8, "micro_batches": %s, "depth": %s, "hosts": [%s],\n "stages": [' \
    "$micro_batches" "$stages" "$hosts"
  for ((s = 0; s < stages; ++s)); do
    [ "$s" -gt 0 ] && printf ',\n  '
    worker=$([ -n "$hosts" ] && echo -1 || echo "$s")
    printf '{"layers": ["conv%s", "relu%s"], "replicas": 1,' "$s" "$s"
    printf ' "forward_ns": %s, "backward_ns": %s, "backward_weight_ns": %s,' \
      $((4000000 + s % 3 * 300000)) $((8000000 + s % 3 * 600000)) $((4000000 + s % 3 * 300000))
    printf ' "step_ns": 500000, "sync_ns": 0, "weight_bytes": 1000000, "stash_bytes": 3000000,'
    printf ' "memory_bytes": 40000000, "first_worker": %s}' "$worker"
  done
  printf '],\n "links": ['
  for ((s = 1; s < stages; ++s)); do
    [ "$s" -gt 1 ] && printf ', '
    printf '{"from": %s, "to": %s, "bytes": 200000}' $((s - 1)) "$s"
  done
  printf '],\n "alternatives": [{"strategy": "dp", "config": "%s",' "$workers"
  printf ' "throughput_samples_per_s": 500, "note": "<b>slow</b>"}],\n'
  printf ' "cluster": {"levels": [{"name": "server", "count": %s,' "$workers"
  printf ' "bandwidth_bytes_per_s": 9000000000, "latency_ns": 20000, "by_reference": false}],'
  printf ' "device": {"name": "any", "memory_bytes": 0, "speed": 1.0}, "device_groups": [],'
  printf ' "cpu_machines": {"count": 0, "bandwidth_bytes_per_s": 0}},\n "notes": []}\n'
}

# A run of 40 steps and 3 epochs.
make_history() {
  local k
  printf '{"format": "penstock-history", "version": 1, "model": "chain", "strategy": "1f1b",'
  printf ' "throughput_samples_per_s": 870, "steps": ['
  for ((k = 1; k <= 40; ++k)); do
    [ "$k" -gt 1 ] && printf ,
    printf '{"step": %s, "loss": %s.5, "learning_rate": 0.1, "grad_norm": %s}' \
      "$k" $((50 - k)) $((k % 7))
  done
  printf '], "epochs": ['
  for ((k = 1; k <= 3; ++k)); do
    [ "$k" -gt 1 ] && printf ,
    printf '{"epoch": %s, "train_loss": 2, "train_accuracy": 0.%s, "test_accuracy": 0.%s}' \
      "$k" $((4 + k)) $((3 + k))
  done
  printf ']}\n'
}

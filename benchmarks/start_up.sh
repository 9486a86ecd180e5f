#!/usr/bin/env bash
# How long commands take that need no libtorch: start_up.sh [PENSTOCK] [RUNS]
#
# Median, lowest and highest milliseconds from start to exit on a small input (two layers, two
# workers), 21 runs each unless said otherwise.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
penstock=$(realpath "${1:-$here/../build/release/penstock}")
runs=${2:-21}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

layer='Linear -- forward_compute_time=1.0, backward_compute_time=2.0, activation_size=4096.0'
printf 'node%d -- %s, parameter_size=4096.0\n' 1 "$layer" 2 "$layer" >graph.txt
printf '\tnode1 -- node2\n' >>graph.txt
"$penstock" plan --profile graph.txt --workers 2 --bandwidth 10Gbps -o plan.json >/dev/null
"$penstock" schedule --kind 1f1b --stages 2 --micro-batches 4 -o schedule.txt >/dev/null

while read -r command; do
  for _ in $(seq "$runs"); do
    begin=${EPOCHREALTIME//[.,]/}
    # shellcheck disable=SC2086
    "$penstock" $command >/dev/null 2>&1 || true
    echo $((${EPOCHREALTIME//[.,]/} - begin))
  done | sort -n | awk -v command="$command" '
    { us[NR] = $1 }
    function ms(i) { return us[i] / 1000 }
    END { printf "%-56s %7.1f ms (%.1f..%.1f)\n", command, ms(int((NR + 1) / 2)), ms(1), ms(NR) }'
done <<'END'
--help
--version
train --help
train --no-such-option
probe --help
plan --profile graph.txt --workers 2 --bandwidth 10Gbps
schedule --kind 1f1b --stages 2 --micro-batches 4
verify schedule.txt
simulate --plan plan.json --mini-batches 2
report --plan plan.json
models
END

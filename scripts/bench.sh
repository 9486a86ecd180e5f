#!/usr/bin/env bash
# Builds Penstock and measures it against its own predictions and against PyTorch.
set -Eeuo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
trap 'report_failure "$LINENO" "$BASH_COMMAND"' ERR

usage() {
  cat <<'HELP'
usage: scripts/bench.sh [--no-install] [OPTIONS OF benchmarks/run_bench.py]

Installs what is missing, PyTorch's wheel into build/venv among it, builds the release preset with
that libtorch, runs every comparison in turn for several rounds, prints one table and writes
bench-results/bench.json. Takes about an hour on two cores; let nothing else run meanwhile.
Exit code: 0 all targets met, 1 some missed, 3 a program failed.

  --rounds N     rounds (default 5)
  --models M...  mlp, vgg_small (default both)
  --no-peers     only Penstock's own rows
  --only WHAT    comparisons, predictions (measured against predicted throughput) or schedules
                 (idle share, gain of a split backward pass)
  --quick        tiny sizes, to see that everything runs
  --another-penstock FILE
                 a second binary to compare with, such as one with another libtorch
  -o FILE        where the JSON goes (default ./bench-results/bench.json)
HELP
}

install=yes
options=()
for option in "$@"; do
  case "$option" in
    --no-install) install=no ;;
    -h | --help) usage; exit 0 ;;
    *) options+=("$option") ;;
  esac
done

cd "$REPO_ROOT"
if [[ "$install" == yes ]]; then
  scripts/install-deps.sh --wheel --bench
fi
choose_torch wheel
configure_and_build "release$torch_preset" penstock
cd "$CALLER_FOLDER"
run python3 "$REPO_ROOT/benchmarks/run_bench.py" "${options[@]}" || exit $?

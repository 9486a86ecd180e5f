#!/usr/bin/env bash
# Builds Penstock for CUDA and runs the GPU tests and measurements of a machine that has a GPU.
set -Eeuo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
trap 'report_failure "$LINENO" "$BASH_COMMAND"' ERR

usage() {
  cat <<'HELP'
usage: scripts/gpu-check.sh [--torch FOLDER] [--build-only] [--steps N] [--rounds N] [-o FILE]

On a machine with a GPU: builds with a libtorch for CUDA, runs the tests labelled `gpu`, probes the
GPUs, compares training with PyTorch, two workers on a card with one, and measurement with
prediction, streams without and with CUDA graphs (benchmarks/gpu), prints one table and writes one
JSON file.
Exit code: 0 all passed, 1 a test or a run failed, 2 it cannot be built, 77 there is no GPU.

  --torch FOLDER  a libtorch for CUDA, as of scripts/test.sh (default: that of python3)
  --build-only    build, and do not look for a GPU
  --steps N       optimiser steps of each run (default 100)
  --rounds N      rounds in which programs take turns (default 3)
  -o FILE         where the JSON goes (default ./bench-results/gpu-check.json)
HELP
}

torch=""
build_only=no
steps=100
rounds=3
output="$CALLER_FOLDER/bench-results/gpu-check.json"
while (($# > 0)); do
  case "$1" in
    --torch) need_value "$1" $#; torch=$2; shift ;;
    --build-only) build_only=yes ;;
    --steps) need_value "$1" $#; steps=$2; shift ;;
    --rounds) need_value "$1" $#; rounds=$2; shift ;;
    -o) need_value "$1" $#; output=$(cd "$CALLER_FOLDER" && realpath -m "$2"); shift ;;
    -h | --help) usage; exit 0 ;;
    *) die "unknown option '$1' (try --help)" ;;
  esac
  shift
done
[[ "$steps" =~ ^[1-9][0-9]{0,6}$ ]] || die "--steps: expected 1 to 9999999, found '$steps'"
[[ "$rounds" =~ ^[1-9][0-9]{0,3}$ ]] || die "--rounds: expected 1 to 9999, found '$rounds'"

gpus=""
if [[ "$build_only" == no ]]; then
  gpus="$(nvidia-smi -L 2>/dev/null || true)"
  if [[ "$gpus" != *"GPU 0"* ]]; then
    say "This machine has no GPU that nvidia-smi can see: nothing is checked (--build-only builds)"
    exit 77
  fi
fi
if [[ -z "$torch" ]]; then
  torch="$(python3 -c 'import torch; print(torch.__path__[0])' 2>/dev/null)" ||
    die "--torch FOLDER: python3 has no torch; name a libtorch for CUDA"
fi

choose_torch "$torch"
[[ -e "$REPO_ROOT/build/torch-path/lib/libtorch_cuda.so" ]] ||
  die "--torch: $torch is a libtorch for the CPU: lib/libtorch_cuda.so is missing"
cd "$REPO_ROOT"
preset="release$torch_preset"
configure_and_build "$preset" penstock runtime_gpu_test stream_gpu_test
[[ "$build_only" == no ]] || exit 0

folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
status=0
tests=passed
run ctest --test-dir "build/$preset" --output-on-failure --no-tests=error --label-regex '^gpu$' \
  >&2 || { tests=failed; status=1; }

run "build/$preset/penstock" probe --device cuda --json >"$folder/probe.json" || status=1

# The Python that the libtorch belongs to, if it does to one.
python="$(realpath "$REPO_ROOT/build/torch-path")/../../../../bin/python"
[[ -x "$python" ]] || python=python3
run "$python" benchmarks/gpu/run_gpu.py --penstock "build/$preset/penstock" --python "$python" \
  --steps "$steps" --rounds "$rounds" -o "$folder/runs.json" || status=1

mkdir -p "$(dirname "$output")"
python3 - "$folder" "$output" "$tests" <<'PYTHON'
import json, pathlib, sys

folder, output, tests = sys.argv[1:]


def read(name):
    path = pathlib.Path(folder, name)
    return json.loads(path.read_text() or "{}") if path.exists() else {}


probe = read("probe.json")
print(f"\ntests labelled gpu: {tests}")
if probe:
    print(f"\n{probe['cluster_toml']}")
pathlib.Path(output).write_text(
    json.dumps({"tests": tests, "probe": probe, **read("runs.json")}, indent=1) + "\n")
print(f"\n{output}")
PYTHON
exit "$status"

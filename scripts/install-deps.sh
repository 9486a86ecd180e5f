#!/usr/bin/env bash
# Installs what Penstock needs from Debian's packages; does nothing when all of it is there.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage() {
  cat <<'HELP'
usage: scripts/install-deps.sh [--core] [--wheel] [--bench] [--dev] [--list]

Installs the packages that are missing (Debian 12 or a relative of it with apt), as root or through
sudo.

  (no option)  everything to build, test and run Penstock
  --core       only what the torch-free part needs (planning, schedules, simulation)
  --wheel      also Python's virtual environments, for --torch wheel of the other scripts, which
               install PyTorch, NumPy and tokenizers there by pip
  --bench      also PyTorch for Python, which the benchmarks compare with
  --dev        also clang (fuzz targets, second compiler), clang-format, clang-tidy, doxygen (API
               reference) and Chromium (tests of the pages)
  --list       print the packages and whether they are installed; change nothing
HELP
}

core=(
  "cmake|configures the build"
  "ninja-build|runs the build"
  "g++|compiles C++20"
  "ccache|makes the second build quick"
  "lld|links quickly"
  "git|versions"
  "pkg-config|finds libraries"
  "libcli11-dev|command-line options"
  "nlohmann-json3-dev|JSON files"
  "libtomlplusplus-dev|cluster files in TOML"
  "libfmt-dev|text formatting"
  "libspdlog-dev|logging"
  "libasio-dev|connections between processes"
  "libssl-dev|encrypted connections and proofs of a secret"
  "libmicrohttpd-dev|serves the live page of a stream"
  "zlib1g-dev|checksums and compressed data sets"
  "libsentencepiece-dev|vocabularies of texts"
  "libfreetype-dev|pictures of emoji, for captioned clips"
  "libgtest-dev|unit tests"
  "libgmock-dev|unit tests"
  "librapidcheck-dev|property tests"
  "libbenchmark-dev|micro-benchmarks"
)
torch=(
  "libtorch-dev|tensors and automatic differentiation"
  "libgloo-dev|Gloo, which can carry messages between ranks"
  "libopenblas-openmp-dev|fast matrix products"
  "libgoogle-perftools-dev|tcmalloc, an allocator that keeps freed pages"
  "dataset-fashion-mnist|the data that the demo trains on"
  "openmpi-bin|mpirun, which starts the ranks of train --fabric mpi"
  "libopenmpi-dev|MPI, which carries messages between them"
  "libopencv-imgcodecs-dev|folders of images as streams"
  "libopencv-videoio-dev|cameras"
  "libavformat-dev|video files and streams"
  "libswscale-dev|their pixel formats"
)
wheel=(
  "python3|runs pip"
  "python3-venv|a place for the wheels of PyTorch and tokenizers"
  "python3-dev|the Python package"
)
bench=(
  "python3|runs the benchmark driver"
  "iproute2|hosts and links of the network laboratory"
)
dev=(
  "clang|second compiler and fuzz targets"
  "libclang-rt-14-dev|sanitizer and fuzzer runtimes for clang"
  "clang-format|code layout"
  "clang-tidy|static checks"
  "doxygen|API reference"
  "chromium|loads the report and the live page in tests"
)

wanted=("${core[@]}" "${torch[@]}")
list_only=no
extras=()
while (($# > 0)); do
  case "$1" in
    --core) wanted=("${core[@]}") ;;
    --wheel) extras+=("${wheel[@]}") ;;
    --bench) extras+=("${bench[@]}") ;;
    --dev) extras+=("${dev[@]}") ;;
    --list) list_only=yes ;;
    -h | --help) usage; exit 0 ;;
    *) die "unknown option '$1' (try --help)" ;;
  esac
  shift
done
wanted+=("${extras[@]}")

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  die "this is not a Debian-like system (no apt). Install these by hand, under your system's" \
    "names: ${wanted[*]%%|*}"
fi

is_installed() { [[ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" == installed ]]; }

missing=()
for entry in "${wanted[@]}"; do
  package="${entry%%|*}"
  reason="${entry#*|}"
  if is_installed "$package"; then
    [[ "$list_only" == no ]] || printf '%-26s installed  %s\n' "$package" "$reason"
  else
    missing+=("$package")
    printf '%-26s missing    %s\n' "$package" "$reason" >&2
  fi
done
[[ "$list_only" == no ]] || exit 0
((${#missing[@]} > 0)) || exit 0

as_root=()
if ((EUID != 0)); then
  command -v sudo >/dev/null ||
    die "these packages are missing: ${missing[*]}. Run this script as root, or install sudo"
  as_root=(sudo)
fi

# A mirror that does not answer for a moment should not end a build.
apt_get() {
  run "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o Acquire::Retries=3 \
    -o DPkg::Lock::Timeout=120 -o Dpkg::Use-Pty=0 "$@" </dev/null
}

say "Installing ${#missing[@]} package(s): ${missing[*]}"
apt_get update ||
  printf 'warning: apt-get update failed; going on with the lists that are here\n' >&2
apt_get install -y --no-install-recommends "${missing[@]}" ||
  die "apt-get could not install: ${missing[*]}. Penstock is made for Debian 12 (bookworm);" \
    "see docs/dependencies.md for the versions it needs"

# shellcheck shell=bash disable=SC2034
# Shared by the scripts beside it: where the repository is, how to say things, how to stop with a
# readable error. Sourced, never run.

REPO_ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
readonly REPO_ROOT

say() { printf '\n==> %s\n' "$*" >&2; }

die() {
  printf 'error: %s\n' "$*" >&2
  exit 2
}

# Names the command that failed; bash alone would stop without a word.
report_failure() {
  local status=$? line=$1 command=$2
  printf 'error: %s stopped at line %s (exit code %s): %s\n' \
    "$(basename "$0")" "$line" "$status" "$command" >&2
}

# quote_words WORD...: the words as one would type them in a shell.
quote_words() {
  local word text=""
  for word in "$@"; do
    if [[ "$word" =~ ^[A-Za-z0-9_./:=,@%+-]+$ ]]; then
      text+=" $word"
    else
      text+=" '${word//\'/\'\\\'\'}'"
    fi
  done
  printf '%s' "${text# }"
}

# run COMMAND...: shows the command, then runs it.
run() {
  printf '\n$ %s\n' "$(quote_words "$@")" >&2
  "$@"
}

# How many compilers fit: one per core, but a file that includes libtorch takes about 1.5 GB.
build_jobs() {
  local cores memory_kb jobs
  cores="$(nproc)"
  memory_kb="$(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo 2>/dev/null || true)"
  jobs=$cores
  if [[ -n "$memory_kb" ]] && ((memory_kb / 1500000 < jobs)); then jobs=$((memory_kb / 1500000)); fi
  ((jobs >= 1)) || jobs=1
  printf '%s' "$jobs"
}

# need_value OPTION COUNT: an option that takes a value must be followed by one.
need_value() {
  (($2 >= 2)) || die "$1 needs a value (try --help)"
}

# configure_and_build PRESET [TARGET...]: one of the presets of CMakePresets.json, into
# build/PRESET.
configure_and_build() {
  local preset=$1
  shift
  local targets=()
  if (($# > 0)); then targets=(--target "$@"); fi
  run cmake --preset "$preset" --log-level=WARNING
  run cmake --build --preset "$preset" --parallel "$(build_jobs)" "${targets[@]}"
}

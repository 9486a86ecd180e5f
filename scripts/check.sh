#!/usr/bin/env bash
# Everything that a change is held against, part by part, and a table of what came of it.
set -uo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

readonly all_parts=(format house docs clang-tidy core-clang wheel asan tsan fuzz)

usage() {
  cat <<'HELP'
usage: scripts/check.sh [--only PART[,PART...]] [--skip PART[,PART...]] [--fuzz-seconds N]
                        [--tests REGEX]

Runs these parts one after the other and says at the end what passed, failed or was skipped, why,
and how long it took. Exit code 1 if a part failed, 0 otherwise, 2 for a wrong option.

  format      scripts/format.sh --check
  house       the checks of tests/tidy: includes, printing, memory, columns, tables...
  docs        scripts/docs.sh: the API reference, without a warning
  clang-tidy  the checks of .clang-tidy over the torch-free part
  core-clang  the torch-free part by clang, warnings are errors, and its tests
  wheel       scripts/wheel.sh --check: a wheel, in fresh virtual environments
  asan        everything with address and undefined-behaviour sanitizers, and its tests
  tsan        everything with the thread sanitizer, and its unit tests
  fuzz        each parser, and the planner, under libFuzzer

  --only, --skip    which parts; default: all
  --fuzz-seconds N  seconds per fuzz target (default 60)
  --tests REGEX     of asan and tsan, only the tests whose names match

Needs scripts/install-deps.sh --dev; a part whose tools are missing is skipped. The two sanitizers
build everything once more: allow an hour on two cores.
HELP
}

wanted=("${all_parts[@]}")
skipped=()
fuzz_seconds=60
tests=""
# check_parts OPTION LIST: stops at a name that is no part.
check_parts() {
  local part
  for part in ${2//,/ }; do
    [[ " ${all_parts[*]} " == *" $part "* ]] ||
      die "$1: there is no part '$part'; expected some of ${all_parts[*]}"
  done
}
while (($# > 0)); do
  case "$1" in
    --only | --skip)
      need_value "$1" $#
      check_parts "$1" "$2"
      if [[ "$1" == --only ]]; then wanted=(${2//,/ }); else skipped=(${2//,/ }); fi
      shift
      ;;
    --fuzz-seconds)
      need_value "$1" $#
      [[ "$2" =~ ^[1-9][0-9]{0,5}$ ]] || die "$1: expected a whole number of at least 1, found '$2'"
      fuzz_seconds=$2
      shift
      ;;
    --tests) need_value "$1" $#; tests=$2; shift ;;
    -h | --help) usage; exit 0 ;;
    *) die "unknown option '$1' (try --help)" ;;
  esac
  shift
done
cd "$REPO_ROOT" || exit 2

# A part returns 0 (passed), 1 (failed) or calls skip. What it has to say goes into `note`.
note=""
skip() { note=$1; return 77; }
have() { command -v "$1" >/dev/null || skip "no $1: scripts/install-deps.sh --dev"; }

run_format() {
  have clang-format || return
  run scripts/format.sh --check
}

run_wheel() { run scripts/wheel.sh --check -o build/wheel/dist; }

run_house() {
  local check status=0
  for check in includes rooms torch printing exits memory headers strategies tables columns \
    options budget sentences; do
    run bash tests/tidy/tidy.sh "$check" . || { status=1; note+="${note:+, }$check"; }
  done
  run bash tests/tidy/tidy_self_test.sh || { status=1; note+="${note:+, }self test"; }
  return "$status"
}

run_docs() {
  have doxygen || return
  run scripts/docs.sh
}

# clang 14 cannot parse libtorch's headers as C++20, so only files of the torch-free build are seen;
# tests are left out because GoogleTest's macros do not keep these rules.
run_clang_tidy() {
  have clang-tidy || return
  have clang++ || return
  run cmake --preset core-clang --log-level=WARNING || return 1
  local files commands=build/core-clang/compile_commands.json
  mapfile -t files < <(sed -n 's/^ *"file": "\(.*\)".*/\1/p' "$commands" |
    grep -E "^$REPO_ROOT/(penstock|tools|examples)/" | grep -vE '_test\.cpp$|/testing_' | sort -u)
  ((${#files[@]} > 0)) || { note="no files in compile_commands.json"; return 1; }
  note="${#files[@]} files"
  printf '\n$ clang-tidy -p build/core-clang ... (%s)\n' "$note" >&2
  printf '%s\0' "${files[@]}" |
    xargs -0 -n 1 -P "$(build_jobs)" clang-tidy -p build/core-clang --quiet 2>/dev/null || return 1
}

# with_tests PRESET [CTEST OPTION...]: builds and runs the quick tests.
with_tests() {
  local preset=$1
  shift
  configure_and_build "$preset" || { note="does not build"; return 1; }
  [[ -z "$tests" ]] || set -- "$@" --tests-regex "$tests"
  run ctest --test-dir "build/$preset" --output-on-failure --no-tests=error --no-label-summary \
    --parallel "$(nproc)" --label-exclude 'slow|tidy' "$@" || { note="tests fail"; return 1; }
}

run_core_clang() {
  have clang++ || return
  local tests=""
  with_tests core-clang
}

# What is suppressed has its reason and a date in tests/support/tsan.supp.
run_asan() { with_tests asan; }
run_tsan() {
  TSAN_OPTIONS="suppressions=$REPO_ROOT/tests/support/tsan.supp" \
    with_tests tsan --label-regex 'unit'
}

run_fuzz() {
  have clang++ || return
  configure_and_build fuzz || { note="does not build"; return 1; }
  local target name status=0 count=0 found
  mkdir -p build/fuzz/found
  for target in build/fuzz/tests/fuzz/fuzz_*; do
    [[ -f "$target" && -x "$target" ]] || continue
    name="${target##*/fuzz_}"
    found="build/fuzz/found/$name"
    mkdir -p "$found"
    count=$((count + 1))
    # New inputs go to the first folder, the saved ones are only read.
    run "$target" -max_total_time="$fuzz_seconds" -timeout=20 -rss_limit_mb=2048 \
      -artifact_prefix="build/fuzz/found/$name-" "$found" "tests/fuzz/corpus/$name" \
      >"build/fuzz/found/$name.log" 2>&1 || {
      tail -n 40 "build/fuzz/found/$name.log"
      status=1
      note+="${note:+, }$name"
    }
  done
  ((count > 0)) || { note="no fuzz targets"; return 1; }
  ((status == 1)) || note="$count targets, $fuzz_seconds s each"
  return "$status"
}

results=()
failed=no
for part in "${all_parts[@]}"; do
  [[ " ${wanted[*]} " == *" $part "* ]] || continue
  note=""
  started=$SECONDS
  if [[ " ${skipped[*]-} " == *" $part "* ]]; then
    verdict=skipped
    note="--skip"
  else
    say "$part"
    "run_${part//-/_}"
    case $? in
      0) verdict=passed ;;
      77) verdict=skipped ;;
      *) verdict=FAILED; failed=yes ;;
    esac
  fi
  results+=("$(printf '%-11s %-8s %6s s  %s' "$part" "$verdict" $((SECONDS - started)) "$note")")
done
printf '\n%-11s %-8s %8s\n' part result time
printf '%s\n' "${results[@]}"
[[ "$failed" == no ]]

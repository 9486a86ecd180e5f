#!/usr/bin/env bash
# Installs what is missing, builds, and runs the tests.
set -Eeuo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
trap 'report_failure "$LINENO" "$BASH_COMMAND"' ERR

usage() {
  cat <<'HELP'
usage: scripts/test.sh [--preset NAME] [--label NAME] [--all] [--no-install]

Installs what is missing, configures and builds build/NAME, and runs the quick tests (all but those
labelled `slow`).

  --preset NAME  release (default), dev, core (torch-free), asan, tsan, fuzz: see CMakePresets.json
  --label NAME   only the tests with this label: unit, property, e2e, tidy, install, slow
  --all          the slow tests too
  --no-install   do not look for missing packages
HELP
}

preset=release
label=""
all=no
install=yes
while (($# > 0)); do
  case "$1" in
    --preset) need_value "$1" $#; preset=$2; shift ;;
    --label) need_value "$1" $#; label=$2; shift ;;
    --all) all=yes ;;
    --no-install) install=no ;;
    -h | --help) usage; exit 0 ;;
    *) die "unknown option '$1' (try --help)" ;;
  esac
  shift
done
grep -q "\"name\": \"$preset\", \"inherits\"" "$REPO_ROOT/CMakePresets.json" ||
  die "there is no preset '$preset' in CMakePresets.json"

cd "$REPO_ROOT"
if [[ "$install" == yes ]]; then
  case "$preset" in
    core) scripts/install-deps.sh --core ;;
    fuzz) scripts/install-deps.sh --core --dev ;;
    *) scripts/install-deps.sh ;;
  esac
fi
configure_and_build "$preset"

selection=()
if [[ -n "$label" ]]; then
  selection=(--label-regex "^$label\$")
elif [[ "$all" == no ]]; then
  selection=(--label-exclude '^slow$')
fi
run ctest --test-dir "build/$preset" --output-on-failure --no-tests=error --no-label-summary \
  --parallel "$(nproc)" "${selection[@]}" || exit $?

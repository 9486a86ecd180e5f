#!/usr/bin/env bash
# Installs what is missing, builds, and runs the tests.
set -Eeuo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
trap 'report_failure "$LINENO" "$BASH_COMMAND"' ERR

usage() {
  cat <<'HELP'
usage: scripts/test.sh [--preset NAME] [--torch NAME] [--torch-version VERSION] [--label NAME]
                       [--all] [--no-install]

Installs what is missing, configures and builds build/NAME, and runs the quick tests (all but those
labelled `slow`).

  --preset NAME  release (default), dev, core (torch-free), asan, tsan, fuzz: see CMakePresets.json
  --torch NAME   the libtorch to build with: debian (default; the package libtorch-dev), wheel (out
                 of PyTorch's wheel, installed into build/venv), both, or the folder of any other
                 one, such as that of `python3 -c 'import torch; print(torch.__path__[0])'`;
                 all but debian need the preset release
  --torch-version VERSION
                 with --torch wheel or both: of PyTorch's wheel (default: 2.13.0), in a virtual
                 environment and a build folder of its own
  --label NAME   only the tests with this label: unit, property, e2e, tidy, install, slow
  --all          the slow tests too
  --no-install   do not look for missing packages
HELP
}

preset=release
torch=debian
label=""
all=no
install=yes
while (($# > 0)); do
  case "$1" in
    --preset) need_value "$1" $#; preset=$2; shift ;;
    --torch) need_value "$1" $#; torch=$2; shift ;;
    --torch-version) need_value "$1" $#; check_torch_version "$2"; torch_version=$2; shift ;;
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

[[ "$torch" == debian || "$preset" == release ]] ||
  die "--torch $torch needs --preset release, found --preset $preset"
[[ "$torch_version" == "$TORCH_WHEEL_VERSION" || "$torch" == wheel || "$torch" == both ]] ||
  die "--torch-version needs --torch wheel or both, found --torch $torch"
torches=("$torch")
[[ "$torch" != both ]] || torches=(wheel debian)

cd "$REPO_ROOT"
export PENSTOCK_PROFILE_CACHE=off  # tests measure anew, and nothing is left with the user
say "What comes"
if [[ "$install" == yes ]]; then
  step "install the packages that are missing" "some minutes, the first time"
fi
for one in "${torches[@]}"; do
  built="$preset"
  [[ "$preset" != release ]] || built="$(preset_for "$one")"
  minutes=$FULL_BUILD_MINUTES
  [[ "$preset" != core && "$preset" != fuzz ]] || minutes=$CORE_BUILD_MINUTES
  step "build $built with its tests" "$(build_time "$built" "$minutes")"
  step "run them" "$([[ "$all" == yes ]] && echo "an hour or more" || echo "some minutes")"
done

if [[ "$install" == yes ]]; then
  case "$preset" in
    core) scripts/install-deps.sh --core ;;
    fuzz) scripts/install-deps.sh --core --dev ;;
    *)
      if [[ "${torches[*]}" == *wheel ]]; then
        scripts/install-deps.sh --wheel
      else
        scripts/install-deps.sh
      fi
      ;;
  esac
fi

# With the second libtorch: the programs, the tests of what differs between libtorchs, and training
# as a user starts it. Everything else has been tested with the first one.
test_what_differs() {
  configure_options=(-DPENSTOCK_TORCH_FREE_TESTS=OFF)
  configure_and_build "$preset$torch_preset" penstock penstock-train model_test model_device_test
  local folder="build/$preset$torch_preset"
  run_tests "$folder/lib/model" --label-exclude '^slow$'
  run_tests "$folder/tests/e2e" --tests-regex \
    '^e2e\.(data|precision|resume|serial_check|train_plans|tutorial)$'
}

# run_tests FOLDER SELECTION...
run_tests() {
  local folder=$1
  shift
  run ctest --test-dir "$folder" --output-on-failure --no-tests=error --no-label-summary \
    --parallel "$(nproc)" "$@"
}

for i in "${!torches[@]}"; do
  choose_torch "${torches[i]}"
  if ((i > 0)) && [[ -z "$label" && "$all" == no ]]; then
    test_what_differs
    continue
  fi
  left_out=()
  [[ "$all" == yes ]] || left_out+=(slow)
  configure_and_build "$preset$torch_preset"
  selection=()
  if [[ -n "$label" ]]; then
    selection=(--label-regex "^$label\$")
  elif ((${#left_out[@]} > 0)); then
    selection=(--label-exclude "^($(IFS='|'; printf '%s' "${left_out[*]}"))\$")
  fi
  run_tests "build/$preset$torch_preset" "${selection[@]}"
done

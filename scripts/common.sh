# shellcheck shell=bash disable=SC2034
# Shared by the scripts beside it: where the repository is, how to say things, how to stop with a
# readable error. Sourced, never run.

REPO_ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
readonly REPO_ROOT
CALLER_FOLDER="$(pwd)"
readonly CALLER_FOLDER

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

# Minutes of one core that a build takes without compiler cache, roughly: the two programs, the
# torch-free part with its tests, and all of it with its tests.
readonly PROGRAMS_BUILD_MINUTES=17 CORE_BUILD_MINUTES=20 FULL_BUILD_MINUTES=40

# build_time PRESET MINUTES: how long the build of a preset will take, in words.
build_time() {
  local minutes=$((($2 + $(build_jobs) - 1) / $(build_jobs)))
  if [[ -f "$REPO_ROOT/build/$1/build.ninja" ]]; then
    printf 'what has changed since the last build; everything would take about %s min' "$minutes"
  else
    printf 'about %s min on %s core(s), the first time' "$minutes" "$(build_jobs)"
  fi
}

# step TEXT TIME: a row of the list of what a script is going to do.
step() { printf '  %-46s %s\n' "$1" "$2" >&2; }

# need_value OPTION COUNT: an option that takes a value must be followed by one.
need_value() {
  (($2 >= 2)) || die "$1 needs a value (try --help)"
}

# The version of PyTorch's wheel that is built and tested beside Debian's libtorch. A script with
# --torch-version sets torch_version to another one, which gets a virtual environment of its own.
readonly TORCH_WHEEL_VERSION=2.13.0
torch_version=$TORCH_WHEEL_VERSION

# torch_venv: the virtual environment that the wheel of torch_version is in.
torch_venv() {
  local name=venv
  [[ "$torch_version" == "$TORCH_WHEEL_VERSION" ]] || name="venv-$torch_version"
  printf '%s' "$REPO_ROOT/build/$name"
}

# check_torch_version VERSION: what --torch-version was given.
check_torch_version() {
  [[ "$1" =~ ^2\.[0-9]{1,2}\.[0-9]{1,2}$ ]] ||
    die "--torch-version: expected a version of PyTorch such as 2.15.0, found '$1'"
}

# torch_suffix NAME: what the name of a preset ends in for this libtorch.
torch_suffix() {
  [[ "$1" != debian ]] || return 0
  if [[ "$1" == wheel && "$torch_version" == "$TORCH_WHEEL_VERSION" ]]; then
    printf -- -wheel
  else
    printf -- -torch
  fi
}

# choose_torch NAME: sets torch_preset, what a preset's name ends in for this libtorch, and makes it
# findable where CMakePresets.json looks: debian (the package), wheel (out of a virtual environment
# in build/), or a folder.
choose_torch() {
  local link=torch-path
  torch_preset="$(torch_suffix "$1")"
  case "$1" in
    debian) ;;
    wheel)
      install_torch_wheel "$(torch_venv)"
      [[ "$torch_preset" != -wheel ]] || link=torch-wheel
      link_torch "$link" "$(torch_folder "$(torch_venv)")"
      ;;
    */* | .*) link_torch "$link" "$(torch_folder "$1")" ;;
    *) die "--torch: expected debian, wheel or a folder such as ./libtorch, found '$1'" ;;
  esac
}

# preset_for TORCH: the preset of CMakePresets.json that builds with this libtorch.
preset_for() { printf 'release%s' "$(torch_suffix "$1")"; }

# torch_folder FOLDER: where in it, or in the Python that it belongs to, libtorch is. Runs in a
# subshell.
torch_folder() {
  local folder
  cd "$CALLER_FOLDER"
  for folder in "$1" "$1"/torch "$1"/lib/python3*/site-packages/torch; do
    if [[ -e "$folder/share/cmake/Torch/TorchConfig.cmake" ]]; then
      cd "$folder" && pwd
      return
    fi
  done
  die "--torch: there is no libtorch in $1: looked for share/cmake/Torch/TorchConfig.cmake in it," \
    "in its folder torch and in its lib/python3*/site-packages/torch"
}

# link_torch NAME FOLDER: build/NAME is that libtorch from now on.
link_torch() {
  mkdir -p "$REPO_ROOT/build"
  ln -sfn "$2" "$REPO_ROOT/build/$1"
}

# install_torch_wheel VENV: PyTorch torch_version; NumPy, without which it warns; tokenizers, which
# tests of penstock.text read tokenizer.json with. What is installed is noted, so that a second call
# does nothing.
install_torch_wheel() {
  local venv=$1
  local note="$venv/penstock-torch"
  local packages=("torch==$torch_version" "numpy<3" "tokenizers<1")
  [[ "$(cat "$note" 2>/dev/null)" == "${packages[*]}" ]] && return
  command -v python3 >/dev/null ||
    die "--torch wheel needs python3 (scripts/install-deps.sh --wheel)"
  say "Install ${packages[0]} into ${venv#"$REPO_ROOT/"} (several GB from an index that has only" \
    "builds for GPUs)"
  run python3 -m venv "$venv" ||
    die "python3 cannot make a virtual environment (scripts/install-deps.sh --wheel)"
  run "$venv/bin/python" -m pip install --disable-pip-version-check --quiet "${packages[@]}" ||
    die "pip could not install ${packages[*]}"
  printf '%s\n' "${packages[*]}" >"$note"
}

# configure_and_build PRESET [TARGET...]: one of the presets of CMakePresets.json, into
# build/PRESET, with $configure_options.
configure_options=()
configure_and_build() {
  local preset=$1
  shift
  local targets=()
  if (($# > 0)); then targets=(--target "$@"); fi
  run cmake --preset "$preset" --log-level=WARNING "${configure_options[@]}"
  # Done, of all, and since when.
  export NINJA_STATUS="[%f of %t, %p, %e s] "
  run cmake --build --preset "$preset" --parallel "$(build_jobs)" "${targets[@]}"
}

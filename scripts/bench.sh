#!/usr/bin/env bash
# Builds Penstock and measures it against its own predictions, against PyTorch, and against the last
# commit.
set -Eeuo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
trap 'report_failure "$LINENO" "$BASH_COMMAND"' ERR

usage() {
  cat <<'HELP'
usage: scripts/bench.sh [--no-install] [OPTIONS OF benchmarks/run_bench.py]
       scripts/bench.sh --guard [--no-install] [--against BINARY|COMMIT] [OPTIONS OF
                        benchmarks/guard.py]

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

With --guard: has the working tree become slower, or larger in memory? Nine short paired
comparisons, 2 to 3 minutes once both binaries are there. Exit code: 0 as good, 1 worse, 3 failed.

  --against X    a binary, or a commit (default: the last one; without changes, the one before).
                 A commit is built once and kept in build/guard/COMMIT, with the compiler cache. The
                 binary of a tree without changes is kept there, too: the next call needs no build.
  --only ROW...  these rows
  --json         print JSON instead of the table
HELP
}

# guard_commit NAME: the commit that this names.
guard_commit() {
  git rev-parse --verify --quiet "$1^{commit}" ||
    die "--against: expected a program or a commit, found '$1'"
}

has_changes() { [[ -n "$(git status --porcelain)" ]]; }

# keep_programs BUILD COMMIT: what a build made, as build/guard/COMMIT; of others the newest seven.
keep_programs() {
  local kept=build/guard/$2 old
  [[ ! -x "$kept/penstock" ]] || return 0
  mkdir -p "$kept.part"
  cp "$1/penstock" "$1/penstock-train" "$kept.part/"
  mv -T "$kept.part" "$kept"
  while read -r old; do rm -rf "build/guard/$old"; done \
    < <(find build/guard -mindepth 1 -maxdepth 1 -type d ! -name '*.*' -printf '%T@ %f\n' |
      sort -rn | tail -n +9 | cut -d' ' -f2)
}

# build_commit COMMIT: its programs, built in a tree of their own. A build that was interrupted goes
# on; the tree is removed afterwards.
build_commit() {
  local commit=$1 tree=build/guard/$1.tree
  say "Build commit ${commit:0:12} into build/guard, once. Without files in the compiler cache" \
    "$(build_time none "$PROGRAMS_BUILD_MINUTES"); progress follows"
  if [[ ! -f "$tree/CMakePresets.json" ]]; then
    mkdir -p "$tree.part"
    git archive "$commit" | tar -x -C "$tree.part"
    mv -T "$tree.part" "$tree"
  fi
  mkdir -p "$tree/build"
  ln -sfn "$(readlink -f build/torch-wheel)" "$tree/build/torch-wheel"
  # The programs outlive the tree, so they find libtorch in this one.
  configure_options=("-DCMAKE_BUILD_RPATH=$REPO_ROOT/build/torch-wheel/lib")
  (cd "$tree" && configure_and_build "release$torch_preset" penstock >&2)
  keep_programs "$tree/build/release$torch_preset" "$commit"
  rm -rf "$tree"
}

# guard [OPTION...]: compares build/release-wheel with $against.
guard() {
  local commit
  if [[ -n "$against" && -f "$CALLER_FOLDER/$against" ]]; then
    against="$CALLER_FOLDER/$against"
  elif [[ ! -f "$against" ]]; then
    if [[ -n "$against" ]]; then
      commit="$(guard_commit "$against")"
    elif has_changes; then
      commit="$(guard_commit HEAD)"
    else
      commit="$(guard_commit HEAD~1)"
    fi
    if ! has_changes; then
      keep_programs "build/release$torch_preset" "$(guard_commit HEAD)"
    fi
    if [[ ! -x "build/guard/$commit/penstock" ]]; then build_commit "$commit"; fi
    against="$REPO_ROOT/build/guard/$commit/penstock"
    say "Against $(git log -1 --format='%h, %s' "$commit")"
  fi
  cd "$CALLER_FOLDER"
  run python3 "$REPO_ROOT/benchmarks/guard.py" --against "$against" \
    --penstock "$REPO_ROOT/build/release$torch_preset/penstock" "$@" || exit $?
}

install=yes
guard=no
against=""
options=()
while (($# > 0)); do
  case "$1" in
    --no-install) install=no ;;
    --guard) guard=yes ;;
    --against) need_value "$1" $#; against=$2; shift ;;
    -h | --help) usage; exit 0 ;;
    *) options+=("$1") ;;
  esac
  shift
done
[[ "$guard" == yes || -z "$against" ]] || die "--against belongs to --guard (try --help)"

cd "$REPO_ROOT"
# Before anything is built.
[[ -z "$against" || -f "$CALLER_FOLDER/$against" || -f "$against" ]] ||
  guard_commit "$against" >/dev/null
if [[ "$install" == yes ]]; then
  scripts/install-deps.sh --wheel --bench
fi
choose_torch wheel
configure_and_build "release$torch_preset" penstock >&2  # results alone go to standard output
if [[ "$guard" == yes ]]; then
  guard "${options[@]}"
  exit 0
fi
cd "$CALLER_FOLDER"
run python3 "$REPO_ROOT/benchmarks/run_bench.py" "${options[@]}" || exit $?

#!/usr/bin/env bash
# Lines of code of each folder beside the lines that it may have.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage() {
  cat <<'HELP'
usage: scripts/size.sh [--check | --write] [ROOT]

Prints the lines of each folder of ROOT (default: this repository) and, beside them, what
tests/tidy/budget.txt allows. Sources, scripts, pages' scripts and styles count; tests and what
they share (*_test.cpp, test_*, testing_*, folders named tests) do not.

  --check  print only folders above their budget, and exit with 1 if there is one
  --write  write the lines of today into the budget, rounded up to the next 50
HELP
}

mode=show
root="$REPO_ROOT"
for option in "$@"; do
  case "$option" in
    --check | --write) mode=${option#--} ;;
    -h | --help) usage; exit 0 ;;
    -*) die "unknown option '$option' (try --help)" ;;
    *) root=$option ;;
  esac
done
cd "$root"
budget=tests/tidy/budget.txt
[[ -f "$budget" ]] || die "$root/$budget is missing"

# Lines "FOLDER LINES": each folder of penstock/ apart, the others as a whole.
sizes() {
  local folders=()
  for folder in penstock tools/penstock python benchmarks examples scripts; do
    [[ ! -d "$folder" ]] || folders+=("$folder")
  done
  find "${folders[@]}" -type f ! -path '*/tests/*' ! -path '*/build/*' ! -path '*/__pycache__/*' \
    ! -name '*_test.*' ! -name 'test_*' ! -name 'testing_*' \
    \( -name '*.h' -o -name '*.cpp' -o -name '*.c' -o -name '*.cu' -o -name '*.py' \
    -o -name '*.sh' -o -name '*.js' -o -name '*.css' \) -print0 |
    xargs -0 awk '
      FNR == 1 {
        count = split(FILENAME, parts, "/")
        folder = parts[1]
        if (folder == "tools" || (folder == "penstock" && count > 2)) folder = folder "/" parts[2]
      }
      { lines[folder]++ }
      END { for (folder in lines) print folder, lines[folder] }' | sort
}

if [[ "$mode" == write ]]; then
  written="$({
    sed -n '/^#/p' "$budget"
    sizes | awk '{ printf "%s: %d\n", $1, int(($2 + 49) / 50) * 50 }'
  })"
  printf '%s\n' "$written" >"$budget"
  exit 0
fi

sizes | awk -v mode="$mode" -v budget="$budget" '
  BEGIN {
    while ((getline line < budget) > 0) {
      number++
      if (line !~ /^[a-z]/) continue
      folder = line; sub(/:.*/, "", folder); sub(/.*: */, "", line)
      allowed[folder] = line + 0; row[folder] = number
    }
    if (mode == "show") printf "%-20s %8s %8s %8s\n", "folder", "lines", "allowed", "left"
  }
  {
    known = $1 in allowed
    left = (known ? allowed[$1] : 0) - $2
    total += $2; total_allowed += allowed[$1]; seen[$1] = 1
    if (mode == "show") printf "%-20s %8d %8s %8d\n", $1, $2, known ? allowed[$1] : "none", left
    else if (!known) printf "%s:1: %s has no row for the folder\n", $1, budget
    else if (left < 0) {
      printf "%s:1: %d lines, %s allows %d: shorten something, or raise the row and say why\n",
             $1, $2, budget, allowed[$1]
    }
    if (left < 0) above = 1
  }
  END {
    if (mode == "show") {
      printf "%-20s %8d %8d %8d\n", "all", total, total_allowed, total_allowed - total
    }
    for (folder in allowed) if (!(folder in seen)) {
      printf "%s:%d: there is no code in a folder %s\n", budget, row[folder], folder
      above = 1
    }
    exit mode == "check" && above
  }'

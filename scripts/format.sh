#!/usr/bin/env bash
# Lays out the C++ and JavaScript files with clang-format, or says which are not.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage() {
  cat <<'HELP'
usage: scripts/format.sh [--check]

Lays out every C++ and JavaScript file of the repository as .clang-format says.

  --check  change nothing; name the files that are not laid out and exit with 1
HELP
}

mode=(-i)
case "${1:-}" in
  "") ;;
  --check) mode=(--dry-run -Werror) ;;
  -h | --help) usage; exit 0 ;;
  *) die "unknown option '$1' (try --help)" ;;
esac
command -v clang-format >/dev/null ||
  die "clang-format is missing; run scripts/install-deps.sh --dev"

cd "$REPO_ROOT"
# Tracked files and new ones that git does not ignore.
mapfile -d '' files < <(git ls-files -z --cached --others --exclude-standard \
  -- '*.h' '*.cpp' '*.js' | sort -z -u)
existing=()
for file in "${files[@]}"; do
  [[ ! -f "$file" ]] || existing+=("$file")
done
((${#existing[@]} > 0)) || exit 0
if ! printf '%s\0' "${existing[@]}" | xargs -0 clang-format "${mode[@]}"; then
  die "run scripts/format.sh to lay these files out"
fi
printf '%s files\n' "${#existing[@]}"

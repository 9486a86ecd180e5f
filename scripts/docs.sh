#!/usr/bin/env bash
# API reference from the headers, as HTML.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage() {
  cat <<'HELP'
usage: scripts/docs.sh [OUTPUT]

Writes the API reference of the headers, with ARCHITECTURE.md as its first page, to OUTPUT/html
(default build/docs). Stops with exit code 1 at a wrong reference; needs doxygen
(scripts/install-deps.sh --dev).
HELP
}

output="$REPO_ROOT/build/docs"
case "${1:-}" in
  -h | --help) usage; exit 0 ;;
  -*) die "unknown option '$1' (try --help)" ;;
  "") ;;
  /*) output=$1 ;;
  *) output="$PWD/$1" ;;
esac
command -v doxygen >/dev/null || die "doxygen is missing; run scripts/install-deps.sh --dev"

cd "$REPO_ROOT"
rm -rf "$output/html"
mkdir -p "$output"
version="$(sed -n 's/^project(penstock VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)"
# A line about each namespace: what tests/tidy/include_table.txt says about its folder. The names of
# util are in penstock itself.
awk '
  function finish() {
    if (folder == "" || folder == "util" || folder ~ /[/]/) return
    printf "/** \\namespace penstock::%s\n * %s. */\n", folder, text
  }
  /^[a-z_\/]+:/ { finish(); folder = $0; sub(/:.*/, "", folder); text = "" }
  /^  / {
    sub(/^ +/, "")
    text = text == "" ? toupper(substr($0, 1, 1)) substr($0, 2) : text " " $0
  }
  END {
    finish()
    print "/** \\namespace penstock\n * All of Penstock, a namespace per folder. */"
  }' tests/tidy/include_table.txt >"$output/namespaces.dox"
{
  cat docs/Doxyfile
  printf 'INPUT += "%s"\n' "$output/namespaces.dox"
  printf 'OUTPUT_DIRECTORY = "%s"\nPROJECT_NUMBER = %s\n' "$output" "$version"
} | doxygen - >"$output/doxygen.log" 2>"$output/warnings.txt" || true
if [[ -s "$output/warnings.txt" ]]; then
  sed "s,^$REPO_ROOT/,," "$output/warnings.txt" >&2
  printf 'error: doxygen has warnings\n' >&2
  exit 1
fi
[[ -f "$output/html/index.html" ]] || die "doxygen wrote no page; see $output/doxygen.log"
printf '%s\n' "$output/html/index.html"

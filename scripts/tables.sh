#!/usr/bin/env bash
# Copies the include table into the documents that show it, or says which of them differ.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage() {
  cat <<'HELP'
usage: scripts/tables.sh [--check] [ROOT]

Writes the table of tests/tidy/include_table.txt into ARCHITECTURE.md and CONTRIBUTING.md of ROOT
(default: this repository), each between a pair of marker lines:

  <!-- include table, with what each folder holds: written by scripts/tables.sh -->
  <!-- include table: written by scripts/tables.sh -->
  <!-- end of the include table -->

  --check  change nothing; name the documents that differ and exit with 1
HELP
}

check=no
root="$REPO_ROOT"
for option in "$@"; do
  case "$option" in
    --check) check=yes ;;
    -h | --help) usage; exit 0 ;;
    -*) die "unknown option '$option' (try --help)" ;;
    *) root=$option ;;
  esac
done
table="$root/tests/tidy/include_table.txt"
[[ -f "$table" ]] || die "$table is missing"

# with_table DOCUMENT: the document, with the table between its markers written anew.
# Exit code 3: there is no pair of markers.
with_table() {
  awk '
    # The rows, from include_table.txt.
    FNR == NR && /^# torch/ { folder[++rows] = ""; next }
    FNR == NR && /^[a-z_\/]+:/ {
      colon = index($0, ":")
      folder[++rows] = substr($0, 1, colon - 1)
      allowed[rows] = substr($0, colon + 1)
      sub(/^ +/, "", allowed[rows])
      sub(/ +$/, "", allowed[rows])
      gsub(/ +/, ", ", allowed[rows])
      next
    }
    FNR == NR && /^  / {
      sub(/^ +/, "")
      holds[rows] = holds[rows] (holds[rows] == "" ? "" : " ") $0
      next
    }
    FNR == NR { next }
    /^<!-- include table.*: written by scripts\/tables.sh -->$/ {
      with_holds = $0 ~ /holds/
      print
      print ""
      print "| folder |" (with_holds ? " holds |" : "") " may include, besides `util` |"
      print "|---|---|" (with_holds ? "---|" : "")
      for (row = 1; row <= rows; row++) {
        name = folder[row] == "" ? "*libtorch from here on*" : "`" folder[row] "`"
        last = allowed[row] == "" ? "" : " " allowed[row]
        text = holds[row] == "" ? "" : " " holds[row]
        print "| " name " |" (with_holds ? text " |" : "") last " |"
      }
      print ""
      inside = found = 1
      next
    }
    /^<!-- end of the include table -->$/ { inside = 0 }
    !inside { print }
    END { if (!found || inside) exit 3 }' "$table" "$1"
}

status=0
written="$(mktemp "${TMPDIR:-/tmp}/penstock-table.XXXXXX")"
trap 'rm -f "$written"' EXIT
for name in ARCHITECTURE.md CONTRIBUTING.md; do
  document="$root/$name"
  [[ -f "$document" ]] || die "$document is missing"
  with_table "$document" >"$written" ||
    die "$name:1: no pair of marker lines for the include table (see --help)"
  cmp -s "$document" "$written" && continue
  if [[ "$check" == yes ]]; then
    printf '%s:1: the include table differs from tests/tidy/include_table.txt:' "$name"
    printf ' run scripts/tables.sh\n'
    diff "$document" "$written" || true
    status=1
  else
    cat "$written" >"$document"
    printf 'wrote %s\n' "$name"
  fi
done
exit "$status"

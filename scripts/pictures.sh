#!/usr/bin/env bash
# Makes the pictures of plans in docs/images by the commands that docs/plans.md shows.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage() {
  cat <<'HELP'
usage: scripts/pictures.sh [--check] PROFILES [PENSTOCK]

Runs the blocks of docs/plans.md that write a picture, in an empty folder beside `examples` and the
published profiles in the folder PROFILES (vgg16.graph.txt and resnet50.graph.txt, PipeDream's own;
docs/plans.md says where they are from). PENSTOCK: build/release/penstock unless it is given.
Searches go to their end, so that the pictures are the same on every machine.

  --check  change nothing; name the pictures that differ and exit with 1
HELP
}

check=no
words=()
for option in "$@"; do
  case "$option" in
    --check) check=yes ;;
    -h | --help) usage; exit 0 ;;
    -*) die "unknown option '$option' (try --help)" ;;
    *) words+=("$option") ;;
  esac
done
((${#words[@]} == 1 || ${#words[@]} == 2)) || die "expected a folder of profiles (try --help)"
program="${words[1]:-$REPO_ROOT/build/release/penstock}"
[[ -x "$program" ]] || die "$program is missing: build it, or name another one"
[[ -d "${words[0]}" ]] || die "there is no folder ${words[0]}"
profiles="$(realpath "${words[0]}")"
program="$(realpath "$program")"
work="$(mktemp -d "${TMPDIR:-/tmp}/penstock-pictures.XXXXXX")"
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/docs/images"
ln -s "$REPO_ROOT/examples" "$work/examples"
for profile in "$profiles"/*.graph.txt; do
  [[ -f "$profile" ]] || die "$profiles has no *.graph.txt"
  ln -s "$profile" "$work/"
done

commands="$(awk '/^```/ { if (inside && block ~ />docs\/images\//) printf "%s", block
                          inside = !inside; block = ""; next }
                 inside { block = block $0 "\n" }' "$REPO_ROOT/docs/plans.md")"
[[ -n "$commands" ]] || die "docs/plans.md has no block that writes a picture"
(
  cd "$work"
  penstock() { "$program" "$@" --time-limit 0 >/dev/null; }
  eval "$commands"
)
status=0
for picture in "$work"/docs/images/*; do
  [[ -s "$picture" ]] || die "the commands of docs/plans.md wrote an empty $(basename "$picture")"
  shown="$REPO_ROOT/docs/images/$(basename "$picture")"
  cmp -s "$picture" "$shown" && continue
  if [[ "$check" == yes ]]; then
    printf '%s is not what the program makes: run scripts/pictures.sh\n' "${shown#"$REPO_ROOT"/}"
    status=1
  else
    cp "$picture" "$shown"
    printf 'wrote %s\n' "${shown#"$REPO_ROOT"/}"
  fi
done
exit "$status"

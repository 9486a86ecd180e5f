#!/usr/bin/env bash
# Checks the house rules that a compiler does not: tidy.sh CHECK ROOT
#
#   includes   each folder of penstock/ includes only what tests/tidy/include_table.txt allows, and
#              links only that
#   rooms      inside a folder, arrows run only from the rooms of tests/tidy/rooms.txt to those
#              before them, no header includes itself by way of others, and no unit (a header with
#              its source) does so by way of other units of its folder
#   torch      nothing above the line includes torch, ATen, c10 or caffe2
#   printing   the library never prints
#   exits      the library never ends the process
#   memory     no raw new or delete
#   headers    every header has #pragma once
#   columns    lines of code and documents have at most 100 columns, rows of tables 160
#   tables     ARCHITECTURE.md and CONTRIBUTING.md show the include table as it is
#   strategies nothing but plan/strategy.* compares a strategy by name or goes through them by case;
#              the same of weight policies (but for the verifier's own copy) and of optimisers
#   examples   code that a document shows as that of a file (<!-- code of FILE -->) stands there
#   options    the library speaks of values: no string of penstock/ holds an option of the command
#              line, but for penstock/options and penstock/job
#   sentences  no sentence of README.md, ARCHITECTURE.md, CONTRIBUTING.md and docs/ has more than 35
#              words; docs/lab/ may
#   budget     no folder has more lines than tests/tidy/budget.txt allows (scripts/size.sh)
#
# Tests (*_test.cpp) and what they share (test_*, testing_*) may include, print and allocate what
# they like. Prints each offence as file:line: text, and exits with 1 if there is any. A line that
# must break a rule says why: // tidy: allow(CHECK) reason
set -euo pipefail

check=${1:?usage: tidy.sh CHECK ROOT}
root=${2:?usage: tidy.sh CHECK ROOT}
table="$root/tests/tidy/include_table.txt"
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
scripts="$(cd "$here/../../scripts" && pwd)"
cd "$root"
[[ -d penstock ]] || { echo "tidy.sh: $root has no folder penstock" >&2; exit 2; }

sources() {
  find penstock -type f \( -name '*.h' -o -name '*.cpp' \) \
    ! -name '*_test.cpp' ! -name 'test_*' ! -name 'testing_*' | sort
}
[[ -n "$(sources)" ]] ||
  { echo "tidy.sh: there is no source file below $root/penstock" >&2; exit 2; }
folders_of_core() { awk '/^# torch/ { exit } /^[a-z]/ { sub(":.*", ""); print }' "$table"; }

# grep_code PATTERN FILE...: matches outside comments and string literals, and not on lines that
# allow this check.
grep_code() {
  local pattern=$1
  shift
  (($# > 0)) || return 1
  awk -v pattern="$pattern" -v allowed="tidy: allow($check)" '
    FNR == 1 { in_comment = 0 }
    index($0, allowed) { next }
    {
      code = $0
      gsub(/\\\\/, "", code); gsub(/\\"/, "", code); gsub(/'"'"'"'"'"'/, "", code)
      if (code !~ /^[ \t]*#[ \t]*include/) gsub(/"[^"]*"/, "\"\"", code)
      if (in_comment) { if (sub(/^.*\*\//, "", code)) in_comment = 0; else next }
      gsub(/\/\*[^*]*\*\//, "", code)
      sub(/\/\/.*/, "", code)
      if (sub(/\/\*.*/, "", code)) in_comment = 1
      if (code ~ pattern) { printf "%s:%d: %s\n", FILENAME, FNR, $0; found = 1 }
    }
    END { exit !found }' "$@"
}

forbid() {
  local pattern=$1
  mapfile -t files < <(sources)
  if grep_code "$pattern" "${files[@]}"; then return 1; fi
}

# used_folders FILE: line:folder for each header of penstock/ that the file includes.
used_folders() {
  local include='^[[:space:]]*#[[:space:]]*include[[:space:]]*["<]penstock/([a-z_]+)/.*'
  sed -nE "/tidy: allow\\(includes\\)/!s,$include,\\1,;t p;b;:p;=;p" "$1" | paste -d: - -
}

# linked_folders FILE: the targets in DEPS of a CMakeLists.txt, without their penstock::.
linked_folders() {
  tr '\n()' '   ' <"$1" | awk '{
    for (i = 1; i <= NF; i++) {
      if ($i ~ /^[A-Z_]+$/) section = $i
      else if (section == "DEPS" && $i ~ /^penstock::/) print substr($i, 11)
    }
  }'
}

check_includes() {
  local status=0 folder allowed used file
  while IFS=: read -r folder allowed; do
    for file in $(sources | grep "^penstock/$folder/"); do
      while IFS=: read -r line used; do
        case " $folder util $allowed " in
          *" $used "* | *" all "*) ;;
          *) echo "$file:$line: $folder may not include penstock/$used"; status=1 ;;
        esac
      done < <(used_folders "$file")
      if grep_code '^[ \t]*#[ \t]*include[ \t]*["<]penstock/[a-z_]+[.]h' "$file"; then status=1; fi
    done
    # The libraries it links (DEPS of penstock_library, not TEST_DEPS) must be the same ones.
    if [[ -f "penstock/$folder/CMakeLists.txt" ]]; then
      for used in $(linked_folders "penstock/$folder/CMakeLists.txt"); do
        case " $folder util $allowed " in
          *" $used "* | *" all "*) ;;
          *)
            echo "penstock/$folder/CMakeLists.txt:1: $folder may not depend on penstock::$used"
            status=1
            ;;
        esac
      done
    fi
  done < <(grep '^[a-z]' "$table")
  while read -r folder; do
    [[ -d "penstock/$folder" ]] ||
      { echo "tests/tidy/include_table.txt:1: there is no folder penstock/$folder"; status=1; }
  done < <(sed -n 's/^\([a-z_/]*\):.*/\1/p' "$table")
  for folder in penstock/*/; do
    folder="$(basename "$folder")"
    grep -q "^$folder:" "$table" ||
      { echo "penstock/$folder:1: the folder is not in tests/tidy/include_table.txt"; status=1; }
  done
  return "$status"
}

# Lines "FILE LINE INCLUDED" for all of penstock/, as paths below it.
inclusions() {
  mapfile -t files < <(sources)
  awk '/tidy: allow\(rooms\)/ { next }
    match($0, /^[ \t]*#[ \t]*include[ \t]*["<]penstock\/[^">]*/) {
      included = substr($0, RSTART, RLENGTH); sub(/.*["<]penstock\//, "", included)
      file = FILENAME; sub(/^penstock\//, "", file)
      print file, FNR, included
    }' "${files[@]}"
}

check_rooms() {
  local status=0 cycle all
  all="$(inclusions)"
  awk '
    # The rank of a path inside its folder, and which room of that rank it lies in.
    function find(folder, path, parts, stem) {
      room = "."
      if (split(path, parts, "/") > 1) room = parts[1] "/"
      else { stem = path; sub(/[.][a-z]+$/, "", stem); if ((folder, stem) in rank) room = stem }
      return (folder, room) in rank
    }
    function look(folder, path, from) {
      path = substr($1, length(folder) + 2)
      if (!find(folder, path)) {
        printf "penstock/%s:1: tests/tidy/rooms.txt has no room for it\n", $1
        bad = 1
        return
      }
      if (index($3, folder "/") != 1) return
      from = room
      if (!find(folder, substr($3, length(folder) + 2))) return
      if (room == from || rank[folder, room] < rank[folder, from]) return
      printf "penstock/%s:%s: %s may not include %s, of room %s\n", $1, $2, from, $3, room
      bad = 1
    }
    FNR == NR {
      if ($0 ~ /^#/ || NF == 0) next
      folder = $1; sub(":", "", folder); known[folder] = 1
      for (i = 2; i <= NF; i++) {
        if ($i == "<") position[folder]++; else rank[folder, $i] = position[folder] + 0
      }
      next
    }
    {
      for (end = 1; end < length($1); end++)
        if (substr($1, end + 1, 1) == "/" && substr($1, 1, end) in known)
          look(substr($1, 1, end))
    }
    END { exit bad }' "$root/tests/tidy/rooms.txt" - <<<"$all" || status=1
  # Headers in a circle.
  if ! cycle="$(awk '$1 ~ /[.]h$/ { print $1, $3 }' <<<"$all" | tsort 2>&1 >/dev/null)"; then
    sed -nE 's,^tsort: (-: input contains a loop:)?,,
             s,^ ?([a-z_/]+[.]h)$,penstock/\1:1: includes itself by way of others,p' <<<"$cycle"
    status=1
  fi
  check_units "$all" || status=1
  return "$status"
}

# Units in a circle: x.h and x.cpp are one unit. check_units INCLUSIONS
check_units() {
  local all=$1 status=0 folder units
  while read -r folder; do
    units="$(awk -v folder="$folder/" '
      { sub(/[.][a-z]+$/, "", $1); sub(/[.][a-z]+$/, "", $3) }
      index($1, folder) == 1 && index($3, folder) == 1 && $1 != $3 { print $1, $3 }' <<<"$all" |
      { tsort 2>&1 >/dev/null || true; } | sed -n 's/^tsort: \([a-z].*\)/\1/p' | sort -u)"
    if [[ -n "$units" ]]; then
      echo "penstock/$folder:1: these units include each other in a circle:" $units
      status=1
    fi
  done < <(sed -n 's,/.*,,p' <<<"$all" | sort -u)
  return "$status"
}

check_torch() {
  local folder files status=0
  for folder in $(folders_of_core); do
    [[ -d "penstock/$folder" ]] || continue
    mapfile -t files < <(find "penstock/$folder" -type f \( -name '*.h' -o -name '*.cpp' \) | sort)
    if grep_code '^[ \t]*#[ \t]*include[ \t]*[<"](torch|ATen|c10|caffe2)/' "${files[@]}"; then
      status=1
    fi
    if grep_code '(^|[^A-Za-z0-9_])(torch|at|c10)::' "${files[@]}"; then status=1; fi
  done
  return "$status"
}

# The names stand in the rows of plan/strategy.cpp alone; what a kind is stands in its row.
check_strategies() {
  local names
  names="$(sed -nE 's/.*\.name = "([^"]+)".*/\1/p' penstock/plan/strategy.cpp | paste -sd '|')"
  [[ -n "$names" ]] || { echo "penstock/plan/strategy.cpp:1: found no row with a .name"; return 1; }
  mapfile -t files < <(find penstock tools -type f \( -name '*.h' -o -name '*.cpp' \) \
    ! -name '*_test.cpp' ! -name 'test_*' ! -name 'testing_*' \
    ! -path 'penstock/plan/strategy.*' | sort)
  awk -v text="\"($names)\"" -v allowed="tidy: allow(strategies)" \
    -v parts='starts_with|ends_with|find|rfind|compare|contains|substr' '
    index($0, allowed) { next }
    {
      code = $0
      sub(/(^|[ \t])\/\/.*/, "", code)
      if (code ~ ("[=!]=[ \t]*" text) || code ~ (text "(sv|s)?[ \t]*[=!]=") ||
          code ~ ("case[ \t]+" text) || code ~ ("strategy[A-Za-z_()]*[.](" parts ")[(]") ||
          code ~ /case[ \t]+([a-z]+::)*(Strategy|OptimizerKind)::/ ||
          (FILENAME !~ /^penstock\/verify\// && code ~ /case[ \t]+([a-z]+::)*WeightPolicy::/)) {
        printf "%s:%d: %s\n", FILENAME, FNR, $0
        found = 1
      }
    }
    END { exit found }' "${files[@]}"
}

check_examples() {
  awk '
    function stripped(line) { gsub(/^[ \t]+|[ \t]+$/, "", line); return line }
    match($0, /<!-- code of [^ ]+ -->/) {
      file = substr($0, RSTART + 13, RLENGTH - 17); next
    }
    file != "" && !inside && /^ *```cpp$/ { inside = 1; block = "\n"; at = FNR; next }
    inside && /^ *```$/ {
      text = "\n"
      while ((getline line < file) > 0) text = text stripped(line) "\n"
      close(file)
      if (index(text, block) == 0) {
        printf "%s:%d: this code is not in %s\n", FILENAME, at, file
        bad = 1
      }
      inside = 0; file = ""; next
    }
    inside { block = block stripped($0) "\n" }
    END { exit bad }' docs/*.md
}

check_headers() {
  local file status=0
  for file in $(sources | grep '\.h$'); do
    grep -q '^#pragma once$' "$file" || { echo "$file:1: expected #pragma once"; status=1; }
  done
  return "$status"
}

# The files that people write, without test data.
written_files() {
  local folder
  for folder in penstock tools tests examples benchmarks docs scripts cmake python .ci; do
    [[ ! -d "$folder" ]] || find "$folder" -type f ! -path '*/build/*' ! -path 'tests/golden/*' \
      ! -path 'tests/fuzz/corpus/*' ! -path '*/__pycache__/*'
  done | grep -E '\.(h|cpp|js|css|py|sh|cmake|txt|in|toml|md)$|^\.ci/' | sort
  find . -maxdepth 1 -type f \( -name '*.md' -o -name '*.txt' -o -name 'CMakePresets.json' \
    -o -name '.clang-*' \) | sed 's,^\./,,' | sort
}

# A line may be longer where breaking it would change it: an address; in documents a row of a table
# and what a program printed (a block marked ```text, or an indented one after its command), up to
# 160 columns.
check_columns() {
  local files
  mapfile -t files < <(written_files)
  LC_ALL=C awk '
    {
      text = $0
      gsub(/[\200-\277]/, "", text)  # so that length() counts characters of UTF-8
      document = FILENAME ~ /\.md$/
      if (FNR == 1) in_fence = 0
      if (document && text ~ /^ *```/) {
        in_fence = !in_fence
        output = text ~ /^ *```text$/
      }
      # An indented block that begins with a command shows what it printed.
      if (text !~ /^    /) printed = 0
      if (text ~ /^    \$ /) printed = 1
      command = text ~ /^ *\$ / || continued
      continued = command && text ~ /\\$/
      limit = 100
      if (document && !in_fence && text ~ /^ *\|/) limit = 160
      if (document && (in_fence ? output : printed) && !command) limit = 160
      if (length(text) <= limit || index($0, "tidy: allow(columns)")) next
      gsub(/https?:\/\/[^ )>"]*/, "", text)
      if (length(text) <= limit) next
      printf "%s:%d: %d columns, at most %d\n", FILENAME, FNR, length(text), limit
      found = 1
    }
    END { exit found }' "${files[@]}"
}

# Strings that hold -- and a letter. var(--name) is a variable of CSS.
check_options() {
  mapfile -t files < <(sources | grep -vE '^penstock/(options|job)/')
  LC_ALL=C awk -v allowed="tidy: allow(options)" '
    !/--[A-Za-z]/ || !/"/ || index($0, allowed) { next }
    {
      code = $0
      gsub(/\\\\/, "", code); gsub(/\\"/, "", code); gsub(/'"'"'"'"'"'/, "", code)
      gsub(/var\(--/, "", code)
      # Odd parts lie outside of strings, even ones inside.
      count = split(code, parts, "\"")
      for (i = 1; i <= count; i++) {
        if (i % 2 == 1 && parts[i] ~ /\/\//) next
        if (i % 2 == 0 && parts[i] ~ /--[A-Za-z]/) break
      }
      if (i > count) next
      printf "%s:%d: %s\n", FILENAME, FNR, $0
      found = 1
    }
    END { exit found }' "${files[@]}"
}

check_sentences() {
  local files
  mapfile -t files < <(find README.md ARCHITECTURE.md CONTRIBUTING.md docs -type f -name '*.md' \
    ! -path 'docs/lab/*' 2>/dev/null | sort)
  ((${#files[@]} > 0)) || { echo "tidy.sh: there is no document in $root" >&2; exit 2; }
  LC_ALL=C awk -v most=35 -f "$here/sentences.awk" "${files[@]}"
}

readonly start='(^|[^A-Za-z0-9_.>])'
case "$check" in
  includes) check_includes ;;
  rooms) check_rooms ;;
  torch) check_torch ;;
  headers) check_headers ;;
  strategies) check_strategies ;;
  columns) check_columns ;;
  examples) check_examples ;;
  options) check_options ;;
  sentences) check_sentences ;;
  budget) bash "$scripts/size.sh" --check "$root" ;;
  tables) bash "$scripts/tables.sh" --check "$root" ;;
  printing)
    functions='v?f?printf|puts|fputs|putchar|perror|print|println'
    pattern="${start}(std::)?(cout|cerr|clog)([^A-Za-z0-9_]|\$)"
    forbid "$pattern|${start}(std::|fmt::)?($functions)[ \t]*\\("
    ;;
  exits) forbid "${start}(std::)?(exit|_exit|_Exit|quick_exit|abort|terminate)[ \t]*\\(" ;;
  memory)
    pattern="${start}new[ \t]+[A-Za-z_:(]|${start}new[ \t]*\\("
    pattern+="|${start}delete[ \t]+[A-Za-z_*(]|${start}delete[ \t]*\\["
    pattern+="|${start}(std::)?(malloc|calloc|realloc)[ \t]*\\(|std::free[ \t]*\\("
    forbid "$pattern"
    ;;
  *) echo "tidy.sh: unknown check '$check'" >&2; exit 2 ;;
esac

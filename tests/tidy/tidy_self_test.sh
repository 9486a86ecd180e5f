#!/usr/bin/env bash
# The checks of tidy.sh must object to each offence, and to nothing else: a small tree with one
# offence at a time.
set -euo pipefail
# printf of \u in any environment
export LC_ALL=C.UTF-8

tidy="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/tidy.sh"
table="$(dirname "$tidy")/include_table.txt"
tree="$(mktemp -d "${TMPDIR:-/tmp}/penstock tidy.XXXXXX")"
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree/tests/tidy"
for folder in $(sed -n 's/^\([a-z_/]*\):.*/\1/p' "$table"); do
  mkdir -p "$tree/penstock/$folder"
done
cp "$table" "$(dirname "$table")/rooms.txt" "$tree/tests/tidy/"
echo '#pragma once' >"$tree/penstock/util/clean.h"

failures=0
# expect VERDICT CHECK FILE CONTENT: puts one file into the tree, runs one check, and puts the tree
# back as it was.
expect() {
  local verdict=$1 check=$2 file=$3 content=$4 status=0 output
  [[ ! -f "$tree/$file" ]] || cp "$tree/$file" "$tree/before"
  printf '%b\n' "$content" >"$tree/$file"
  output="$(bash "$tidy" "$check" "$tree")" || status=$?
  rm "$tree/$file"
  [[ ! -f "$tree/before" ]] || mv "$tree/before" "$tree/$file"
  case "$verdict/$status" in
    clean/0) ;;
    offence/1)
      if [[ "$output" != "$file:"* && "$output" != "${file%/*}:"* ]]; then
        echo "$check: the offence is not named in '$output'"
        failures=$((failures + 1))
      fi
      ;;
    *)
      echo "$check: expected $verdict for $file holding: $content"
      echo "$check: exit code $status, output '$output'"
      failures=$((failures + 1))
      ;;
  esac
}

expect clean includes penstock/verify/a.h \
  '#include "penstock/schedule/schedule.h"\n#include "penstock/util/error.h"'
expect offence includes penstock/schedule/a.h '#include "penstock/verify/verify.h"'
expect offence includes penstock/graph/a.cpp '  #  include <penstock/model/model.h>'
expect clean includes penstock/verify/a_test.cpp '#include "penstock/model/model.h"'
library='penstock_library(verify\n  SOURCES a.cpp\n  DEPS penstock::util'
expect clean includes penstock/verify/CMakeLists.txt \
  "$library penstock::schedule TEST_DEPS penstock::model)"
expect offence includes penstock/verify/CMakeLists.txt \
  "$library\n    penstock::model TESTS a_test.cpp)"
expect offence includes penstock/model/a.h '#include "penstock/penstock.h"'
mkdir "$tree/penstock/stray"
expect offence includes penstock/stray/a.h ""
rmdir "$tree/penstock/stray"
expect clean includes tests/tidy/include_table.txt "$(cat "$table")"
expect offence includes tests/tidy/include_table.txt \
  "$(cat "$table")\nmissing: util\n  what it holds"

mkdir -p "$tree/penstock/"{planner,report}"/"{cost,cuts,text,plan,timeline,page}
expect clean rooms penstock/planner/cuts/a.h \
  '#include "penstock/planner/cost/a.h"\n#include "penstock/planner/plan_options.h"'
expect clean rooms penstock/planner/a.cpp \
  '#include "penstock/planner/cuts/a.h"\n#include "penstock/planner/b.h"'
expect offence rooms penstock/planner/cost/a.h '#include "penstock/planner/cuts/a.h"'
expect offence rooms penstock/planner/cuts/a.cpp '#include "penstock/planner/planner.h"'
expect offence rooms penstock/planner/plan_options.h '#include "penstock/planner/planner.h"'
expect offence rooms penstock/report/plan/a.cpp '#include "penstock/report/timeline/a.h"'
expect clean rooms penstock/report/page/a.cpp '#include "penstock/report/plan/a.h"'
expect clean rooms penstock/planner/cost/a_test.cpp '#include "penstock/planner/planner.h"'
mkdir -p "$tree/penstock/runtime/fabric/local"
expect offence rooms penstock/runtime/fabric/local/a.cpp \
  '#include "penstock/runtime/fabric/mesh/a.h"'
mkdir "$tree/penstock/planner/attic"
expect offence rooms penstock/planner/attic/a.cpp '#include "penstock/planner/planner.h"'
rmdir "$tree/penstock/planner/attic"
echo '#include "penstock/util/b.h"' >"$tree/penstock/util/c.h"
expect offence rooms penstock/util/b.h '#include "penstock/util/c.h"'
rm "$tree/penstock/util/c.h"
# Units in a circle that no header sees.
touch "$tree/penstock/graph/b.h"
echo '#include "penstock/graph/b.h"' >"$tree/penstock/graph/c.h"
expect offence rooms penstock/graph/b.cpp '#include "penstock/graph/c.h"'
expect clean rooms penstock/graph/b_test.cpp '#include "penstock/graph/c.h"'
expect clean rooms penstock/graph/a.cpp '#include "penstock/graph/c.h"'
rm "$tree/penstock/graph/"[bc].h

expect offence torch penstock/graph/a.h '#include <ATen/core/Tensor.h>'
expect offence torch penstock/graph/a_test.cpp '#include <torch/torch.h>'
expect offence torch penstock/verify/a.cpp 'at::Tensor t;'
expect clean torch penstock/verify/a.cpp 'workers.at(0); my_at::Tensor t; // at::Tensor'
expect clean torch penstock/model/a.h '#include <ATen/core/Tensor.h>'

expect offence printing penstock/util/a.cpp 'std::cout << 1;'
expect offence printing penstock/util/a.cpp '  printf("x");'
expect offence printing penstock/util/a.cpp 'fmt::print("{}", 1);'
expect clean printing penstock/util/a.cpp \
  'std::snprintf(b, 1, "x"); // std::cerr << 1\nconst char* s = "std::cout << \\"printf(\\"";'
expect clean printing penstock/util/a_test.cpp 'std::cout << 1;'
expect clean printing penstock/util/a.cpp \
  'std::cerr << 1;  // tidy: allow(printing) the last word before the process dies'

expect offence exits penstock/util/a.cpp 'std::abort();'
expect offence exits penstock/util/a.cpp '/* a */ exit(1); /* b'
expect clean exits penstock/util/a.cpp '/* first\n exit(1);\n*/ on_exit(2); loop.exit(3);'

expect offence memory penstock/util/a.cpp 'auto* p = new int;'
expect offence memory penstock/util/a.cpp '  delete p;'
expect offence memory penstock/util/a.cpp 'delete[] p;'
expect clean memory penstock/util/a.cpp \
  'A(const A&) = delete;\nint new_version = renew (1);\n#include <new>'

expect offence headers penstock/util/a.h 'int a;'
expect clean headers penstock/util/a.h '#pragma once'

begin='<!-- include table: written by scripts/tables.sh -->'
end='<!-- end of the include table -->'
echo "$begin" >"$tree/ARCHITECTURE.md"
echo "$end" >>"$tree/ARCHITECTURE.md"
cp "$tree/ARCHITECTURE.md" "$tree/CONTRIBUTING.md"
bash "${tidy%/*}/../../scripts/tables.sh" "$tree" >/dev/null
right="$(cat "$tree/CONTRIBUTING.md")"
expect clean tables CONTRIBUTING.md "$right"
expect offence tables CONTRIBUTING.md "${right/cluster, graph/cluster, planner}"
expect offence tables CONTRIBUTING.md "$begin\n$end"

long="$(printf 'word %.0s' {1..20})"  # 100 columns
expect clean columns penstock/util/a.cpp "$long"
expect offence columns penstock/util/a.cpp "${long}s"
expect clean columns penstock/util/a.cpp "${long}s  // tidy: allow(columns) a reason"
expect clean columns penstock/util/a.h "// ${long:10}\u00e9\u20ac"
expect offence columns tests/a.sh "# $long"
expect offence columns CMakePresets.json "  $long"
expect clean columns penstock/util/a.cpp "// see https://example.org/${long// /_}"
expect offence columns penstock/util/a.cpp "// https://example.org/ $long"
expect clean columns CONTRIBUTING.md "| $long | ${long:60} |"
expect offence columns CONTRIBUTING.md "| $long | ${long:30} |"
expect offence columns CONTRIBUTING.md "$long 2"
expect clean columns CONTRIBUTING.md "\`\`\`text\n$long 2\n\`\`\`"
expect offence columns CONTRIBUTING.md "\`\`\`text\n\$ $long 2\n\`\`\`"
expect clean columns CONTRIBUTING.md "    \$ command\n    $long 2"
expect offence columns CONTRIBUTING.md "    $long 2"
expect offence columns CONTRIBUTING.md "    \$ command\n\n    $long 2"
expect offence columns CONTRIBUTING.md "\`\`\`sh\n$long 2\n\`\`\`"
expect offence columns CONTRIBUTING.md "\`\`\`text\n\`\`\`\n$long 2"

mkdir -p "$tree/docs"
echo '  int a = 1;' >"$tree/a.cpp"
expect clean examples docs/a.md '<!-- code of a.cpp -->\n```cpp\nint a = 1;\n```'
expect offence examples docs/a.md '<!-- code of a.cpp -->\n```cpp\nint b = 1;\n```'
expect clean examples docs/a.md '```cpp\nint b = 1;\n```'
rm -f "$tree/a.cpp" "$tree/docs/a.md"

mkdir -p "$tree/penstock/plan" "$tree/tools/penstock"
echo '  {.strategy = Strategy::GPipe, .name = "gpipe", .summary = "all forwards"},' \
  >"$tree/penstock/plan/strategy.cpp"
expect offence strategies penstock/util/a.cpp 'if (plan.strategy == "gpipe") return;'
expect offence strategies tools/penstock/a.cpp 'if ("gpipe" != name) return;'
expect offence strategies penstock/util/a.h '  if (plan.strategy.starts_with("gp")) return;'
expect offence strategies penstock/util/a.cpp '    case plan::Strategy::GPipe:'
expect offence strategies penstock/util/a.cpp '    case WeightPolicy::Flush:'
expect offence strategies tools/penstock/a.cpp '    case model::OptimizerKind::Sgd:'
expect clean strategies penstock/verify/a.cpp '    case WeightPolicy::Flush:'
expect clean strategies penstock/util/a.cpp \
  'if (strategy == Strategy::GPipe) text = "gpipe"; // name == "gpipe"\nname == "gpipes";'
expect clean strategies penstock/util/a.cpp '// strategy == "gpipe"'
expect clean strategies penstock/util/a_test.cpp 'name == "gpipe"'
expect clean strategies penstock/plan/strategy.h 'name == "gpipe"; case Strategy::GPipe:'

expect offence options penstock/util/a.cpp 'fail("use --threads N");'
expect offence options penstock/util/a.h 'f("a // b", "--threads"); // why'
expect clean options penstock/util/a.cpp \
  '// "--threads"\nf("a"); // use "--threads"\n--i; f("a"); --j;'
expect clean options penstock/util/a.cpp 'f("a -- b, var(--colour), ------"); g(a--, "b");'
expect clean options penstock/util/a.cpp 'f("--x");  // tidy: allow(options) a reason'
expect clean options penstock/util/a_test.cpp 'f("--threads");'
mkdir -p "$tree/penstock/options"
expect clean options penstock/options/a.cpp 'f("--threads");'

limit="$(printf 'word %.0s' {1..35})"
expect clean sentences CONTRIBUTING.md "${limit% }.\nAnother sentence."
expect offence sentences CONTRIBUTING.md "Some ${limit% }."
expect offence sentences CONTRIBUTING.md "A first one.\nSome ${limit% }."
expect offence sentences CONTRIBUTING.md "Some ${limit/ /, e.g. A; }"
expect offence sentences CONTRIBUTING.md "- ${limit}\n  word.\n- word"
expect clean sentences CONTRIBUTING.md "Intro:\n\n- ${limit}\n- word\n1. word"
expect offence sentences CONTRIBUTING.md "${limit}[a link](docs/a.md)"
expect clean sentences CONTRIBUTING.md "${limit:5}\`some words\nof code\`. Next."
expect clean sentences CONTRIBUTING.md "| Some ${limit}|\n# Some ${limit}\n\n    Some ${limit}"
expect clean sentences CONTRIBUTING.md "\`\`\`\nSome ${limit}\n\`\`\`"
expect clean sentences CONTRIBUTING.md "<img src=a\n alt=\"Some ${limit}\">"
expect clean sentences CONTRIBUTING.md "Some ${limit:20} R. Word.\nD. Name et al. ${limit:30}"
expect clean sentences CONTRIBUTING.md "<!-- Written by a test. -->\n\nSome ${limit}"
mkdir -p "$tree/docs/lab"
expect offence sentences docs/a.md "Some ${limit}"
expect clean sentences docs/lab/a.md "Some ${limit}"

lines="$(printf 'line\\n%.0s' {1..9})line"
printf 'penstock/plan: 1\npenstock/util: 11\n' >"$tree/tests/tidy/budget.txt"
expect clean budget penstock/util/a.cpp "$lines"
expect offence budget penstock/util/a.cpp "$lines\nline"
expect clean budget penstock/util/a_test.cpp "$lines\nline"
expect clean budget penstock/util/testing_a.h "$lines\nline"
expect offence budget penstock/graph/a.cpp 'line'
expect offence budget tests/tidy/budget.txt 'penstock/plan: 1\npenstock/attic: 1\npenstock/util: 11'
bash "${tidy%/*}/../../scripts/size.sh" --write "$tree"
if [[ "$(cat "$tree/tests/tidy/budget.txt")" != "penstock/plan: 50
penstock/util: 50" ]]; then
  echo "size.sh --write wrote another budget"
  failures=$((failures + 1))
fi

if ((failures > 0)); then exit 1; fi
echo "every check objects to its offences and to nothing else"

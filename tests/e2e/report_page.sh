# report_page.sh PENSTOCK: penstock report in headless Chromium: the page's script runs without
# errors and has drawn what it should. Exits with 77 (skipped) where there is no Chromium.
set -u
PENSTOCK=$1
source "$(dirname "$0")/report_plans.sh"
browser=
for name in chromium chromium-browser google-chrome; do
  command -v "$name" >/dev/null && browser=$name && break
done
if [ -z "$browser" ]; then
  echo "skipped: no chromium here (scripts/install-deps.sh --dev installs it)"
  exit 77
fi
work=$(mktemp -d "${TMPDIR:-/tmp}/penstock-page.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failures=0
fail() {
  echo "FAILED: $*" >&2
  failures=$((failures + 1))
}

# load PAGE [QUERY]: the document as it stands when the script is done, into dom.
load() {
  timeout -k 5 100 "$browser" --headless=new --no-sandbox --disable-gpu \
    --user-data-dir="$work/browser" --window-size="${window:-1366,768}" \
    --virtual-time-budget=20000 --dump-dom "file://$work/$1${2:-}" >dom 2>browser.log
  grep -q 'data-state="ready"' dom ||
    fail "$1: the script did not finish: $(trouble | head -n 1) $(tail -n 2 browser.log)"
  [ "$(mark errors)" = 0 ] ||
    fail "$1: $(mark errors) script error(s): $(trouble)"
}
trouble() { grep -o 'id="trouble"[^/]*' dom; }
mark() { grep -o "data-$1=\"[^\"]*\"" dom | head -n 1 | cut -d'"' -f2; }
expect() {  # expect MARK VALUE
  [ "$(mark "$1")" = "$2" ] || fail "$page: expected $1 = $2, found '$(mark "$1")'"
}
report() { "$PENSTOCK" report "$@" --json >report.json || fail "penstock report $* failed"; }
measured() {
  "$PENSTOCK" simulate --plan "$1" --mini-batches "$2" --compute-spread 0.1 --json --trace t.json \
    >simulated.json && sed 's/"predicted"/"measured"/' t.json >"$3"
}

# Two lanes with everything: every action is drawn, sampled bars have their colour, memory peaks
# where the simulator says.
make_plan 4 8 1f1b-flush flush >plan.json
make_history >run.json
measured plan.json 2 measured.json
report --plan plan.json --trace measured.json --history run.json -o full.html
page=full.html
load full.html '?theme=light'
actions=$(grep -o '"actions":[0-9]*' report.json | head -n 1 | cut -d: -f2)
expect workers 4
expect lanes 2
expect actions "$actions"
expect drawn "$actions"
expect wrong 0
expect disorder 0
expect curves 4
expect constants 1
expect points 86
expect strategies 2
expect slowest 2
expect peak "$(grep -o '"peak_memory_bytes":[0-9]*' simulated.json | cut -d: -f2)"
[ "$(mark checked)" -ge 20 ] || fail "$page: only $(mark checked) bars were looked at"
[ "$(mark rows)" -ge 8 ] || fail "$page: only $(mark rows) rows of differences"
load full.html '?theme=dark'
expect wrong 0
load full.html '?zoom=0.4-0.5'
[ "$(mark drawn)" -lt "$actions" ] || fail "$page: zoomed in, all actions are still drawn"

# Nothing is cut off on a phone, or beyond the reader's reach.
window=420,800 load full.html
expect cut 0
expect wrong 0
expect drawn "$actions"

load full.html '?zoom=.-1'
expect drawn "$actions"

# What the charts of the run say under the pointer. The page admits its own script only; this copy
# has one more, which moves the pointer over each chart from left to right and leaves what the
# tooltip says, each text once.
tips() {  # tips PAGE
  sed 's/<meta http-equiv="Content-Security-Policy"[^>]*>//' "$1" >driven.html
  cat >>driven.html <<'SCRIPT'
<script>
(async () => {
  const marks = document.documentElement.dataset, tooltip = document.getElementById("tooltip");
  while (marks.state !== "ready") await new Promise((done) => setTimeout(done, 20));
  for (const figure of document.querySelectorAll("figure.chart")) {
    const canvas = figure.querySelector("canvas"), frame = canvas.getBoundingClientRect();
    const said = new Set();
    for (let k = 0; k <= 500; ++k) {
      const place = {clientX: frame.left + frame.width * k / 500, clientY: frame.top + 20};
      canvas.dispatchEvent(new PointerEvent("pointermove", place));
      const rows = [...tooltip.children].map((row) => [...row.childNodes]);
      said.add(rows.map((row) => row.map((part) => part.textContent).join("=")).join(";"));
    }
    const name = figure.querySelector("figcaption").firstChild.textContent;
    marks[name.trim().replace(" ", "").toLowerCase()] = [...said].join("|");
  }
})();
</script>
SCRIPT
  load driven.html
}
# Every step with its own loss; epoch 2 without a test accuracy has no row for it, and epoch 3 none
# for the training one.
sed -e 's/"test_accuracy": 0.5/"test_accuracy": null/' \
  -e 's/"train_accuracy": 0.7/"train_accuracy": null/' run.json >gaps.json
report --plan plan.json --history gaps.json -o gaps.html
page=gaps.html
tips gaps.html
expect loss "$(for ((k = 1; k <= 40; ++k)); do
  [ "$k" -gt 1 ] && printf '|'
  printf 'step %s;loss=%s.50' "$k" $((50 - k))
done)"
epochs='epoch 1;test=40.00 %;training=50.00 %|epoch 2;training=60.00 %|epoch 3;test=60.00 %'
expect accuracy "$epochs"
# 3,000 steps are thinned; what is drawn of them still has its own step and loss.
awk 'BEGIN {
  printf "{\"format\": \"penstock-history\", \"version\": 1, \"steps\": ["
  for (k = 1; k <= 3000; ++k) {
    printf "%s{\"step\": %d, ", (k > 1 ? "," : ""), 1000000 + k
    printf "\"loss\": %.3f}", 1 + k / 1000
  }
  print "]}"
}' >long.json
report --plan plan.json --history long.json -o long.html
page=long.html
tips long.html
mark loss | tr '|' '\n' | awk -F '[ ;=]' '
  $1 != "step" || $3 != "loss" || $4 != sprintf("%.3f", 1 + ($2 - 1000000) / 1000) {
    print "not a step and its loss: " $0
    bad = 1
  }
  END { exit (bad || NR < 400) }' >wrong.txt ||
  fail "$page: $(mark loss | tr '|' '\n' | wc -l) texts; $(head -n 3 wrong.txt)"

# Curves of one value are a line of text. A long run opens on its first steps.
report --plan plan.json --history run.json --mini-batches 40 -o steps.html
page=steps.html
actions=$(grep -o '"actions":[0-9]*' report.json | head -n 1 | cut -d: -f2)
load steps.html
expect constants 1
grep -q '<b>Learning rate</b>: 0.1000 (steps 1 to 40)' dom || fail "$page: no constant rate"
[ "$(mark drawn)" -lt $((actions / 5)) ] || fail "$page: $(mark drawn) of $actions are in sight"
[ "$(mark drawn)" -ge $((actions / 20)) ] || fail "$page: only $(mark drawn) are in sight"
load steps.html '?zoom=0-1'
expect drawn "$actions"

# Without measurements; without a timeline; versions of PipeDream's stashing; several stages per
# worker with a split backward.
report --plan plan.json -o plain.html
page=plain.html
load plain.html
expect lanes 1
expect rows 0
report --plan plan.json --mini-batches 1000000000000 -o none.html
page=none.html
load none.html
expect lanes 0
make_plan 3 1 1f1b stash >stash.json
report --plan stash.json -o stash.html
page=stash.html
load stash.html
expect workers 3
expect wrong 0
make_plan 4 6 zb-v flush 0,1,1,0 >v.json
report --plan v.json -o v.html
page=v.html
load v.html
expect workers 2
expect wrong 0
grep -q 'weights W' dom || fail "$page: the legend lacks W"

# A trace that no run writes: FREEs without end, none of which is followed by a STEP of its stage.
# The page must not look for one each time.
{
  printf '['
  yes '{"ph":"X","cat":"FREE","ts":0,"dur":1,"pid":0,"tid":0,"args":{"stage":0,"version":0}},' |
    head -n 300000
  yes '{"ph":"X","cat":"F","ts":0,"dur":1,"pid":0,"tid":0,"args":{"stage":1}},' | head -n 300000
  printf '{}]'
} >free.json
report --plan stash.json --trace free.json -o free.html
page=free.html
load free.html
expect actions 600000

# The size that has to stay smooth; frame times are in docs/reports.md.
make_plan 64 256 1f1b-flush flush >large.json
measured large.json 1 measured.json
report --plan large.json --trace measured.json -o large.html
page=large.html
load large.html
expect workers 64
[ "$(mark drawn)" -gt 190000 ] || fail "$page: $(mark drawn) actions were drawn"

[ "$failures" -eq 0 ]

# penstock report: the page and the picture without a browser, and what it says to bad input. Needs
# no libtorch.
source "$(dirname "$0")/lib.sh"
source "$here/report_plans.sh"

make_plan 4 8 1f1b-flush flush >plan.json
make_history >run.json
run 0 report --plan plan.json --json
json_keys html bytes actions lanes idle_share makespan_ns
[ -s report.html ] || fail "report.html was not written"
for part in '<canvas id="timeline"' 'samples/s predicted' 'Strategies' '</html>'; do
  grep -q "$part" report.html || fail "the page lacks $part"
done
grep -q 'Largest differences' report.html && fail "the page compares one timeline with nothing"
grep -Eq 'href=| src=|url\([^#]|@import' report.html && fail "the page needs more than itself"
grep -q '<b>slow' report.html && fail "a note became markup"

# A measured timeline beside the prediction that the report makes itself; then both from one file,
# as train writes them.
run 0 simulate --plan plan.json --mini-batches 2 --compute-spread 0.1 --trace spread.json
sed 's/"predicted"/"measured"/' spread.json >measured.json
run 0 report --plan plan.json --trace measured.json --history run.json -o both.html --json
[ "$(numbers actions | wc -l)" -ge 1 ] || fail "no actions are counted"
grep -q '"source":"predicted"' out && grep -q '"source":"measured"' out ||
  fail "the lanes are not predicted and measured: $(cat out)"
for part in 'Largest differences, measured against predicted' 'samples/s measured' \
  '"points":\[\[' 'Accuracy'; do
  grep -q "$part" both.html || fail "the page with a trace and a history lacks $part"
done
# The history says 1f1b, the plan 1f1b-flush; nothing is said of one that fits, or does not say.
note='The history belongs to another run: strategy 1f1b instead of 1f1b-flush.<'
grep -q "$note" both.html ||
  fail "the page does not say that the history is another plan's"
for strategy in 1f1b-flush ''; do
  sed "s/\"strategy\": \"1f1b\"/\"strategy\": \"$strategy\"/" run.json >fits.json
  run 0 report --plan plan.json --history fits.json -o fits.html
  grep -q 'The history belongs to another run' fits.html &&
    fail "the page finds a history of '$strategy' another plan's"
done
# A trace of other workers is another plan's, too.
make_plan 2 8 1f1b-flush flush >two.json
run 0 simulate --plan two.json --mini-batches 2 --trace two-trace.json
note='The trace belongs to another run: 2 workers instead of 4, 2 stages instead of 4.'
run 0 report --plan plan.json --trace two-trace.json -o other.html
grep -qF "$note" out || fail "a trace of another plan: $(cat out)"
grep -qF "$note" other.html || fail "the page does not say that the trace is another plan's"
run 0 report --plan two.json --trace two-trace.json -o other.html
grep -q 'belongs to another run' out && fail "a trace that fits: $(cat out)"
run 0 report --plan plan.json --trace measured.json --history run.json -o again.html
cmp -s both.html again.html || fail "the page differs from one time to the next"
# What a trace predicts already is not predicted another way.
run 0 report --plan plan.json --trace measured.json --mini-batches 1 -o other.html --json
grep -q '"source":"predicted"' out ||
  fail "no prediction beside a measured timeline alone: $(cat out)"
run 0 report --plan plan.json --trace spread.json -o other.html
refused '--mini-batches says what to predict, but spread.json already holds a prediction' report \
  --plan plan.json --trace spread.json --mini-batches 1 -o x.html
run 0 schedule --kind gpipe --stages 4 -o gpipe.txt
refused 'leave out --schedule' report --plan plan.json --trace spread.json --schedule gpipe.txt \
  -o x.html
run 0 simulate --plan plan.json --mini-batches 2 --html simulated.html
grep -q '<canvas id="timeline"' simulated.html || fail "simulate --html writes no timeline"

# Schedules from files, as simulate takes them: any that runs, lowered or compute actions alone,
# PyTorch's rows.
run 0 schedule --kind eager-1f1b --stages 4 --micro-batches 16 --slack 4 -o slack.txt
run 0 report --plan plan.json --schedule slack.txt -o slack.html
run 0 schedule --kind zb-h1 --stages 4 -o lowered.txt
run 0 schedule --kind zb-h1 --stages 4 --compute-only -o rows.txt
run 0 schedule --kind zb-h1 --stages 4 --compute-only --format pytorch -o rows.csv
for file in lowered.txt rows.txt rows.csv; do
  run 0 report --plan plan.json --schedule "$file" -o schedule.html --json
  grep -o '"lanes":.*' out >"$file.lanes"
  cmp -s "$file.lanes" lowered.txt.lanes ||
    fail "$file: another timeline than lowered.txt: $(cat out)"
done

# 64 workers and 256 micro-batches, predicted and measured: below 5 MB.
make_plan 64 256 1f1b-flush flush >large.json
run 0 simulate --plan large.json --mini-batches 1 --compute-spread 0.1 --trace spread.json
sed 's/"predicted"/"measured"/' spread.json >measured.json
run 0 report --plan large.json --trace measured.json -o large.html --json
[ "$(numbers bytes)" -lt 5000000 ] || fail "the page has $(numbers bytes) bytes"
[ "$(grep -o '"actions":[0-9]*' out | head -n 1 | cut -d: -f2)" -gt 190000 ] ||
  fail "the page has too few actions: $(cat out)"

make_plan 2 8 1f1b-flush flush >two.json
refused 'they do not belong together' report --plan two.json --trace measured.json -o x.html
refused 'has 4 stages, the plan 2' report --plan two.json --schedule rows.csv -o x.html
refused '--plan' report --trace measured.json
refused 'no_such.json' report --plan no_such.json
refused 'expected a trace' report --plan plan.json --trace plan.json -o x.html
refused 'penstock-history' report --plan plan.json --history plan.json -o x.html
head -c 100000 "$PENSTOCK" >program
refused 'not valid JSON' report --plan plan.json --history program -o x.html
refused 'not valid JSON' report --plan plan.json --trace program -o x.html
printf '{"traceEvents":[{"ph":"X","cat":"F","ts":NaN}]}' >nan.json
refused 'not valid JSON' report --plan plan.json --trace nan.json -o x.html
printf '{"traceEvents":[{"ph":"X","cat":"F","ts":0,"dur":1,"pid":0,"tid":%s,"args":{"stage":0}}]}' \
  1000000000 >wide.json
refused '"tid"' report --plan plan.json --trace wide.json -o x.html
printf '{"traceEvents":[]}' >none.json
refused 'the trace holds no action' report --plan plan.json --trace none.json -o x.html
{
  printf '['
  yes '{"ph":"X","cat":"F","ts":0,"dur":1,"pid":0,"tid":0,"args":{"stage":0}},' | head -n 1000001
  printf '{}]'
} >many.json
refused 'at most 1000000 actions' report --plan plan.json --trace many.json -o x.html
yes '[' | head -c 1000000 >deep.json
refused 'nested deeper' report --plan plan.json --trace deep.json -o x.html
refused 'at least 1, found -1' report --plan plan.json --mini-batches -1
refused 'at least 1, found 0' report --plan plan.json --mini-batches 0
refused 'leave out --mini-batches' report --plan plan.json --schedule gpipe.txt --mini-batches 2
refused '--output: expected a value, found an empty one' report --plan plan.json -o ''
refused '--output expected a file name' report --plan plan.json -o -
refused 'would overwrite the file of --plan' report --plan plan.json -o plan.json
refused 'would overwrite the file of --plan' simulate --plan plan.json --trace plan.json
refused 'would overwrite the file of --plan' schedule --plan plan.json -o plan.json
[ ! -e x.html ] || fail "a refused report left a page"

# A plan with more steps than can be drawn is reported without a timeline.
run 0 report --plan plan.json --mini-batches 1000000000000 -o long.html --json
grep -q 'No timeline' long.html || fail "the page does not say why there is no timeline"
finish

# live_page.sh DEMO: the page of a stream in headless Chromium: numbers and pictures change, curves
# and the timeline are drawn, an end and a lost connection are told, and neither missing nor odd
# values break it. Exits with 77 (skipped) where there is no Chromium.
set -u
DEMO=$1
browser=
for name in chromium chromium-browser google-chrome; do
  command -v "$name" >/dev/null && browser=$name && break
done
if [ -z "$browser" ]; then
  echo "skipped: no chromium here (scripts/install-deps.sh --dev installs it)"
  exit 77
fi
work=$(mktemp -d "${TMPDIR:-/tmp}/penstock-live.XXXXXX") || exit 1
demo=
finish() {
  [ -z "$demo" ] || kill "$demo" 2>/dev/null
  rm -rf "$work"
}
trap finish EXIT
cd "$work" || exit 1
failures=0
fail() {
  echo "FAILED: $page: $*" >&2
  failures=$((failures + 1))
}

# serve MODE: the invented stream at $url.
serve() {
  local i
  page=$1
  : >url.txt
  "$DEMO" "$1" 100 >url.txt &
  demo=$!
  for ((i = 0; i < 1000; i++)); do
    [ -s url.txt ] && break
    sleep 0.01
  done
  url=$(cat url.txt)
  [ -n "$url" ] || fail "no address was printed"
}
stop() {
  kill "$demo" 2>/dev/null
  wait "$demo" 2>/dev/null
  demo=
}

# load [CHROMIUM'S OPTIONS...]: the document after some seconds of the page's time, into dom.
load() {
  timeout -k 5 100 "$browser" --headless=new --no-sandbox --disable-gpu \
    --user-data-dir="$work/browser" --window-size=1366,768 --enable-logging=stderr \
    --virtual-time-budget=6000 --dump-dom "$@" "$url" >dom 2>browser.log
  [ "$(mark errors)" = 0 ] || fail "'$(mark errors)' script errors: $(text_of trouble)"
}
no_console_messages() {
  ! grep 'CONSOLE' browser.log >console.txt || fail "on the console: $(head -n 2 console.txt)"
}
mark() { grep -o "<html[^>]*" dom | grep -o "data-$1=\"[^\"]*\"" | cut -d'"' -f2; }
text_of() { grep -o "id=\"$1\"[^>]*>[^<]*" dom | head -n 1 | sed 's/.*>//'; }
expect() {  # expect MARK VALUE
  [ "$(mark "$1")" = "$2" ] || fail "expected $1 = $2, found '$(mark "$1")'"
}
at_least() {  # at_least MARK VALUES: of one or more numbers
  local found wanted=$2
  for found in $(mark "$1"); do
    [ "$found" -ge "${wanted%% *}" ] || fail "expected $1 >= $2, found '$(mark "$1")'"
    wanted=${wanted#* }
  done
  [ -n "$(mark "$1")" ] || fail "expected $1 >= $2, found none"
}
shows() {  # shows ID PATTERN
  text_of "$1" | grep -Eq "$2" || fail "expected $2 in $1, found '$(text_of "$1")'"
}

serve running
load
no_console_messages
expect connection live
expect lanes 4
shows about 'task pixels'
at_least polls 5
at_least changes 20
at_least blocks 20
at_least ticks 5
at_least curves "100 300 200"
at_least pictures "2 2"
shows processed '^2,[0-9][0-9][0-9]$'
shows fps '^2[0-9]\.[0-9] $'
shows latency-p50 '^[0-9.]+ ms$'
shows right '^87\.5 %$'
shows rebuilt '^0\.2500$'
grep -q 'background-color: rgb(230, 159, 0)[^<]*</i>class 1</span>' dom ||
  fail "no colour of class 1: $(grep -o 'id="classes".\{300\}' dom)"
shows status '^live$'
shows title '^Autoencoder'
grep -q '70 %' dom || fail "stage 0's busy share is missing"
load --window-size=400,800 --force-dark-mode
no_console_messages
at_least blocks 10
# Less motion: a picture every two seconds.
load --force-prefers-reduced-motion
at_least ticks 1
[ "$(mark ticks)" -le 6 ] || fail "the timeline moved $(mark ticks) times"
stop

serve predict
load
no_console_messages
shows output-name '^Predicted next frame$'
shows copying '^0\.1250$'
at_least curves "200 300 200"
# A tile without a value is not shown.
for id in right rebuilt; do
  grep -q "class=\"figure\" hidden=\"\"><b id=\"$id\"" dom || fail "the tile of $id is shown"
done
grep -q 'class="figure"><b id="copying"' dom || fail "no tile of the last frame's loss"
stop

serve ended
load
no_console_messages
expect connection ended
at_least blocks 20
shows notice '^The stream has ended: 3000 frames were asked for\.'
stop

# The program ends while the page is open.
serve leaving
load
expect connection lost
at_least polls 5
at_least curves "100 300 200"
shows notice '^No answer from the program since '
shows processed '^2,[0-9][0-9][0-9]$'
stop

serve bare
load
no_console_messages
expect connection live
expect blocks 0
shows processed '^–$'
stop

serve odd
load
no_console_messages
expect connection live
grep -q '&lt;img src=x' dom || fail "the title is not shown as text"
stop

[ "$failures" -eq 0 ]

#!/usr/bin/env bash
# report_frames.sh [PENSTOCK] [WORKERS] [MICRO_BATCHES]: how long the page of `penstock report`
# takes to be ready and to draw a frame while it zooms, in headless Chromium. Default: the release
# preset's, 64 workers with two stages each, 256 micro-batches.
set -Eeuo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
penstock=$(realpath "${1:-$here/../build/release/penstock}")
workers=${2:-64}
micro_batches=${3:-256}
source "$here/../tests/e2e/report_plans.sh"
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || {
  echo "report_frames.sh: no chromium here (scripts/install-deps.sh --dev installs it)" >&2
  exit 3
}
work=$(mktemp -d "${TMPDIR:-/tmp}/penstock-frames.XXXXXX")
chromium=
finish() {
  [ -z "$chromium" ] || kill "$chromium" 2>/dev/null || true
  wait
  rm -rf "$work"
}
trap finish EXIT
cd "$work"

hosts=$(seq -s, 0 $((workers - 1))),$(seq -s, $((workers - 1)) -1 0)
make_plan $((2 * workers)) "$micro_batches" zb-v flush "$hosts" >plan.json
"$penstock" simulate --plan plan.json --mini-batches 1 --compute-spread 0.1 --trace measured.json \
  >simulated.txt
sed -i 's/"predicted"/"measured"/' measured.json
"$penstock" report --plan plan.json --trace measured.json -o page.html --json
# The page admits its own script only; this copy has one more, which zooms from everything to a
# hundredth and back, a step per frame.
sed 's/<meta http-equiv="Content-Security-Policy"[^>]*>//' page.html >driven.html
cat >>driven.html <<'SCRIPT'
<script>
(async () => {
  const marks = document.documentElement.dataset;
  while (marks.state !== "ready") await new Promise((done) => setTimeout(done, 20));
  const ready = performance.now(), page = window.penstock, view = page.view;
  const steps = 80, gaps = [], draws = [];
  const middle = (view.from + view.to) / 2, factor = Math.pow(0.01, 1 / steps);
  const draw = page.timeline.draw.bind(page.timeline);
  page.timeline.draw = () => {
    const begin = performance.now();
    draw();
    draws.push(performance.now() - begin);
  };
  let last = await new Promise(requestAnimationFrame);
  for (let k = 0; k < 2 * steps; ++k) {
    view.zoom(k < steps ? factor : 1 / factor, middle);
    const now = await new Promise(requestAnimationFrame);
    gaps.push(now - last);
    last = now;
  }
  const at = (values, share) => {
    const last = values.length - 1;
    const sorted = [...values].sort((a, b) => a - b);
    return sorted[Math.min(last, Math.floor(share * values.length))].toFixed(1);
  };
  const shown = (values) =>
      `median ${at(values, 0.5)} ms, p95 ${at(values, 0.95)} ms, longest ${at(values, 1)} ms`;
  console.log(
      `FRAMES ready after ${ready.toFixed(0)} ms; ${gaps.length} frames: ${shown(gaps)}; ` +
      `drawing the timeline: ${shown(draws)}`);
})();
</script>
SCRIPT
"$browser" --headless=new --no-sandbox --disable-gpu --user-data-dir="$work/browser" \
  --window-size=1366,768 --remote-debugging-port=0 \
  --enable-logging=stderr --v=0 "file://$work/driven.html" 2>browser.log &
chromium=$!
for ((waited = 0; waited < 600; ++waited)); do
  if line=$(grep -o 'FRAMES [^"]*' browser.log); then
    echo "${line#FRAMES }"
    exit 0
  fi
  sleep 0.1
done
echo "report_frames.sh: the page did not finish within a minute: $(tail -n 2 browser.log)" >&2
exit 3

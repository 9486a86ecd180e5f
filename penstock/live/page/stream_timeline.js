// The pipeline's timeline, which moves with the stream: a row per stage, a bar per action, in the
// colour of its frame. The state brings the last second or so; bars are kept until they have left
// the picture.

const kSpansNs = [1e6, 2e6, 5e6, 1e7, 2e7, 5e7, 1e8, 2e8, 5e8, 1e9, 2e9, 5e9, 1e10, 2e10, 6e10];
const kUsualSpan = 9;
const kMostBlocks = 20000;
// The picture lags by this much, so that what it shows has arrived; actions are known at their end.
const kLagNs = 4e8;
// Never a whole width in less than this: shorter spans are shown slowed down, and skip.
const kScreenNs = 2e9;
const kFrameColours = 6;

class StreamTimeline extends Timeline {
  constructor(canvas, spanNote) {
    super(canvas, {from: 0, to: 1});
    this.spanNote = spanNote;
    this.stages = [];
    this.spanIndex = null;
    this.paused = false;
    this.reduced = window.matchMedia("(prefers-reduced-motion: reduce)");
    this.clear();
    this.readColours();
  }

  clear() {
    this.blocks = [];  // by worker
    this.lane = {offsets: [0], start: [], end: [], block: []};
    this.workers = 0;
    this.newest = this.offset = this.shownTo = null;
    this.drawn = this.ticks = 0;
  }

  readColours() {
    const style = super.readColours();
    this.frames = Array.from(
        {length: kFrameColours}, (_, k) => style.getPropertyValue("--frame-" + k).trim());
    this.onFrame = this.background[0] < 128 ? "#06121f" : "#ffffff";
    // Backward: the frame's colour as stripes.
    this.striped = this.frames.map((colour) => {
      const base = rgbOf(colour);
      return this.stripes(
          cssOf(mixed(this.background, base, 0.25)), cssOf(mixed(this.background, base, 0.7)), 1.6);
    });
  }

  // timeline: of the state; stages: names for the lanes.
  add(timeline, stages) {
    this.stages = stages;
    const now = timeline && timeline.now_ns;
    if (!timeline || !isNumber(now) || !Array.isArray(timeline.workers)) return;
    // A stream that began anew.
    if (this.newest !== null && now < this.newest - 1e9) this.clear();
    timeline.workers.forEach((events, w) => this.addTo(w, Array.isArray(events) ? events : []));
    this.blocks.length = this.workers = timeline.workers.length;
    this.join();
    this.newest = Math.max(this.newest || 0, now);
    // The clock of the stream in terms of ours: of late answers the earliest is the best.
    const offset = now - performance.now() * 1e6;
    this.offset = this.offset === null || Math.abs(offset - this.offset) > 1e9 ?
        offset :
        Math.max(offset, this.offset - 2e6);
    if (this.spanIndex === null) this.spanIndex = this.fittingSpan();
    this.describe();
  }

  addTo(w, events) {
    const lane = this.blocks[w] || (this.blocks[w] = []);
    let last = lane.length ? lane[lane.length - 1].start : -Infinity;
    for (const event of events) {
      if (!event || !isNumber(event.start_ns) || !isNumber(event.end_ns)) continue;
      if (event.start_ns <= last) continue;
      last = event.start_ns;
      lane.push({op: String(event.op), frame: event.frame, start: last, end: event.end_ns});
    }
    if (lane.length > kMostBlocks) lane.splice(0, lane.length - kMostBlocks);
  }

  // All blocks as one lane.
  join() {
    const all = this.blocks.flat();
    this.lane = {
      offsets: this.blocks.reduce(
          (offsets, lane) => [...offsets, offsets[offsets.length - 1] + lane.length], [0]),
      start: all.map((block) => block.start),
      end: all.map((block) => block.end),
      block: all
    };
  }

  // Actions of a width that can be followed.
  fittingSpan() {
    const lengths = this.blocks.flat()
                        .filter((block) => "FBIW".includes(block.op))
                        .map((block) => block.end - block.start)
                        .sort((a, b) => a - b);
    if (!lengths.length) return null;
    const wanted = this.canvas.clientWidth / 36 * lengths[lengths.length >> 1];
    const index = kSpansNs.findIndex((span) => span >= 0.75 * wanted);
    return index < 0 ? kSpansNs.length - 1 : index;
  }

  get span() { return kSpansNs[this.spanIndex === null ? kUsualSpan : this.spanIndex]; }

  zoom(step) {
    const now = this.spanIndex === null ? kUsualSpan : this.spanIndex;
    this.spanIndex = Math.min(Math.max(now + step, 0), kSpansNs.length - 1);
    this.note();
    this.request();
  }

  note() {
    const slow = kScreenNs / this.span;
    this.spanNote.textContent = durationText(this.span).replace(".00", "").replace(".0", "") +
        " in sight" + (slow > 1 && !this.reduced.matches ? `, slowed down ${slow} times` : "");
  }

  describe() {
    this.note();
    const parts = this.blocks.map((lane, w) => {
      const last = lane[lane.length - 1];
      return `${this.nameOf(w)} ${last ? `${last.op} of frame ${last.frame}` : "nothing yet"}`;
    });
    this.canvas.setAttribute("aria-label", `What each stage did last: ${parts.join("; ")}`);
  }

  nameOf(w) {
    const stage = this.stages[w];
    return stage && stage.name ? String(stage.name) : `stage ${w}`;
  }

  // The end of the time in sight, at this moment. Moving: follows the stream's clock, slowed down
  // if the span is short; too far behind, it jumps to the newest.
  advance(isMoving) {
    if (this.newest === null || this.offset === null) return;
    const clock = performance.now() * 1e6;
    const target = Math.min(clock + this.offset - kLagNs, this.newest);
    if (this.shownTo === null || !isMoving) {
      if (!this.paused || this.shownTo === null) this.shownTo = target;
    } else {
      const slowed = this.shownTo + (clock - this.clock) * Math.min(1, this.span / kScreenNs);
      this.shownTo = target - slowed > 1.5e9 ? target : Math.min(slowed, target);
    }
    this.clock = clock;
  }

  tick(isMoving) {
    this.advance(isMoving && !this.paused);
    this.draw();
    ++this.ticks;
    const oldest = (this.shownTo || 0) - kSpansNs[kSpansNs.length - 1];
    for (const lane of this.blocks) {
      let gone = 0;
      while (gone < lane.length && lane[gone].end < oldest) ++gone;
      if (gone) lane.splice(0, gone);
    }
  }

  lanesShown() { return [0]; }
  laneAt() { return this.lane; }

  layout() {
    this.gutter = this.canvas.clientWidth < 560 ? 64 : 120;
    super.layout();
  }

  draw() {
    this.view.to = this.shownTo || 0;
    this.view.from = this.view.to - this.span;
    super.draw();
  }

  drawTrack(row) {
    this.context.fillStyle = this.card;
    this.context.fillRect(this.box.left, row.y, this.box.right - this.box.left, row.height);
  }

  addAction(row, k) {
    const block = row.lane.block[k], {start, end} = block;
    const isForward = block.op === "F" || block.op === "R";
    if (!isForward && !["B", "I", "W"].includes(block.op))
      return this.addBar("message", row, start, end, 0.3, 0.7);
    const known = Number.isInteger(block.frame) && block.frame >= 0;
    const colour = known ? block.frame % kFrameColours : 0;
    this.addBar(isForward ? colour : colour + kFrameColours, row, start, end, 1, 0);
    this.addLabel(
        row, start, end, String(block.frame), isForward ? this.onFrame : this.text,
        isForward ? undefined : this.panel);
  }

  fillOf(key) {
    return key === "message" ? this.message :
        key < kFrameColours  ? this.frames[key] :
                               this.striped[key - kFrameColours];
  }

  outlineOf(key) { return key >= kFrameColours ? this.frames[key - kFrameColours] : null; }

  drawGutter(first, last) {
    const {context: pen, box} = this;
    pen.textAlign = "left";
    pen.font = "12px system-ui, 'DejaVu Sans', sans-serif";
    pen.fillStyle = this.text;
    for (let w = first; w < last; ++w)
      pen.fillText(this.nameOf(w), 8, this.yOf(w, 0) + box.row / 2 + 4, box.left - 14);
  }

  drawOver() {
    if (this.workers) return;
    const {context: pen, box} = this;
    pen.fillStyle = this.muted;
    pen.textAlign = "center";
    pen.fillText("nothing yet", box.width / 2, box.top + box.room / 2);
  }

  drawAxis() {
    if (this.newest !== null) super.drawAxis();
  }
}

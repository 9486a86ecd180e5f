// The pipeline's timeline, which moves with the stream: a lane per stage, a block per action. The
// state brings the last second or so; blocks are kept until they have left the picture.

const kSpansNs = [1e6, 2e6, 5e6, 1e7, 2e7, 5e7, 1e8, 2e8, 5e8, 1e9, 2e9, 5e9, 1e10, 2e10, 6e10];
const kMostBlocks = 20000;
// The picture lags by this much, so that what it shows has arrived; actions are known at their end.
const kLagNs = 4e8;
// Never a whole width in less than this: shorter spans are shown slowed down, and skip.
const kScreenNs = 2e9;
const kFrameColours = 6;

class Lanes extends Drawing {
  constructor(canvas, spanNote) {
    super(canvas);
    this.spanNote = spanNote;
    this.stages = [];
    this.spanIndex = null;
    this.paused = false;
    this.reduced = window.matchMedia("(prefers-reduced-motion: reduce)");
    this.clear();
    this.readColours();
  }

  clear() {
    this.workers = [];
    this.newest = this.offset = this.shownTo = null;
    this.drawn = this.ticks = 0;
  }

  readColours() {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue("--" + name).trim();
    this.colours = {};
    for (const name of ["panel", "text", "muted", "rule", "message", "card"])
      this.colours[name] = colour(name);
    this.frames = Array.from({length: kFrameColours}, (_, k) => colour("frame-" + k));
    const dark = parseInt(this.colours.panel.slice(1, 3), 16) < 128;
    this.onFrame = dark ? "#06121f" : "#ffffff";
    this.hatched = this.frames.map((base) => this.hatch(base));
  }

  // Backward: the frame's colour as stripes.
  hatch(base) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 6;
    const pen = tile.getContext("2d");
    pen.fillStyle = this.colours.panel;
    pen.fillRect(0, 0, 6, 6);
    pen.globalAlpha = 0.25;
    pen.fillStyle = base;
    pen.fillRect(0, 0, 6, 6);
    pen.globalAlpha = 0.6;
    pen.strokeStyle = base;
    pen.lineWidth = 1.6;
    pen.beginPath();
    for (const shift of [-6, 0, 6]) pen.moveTo(shift - 1, 7), pen.lineTo(shift + 7, -1);
    pen.stroke();
    return this.context.createPattern(tile, "repeat");
  }

  // timeline: of the state; stages: names for the lanes.
  add(timeline, stages) {
    this.stages = stages;
    const now = timeline && timeline.now_ns;
    if (!timeline || !isNumber(now) || !Array.isArray(timeline.workers)) return;
    // A stream that began anew.
    if (this.newest !== null && now < this.newest - 1e9) this.clear();
    timeline.workers.forEach((events, w) => this.addTo(w, Array.isArray(events) ? events : []));
    this.workers.length = timeline.workers.length;
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
    const lane = this.workers[w] || (this.workers[w] = []);
    let last = lane.length ? lane[lane.length - 1].start : -Infinity;
    for (const event of events) {
      if (!event || !isNumber(event.start_ns) || !isNumber(event.end_ns)) continue;
      if (event.start_ns <= last) continue;
      last = event.start_ns;
      lane.push({op: String(event.op), frame: event.frame, start: last, end: event.end_ns});
    }
    if (lane.length > kMostBlocks) lane.splice(0, lane.length - kMostBlocks);
  }

  // Actions of a width that can be followed.
  fittingSpan() {
    const lengths = this.workers.flat()
                        .filter((block) => "FBIW".includes(block.op))
                        .map((block) => block.end - block.start)
                        .sort((a, b) => a - b);
    if (!lengths.length) return null;
    const wanted = this.canvas.clientWidth / 36 * lengths[lengths.length >> 1];
    const index = kSpansNs.findIndex((span) => span >= 0.75 * wanted);
    return index < 0 ? kSpansNs.length - 1 : index;
  }

  get span() { return kSpansNs[this.spanIndex === null ? 9 : this.spanIndex]; }

  zoom(step) {
    const now = this.spanIndex === null ? 9 : this.spanIndex;
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
    const parts = this.workers.map((lane, w) => {
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
    for (const lane of this.workers) {
      let gone = 0;
      while (gone < lane.length && lane[gone].end < oldest) ++gone;
      if (gone) lane.splice(0, gone);
    }
  }

  layout() {
    const ratio = window.devicePixelRatio || 1, width = this.canvas.clientWidth;
    const count = Math.max(1, this.workers.length);
    const row = Math.max(16, Math.min(44, 360 / count));
    const height = Math.round(count * row + 26);
    this.canvas.style.height = height + "px";
    const sizes = [Math.round(width * ratio), Math.round(height * ratio)];
    if (this.canvas.width !== sizes[0]) this.canvas.width = sizes[0];
    if (this.canvas.height !== sizes[1]) this.canvas.height = sizes[1];
    const left = width < 560 ? 64 : 120;
    return {ratio, width, height, row, left, right: width - 8, top: 4, bottom: height - 22};
  }

  draw() {
    const box = this.layout();
    if (!box.width) return;
    const pen = this.context, to = this.shownTo || 0, from = to - this.span;
    const x = (time) => box.left + (box.right - box.left) * (time - from) / this.span;
    pen.setTransform(box.ratio, 0, 0, box.ratio, 0, 0);
    pen.fillStyle = this.colours.panel;
    pen.fillRect(0, 0, box.width, box.height);
    pen.textBaseline = "middle";
    this.axis(pen, box, x, from, to);
    this.drawn = 0;
    if (!this.workers.length) {
      pen.fillStyle = this.colours.muted;
      pen.font = "11px system-ui, sans-serif";
      pen.textAlign = "center";
      pen.fillText("nothing yet", box.width / 2, box.height / 2);
    }
    this.workers.forEach((lane, w) => {
      const top = box.top + w * box.row, middle = top + box.row / 2;
      pen.fillStyle = this.colours.text;
      pen.textAlign = "left";
      pen.font = "12px system-ui, sans-serif";
      pen.fillText(this.nameOf(w), 8, middle, box.left - 14);
      pen.fillStyle = this.colours.card;
      pen.fillRect(box.left, top + 2, box.right - box.left, box.row - 4);
      pen.save();
      pen.beginPath();
      pen.rect(box.left, top, box.right - box.left, box.row);
      pen.clip();
      this.lane(pen, lane, x, top + 2, box.row - 4, from, to);
      pen.restore();
    });
  }

  axis(pen, box, x, from, to) {
    pen.strokeStyle = this.colours.rule;
    pen.fillStyle = this.colours.muted;
    pen.font = "11px system-ui, sans-serif";
    pen.textAlign = "center";
    if (this.newest === null) return;
    // Ticks stay at their times, so they move with the blocks.
    for (const tick of roundTicks(from, to, box.width < 560 ? 3 : 6)) {
      const at = x(tick);
      if (at < box.left + 24 || at > box.right - 24) continue;
      pen.beginPath();
      pen.moveTo(at, box.bottom);
      pen.lineTo(at, box.bottom + 5);
      pen.stroke();
      const digits = this.span >= 5e9 ? 0 : this.span >= 5e8 ? 1 : this.span >= 5e7 ? 2 : 3;
      pen.fillText((tick / 1e9).toFixed(digits) + " s", at, box.bottom + 13);
    }
  }

  lane(pen, lane, x, top, height, from, to) {
    pen.font = "11px system-ui, sans-serif";
    pen.textAlign = "center";
    for (const block of lane) {
      if (block.end < from || block.start > to) continue;
      const left = x(block.start), width = Math.max(x(block.end) - left - 0.5, 0.5);
      const isForward = block.op === "F" || block.op === "R";
      const isBackward = block.op === "B" || block.op === "I" || block.op === "W";
      const known = Number.isInteger(block.frame) && block.frame >= 0;
      const colour = known ? block.frame % kFrameColours : 0;
      ++this.drawn;
      if (!isForward && !isBackward) {
        pen.fillStyle = this.colours.message;
        pen.fillRect(left, top + height * 0.7, width, height * 0.3);
        continue;
      }
      pen.fillStyle = isForward ? this.frames[colour] : this.hatched[colour];
      pen.fillRect(left, top, width, height);
      if (isBackward && width > 3) {
        pen.strokeStyle = this.frames[colour];
        pen.strokeRect(left + 0.5, top + 0.5, width - 1, height - 1);
      }
      this.label(pen, block, isForward, left, width, top, height);
    }
  }

  label(pen, block, isForward, left, width, top, height) {
    const text = String(block.frame), room = pen.measureText(text).width;
    if (room + 3 > width) return;
    const middle = left + width / 2;
    if (!isForward) {
      pen.fillStyle = this.colours.panel;
      pen.fillRect(middle - room / 2 - 2, top + height / 2 - 7, room + 4, 14);
    }
    pen.fillStyle = isForward ? this.onFrame : this.colours.text;
    pen.fillText(text, middle, top + height / 2 + 0.5);
  }
}

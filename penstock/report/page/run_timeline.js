// The timeline of a run: all lanes of a worker below each other. Bars where there is room for them;
// where there is not, each pixel shows how much of its time went into what, so that a frame costs
// one pass over what is in sight, whatever the zoom.

const kLooks = ["forward", "backward", "weight", "recompute", "message", "sync", "step", "free"];
const kLookOfOp = {
  F: 0,
  B: 1,
  I: 1,
  W: 2,
  R: 3,
  OFFLOAD: 4,
  LOAD: 4,
  SEND_F: 4,
  RECV_F: 4,
  SEND_B: 4,
  RECV_B: 4,
  SYNC: 5,
  NORM: 5,
  STEP: 6,
  FREE: 7
};
const kHeights = [1, 1, 1, 1, 0.3, 0.55, 0.8, 0];
const kShades = 4;
const kScrollBar = 9;
const kMostBars = 20000;

// What is in sight: shared with the charts below, which follow.
class View {
  constructor(span, least) {
    this.span = Math.max(span, 1);
    this.least = Math.min(Math.max(least, 1), this.span);
    this.from = 0;
    this.to = this.span;
    this.listeners = [];
  }
  set(from, to) {
    const size = Math.min(Math.max(to - from, this.least), this.span);
    this.from = Math.min(Math.max(from, 0), this.span - size);
    this.to = this.from + size;
    for (const listener of this.listeners) listener();
  }
  zoom(factor, around) {
    const size = Math.min(Math.max((this.to - this.from) * factor, this.least), this.span);
    const share = (around - this.from) / (this.to - this.from);
    this.set(around - share * size, around + (1 - share) * size);
  }
  pan(share) {
    const shift = (this.to - this.from) * share;
    this.set(this.from + shift, this.to + shift);
  }
}

class RunTimeline extends Timeline {
  constructor(canvas, model, view) {
    super(canvas, view);
    this.overview = document.createElement("canvas");
    this.model = model;
    this.workers = model.workers;
    this.gutterTitle = "idle share";
    this.footer = kScrollBar + 4;
    this.shown = model.lanes.map(() => true);
    this.messages = true;
    this.hover = null;
    this.selected = -1;
    this.looks = model.ops.map((name) => kLookOfOp[name]);
    this.paints = new Map();
    for (const lane of model.lanes)
      if (!this.paints.has(lane.op)) this.paints.set(lane.op, this.paintOf(lane));
    this.readColours();
  }

  readColours() {
    const style = super.readColours();
    const colour = (name) => rgbOf(style.getPropertyValue("--" + name));
    this.colours = kLooks.map((look) => {
      const base = colour(look);
      return Array.from(
          {length: kShades}, (_, shade) => mixed(base, this.background, 0.22 * shade));
    });
    this.labelColours =
        kLooks.map((look) => style.getPropertyValue(`--on-${look}`).trim() || "#000");
    for (const name of ["thumb", "selection", "waiting"])
      this[name] = style.getPropertyValue("--" + name);
    const idle = colour("idle"), hatch = colour("hatch");
    this.idlePattern = this.stripes(cssOf(idle), cssOf(hatch));
    this.idleFlat = mixed(idle, hatch, 0.3);
  }

  lanesShown() {
    return this.model.lanes.map((_, index) => index).filter((index) => this.shown[index]);
  }
  laneAt(index) { return this.model.lanes[index]; }

  shadeOf(worker, stage) {
    const stages = this.model.stagesOfWorker[worker];
    return stages.length < 2 ? 0 : Math.min(stages.indexOf(stage), kShades - 1);
  }

  // Look and shade of every action in one number.
  paintOf(lane) {
    const paint = new Uint8Array(lane.count);
    for (let worker = 0; worker < this.model.workers; ++worker) {
      for (let k = lane.offsets[worker]; k < lane.offsets[worker + 1]; ++k) {
        paint[k] = this.looks[lane.op[k]] * kShades + this.shadeOf(worker, lane.stage[k]);
      }
    }
    return paint;
  }

  // One way for all rows, so that they look alike.
  drawRows(rows) {
    const total = rows.reduce((sum, row) => sum + row.end - row.begin, 0);
    if (total > kMostBars || total > rows.length * (this.box.right - this.box.left))
      this.drawDense(rows);
    else
      super.drawRows(rows);
  }

  drawTrack(row) {
    const {context: pen, box} = this;
    pen.fillStyle = this.idlePattern;
    const begin = Math.max(box.left, this.xOf(0)),
          end = Math.min(box.right, this.xOf(row.lane.makespan));
    if (end > begin) pen.fillRect(begin, row.y, end - begin, row.height);
  }

  addAction(row, k) {
    const lane = row.lane, paint = this.paints.get(lane.op)[k];
    const look = this.looks[lane.op[k]];
    if (look === 7 || (look === 4 && !this.messages)) return;
    const working = lane.start[k] + lane.waiting[k];
    if (lane.waiting[k] > 0) this.addBar("waiting", row, lane.start[k], working, 0.14, 0.43);
    if (lane.end[k] <= working) return;
    this.addBar(paint, row, working, lane.end[k], kHeights[look], 1 - kHeights[look]);
    if (look > 3 || row.height < 11) return;
    const several = this.model.stagesOfWorker[row.worker].length > 1;
    const stage = several ? stageName(this.model, lane.stage[k]) : "";
    const text = stage + this.model.ops[lane.op[k]] + lane.batch[k];
    const colour = paint % kShades < 2 ? this.labelColours[look] : this.text;
    this.addLabel(row, working, lane.end[k], text, colour);
  }

  fillOf(key) {
    return key === "waiting" ? this.waiting :
                               cssOf(this.colours[Math.floor(key / kShades)][key % kShades]);
  }

  // One line of pixels per row, all in one small image, then stretched to the rows' height. The
  // image stays for as long as it shows the same, so that moving the pointer costs little.
  drawDense(rows) {
    const {box, view} = this;
    const width = Math.max(1, Math.round((box.right - box.left) * box.ratio));
    const shown = [
      view.from, view.to, width, rows.length, rows[0].worker, this.messages, this.shown,
      this.colours[0][0]
    ].join(" ");
    if (this.overviewShown !== shown) {
      const image = new ImageData(width, rows.length);
      const pixels = new Uint32Array(image.data.buffer);
      rows.forEach(
          (row, index) => this.fillDense(row, pixels.subarray(index * width, (index + 1) * width)));
      this.overview.width = width;
      this.overview.height = rows.length;
      this.overview.getContext("2d").putImageData(image, 0, 0);
      this.overviewShown = shown;
    }
    this.drawn = rows.reduce((sum, row) => sum + row.end - row.begin, 0);
    this.context.imageSmoothingEnabled = false;
    rows.forEach((row, index) => {
      this.context.drawImage(
          this.overview, 0, index, width, 1, box.left, row.y, box.right - box.left, row.height);
    });
  }

  // Adds up, pixel by pixel, the time at work and what colours it has; the rest of a pixel is idle.
  fillDense(row, pixels) {
    const {view} = this;
    const {start, end, waiting, makespan} = row.lane, width = pixels.length;
    const paint = this.paints.get(row.lane.op);
    const colours = this.colours.flat();
    const scale = width / (view.to - view.from);
    const shares = this.shares && this.shares.length === width * 4 ?
        this.shares.fill(0) :
        this.shares = new Float32Array(width * 4);
    const firstHidden = (this.messages ? 7 : 4) * kShades;
    for (let k = row.begin; k < row.end; ++k) {
      const kind = paint[k];
      if (kind >= 7 * kShades || (kind >= firstHidden && kind < 5 * kShades)) continue;
      const x0 = Math.max(0, (start[k] + waiting[k] - view.from) * scale);
      const x1 = Math.min(width, (end[k] - view.from) * scale);
      if (!(x1 > x0)) continue;
      const colour = colours[kind], strength = kHeights[kind / kShades | 0];
      for (let x = x0 | 0; x < x1; ++x) {
        const part = (Math.min(x + 1, x1) - Math.max(x, x0)) * strength, at = 4 * x;
        shares[at] += part;
        shares[at + 1] += part * colour[0];
        shares[at + 2] += part * colour[1];
        shares[at + 3] += part * colour[2];
      }
    }
    const first = -view.from * scale, last = (makespan - view.from) * scale;
    for (let x = 0, at = 0; x < width; ++x, at += 4) {
      const base = x + 1 > first && x < last ? this.idleFlat : this.background;
      const total = shares[at], free = total < 1 ? 1 - total : 0,
            factor = total > 1 ? 1 / total : 1;
      const red = base[0] * free + shares[at + 1] * factor,
            green = base[1] * free + shares[at + 2] * factor;
      pixels[x] = 0xff000000 | (base[2] * free + shares[at + 3] * factor) << 16 | green << 8 | red;
    }
  }

  drawGutter(first, last) {
    const {context: pen, box} = this;
    const every = Math.max(1, Math.ceil(11 / box.group));
    for (let worker = first; worker < last; ++worker) {
      const y = this.yOf(worker, 0);
      if (worker === this.selected) {
        pen.fillStyle = this.selection;
        pen.fillRect(0, y, box.left - 1, Math.max(2, box.group - 1));
      }
      if (worker % every) continue;
      const slowest = this.model.slowest[worker];
      pen.fillStyle = slowest ? this.accent : this.text;
      pen.textAlign = "left";
      pen.font = box.group >= 22 ? "600 12px system-ui, 'DejaVu Sans', sans-serif" :
                                   "10px system-ui, 'DejaVu Sans', sans-serif";
      const tall = box.group >= 26;
      pen.fillText(
          `worker ${worker}`, 8,
          Math.max(y + (tall ? 13 : Math.min(box.group, 12) / 2 + 4), box.top + 8));
      pen.fillStyle = this.muted;
      pen.font = "10px system-ui, 'DejaVu Sans', sans-serif";
      if (tall) {
        const stages =
            this.model.stagesOfWorker[worker].map((stage) => stageName(this.model, stage));
        const names = stages.length > 4 ? stages.slice(0, 3).join(" ") + " .." : stages.join(" ");
        if (stages.length) pen.fillText(`stage${stages.length > 1 ? "s" : ""} ${names}`, 8, y + 25);
        if (slowest && box.group >= 38) {
          pen.fillStyle = this.accent;
          pen.fillText("slowest", 8, y + 37);
          pen.fillStyle = this.muted;
        }
      }
      pen.textAlign = "right";
      if (box.row >= 10) {
        this.lanesShown().forEach((lane, index) => {
          const short = box.left < 150 ? / ?predicted| ?measured/ : /, predicted|, measured/;
          const name = this.model.lanes[lane].name.replace(
              short, (found) => found.replace("predicted", "pred.").replace("measured", "meas."));
          const text = `${name.slice(0, 12)} ${Math.round(100 * this.model.idle[lane][worker])} %`;
          pen.fillText(text, box.left - 6, this.yOf(worker, index) + box.row / 2 + 3.5);
        });
      }
    }
  }

  drawFooter() {
    const {context: pen, box, view} = this;
    const y = box.height - kScrollBar, width = box.right - box.left;
    pen.fillStyle = this.rule;
    pen.fillRect(box.left, y + 2, width, 4);
    pen.fillStyle = this.thumb;
    pen.fillRect(
        box.left + view.from / view.span * width, y,
        Math.max(6, (view.to - view.from) / view.span * width), 8);
    const total = box.group * this.model.workers;
    if (total > box.room + 1) {
      pen.fillStyle = this.rule;
      pen.fillRect(box.right + 3, box.top, 4, box.room);
      pen.fillStyle = this.thumb;
      pen.fillRect(
          box.right + 2, box.top + this.scroll / total * box.room, 6,
          Math.max(12, box.room / total * box.room));
    }
  }

  // What lies under the pointer: {lane, worker, k} or null. Within three pixels of the nearest
  // action.
  find(x, y) {
    const {box} = this;
    if (!box || x < box.left || x > box.right || y < box.top || y > box.top + box.room) return null;
    const lanes = this.lanesShown();
    const worker = Math.floor((y - box.top + this.scroll) / box.group);
    const index = Math.floor((y - this.yOf(worker, 0)) / box.row);
    if (worker < 0 || worker >= this.model.workers || index < 0 || index >= lanes.length)
      return null;
    const lane = this.model.lanes[lanes[index]];
    const time = this.timeAt(x), reach = this.timeAt(x + 3) - time;
    const end = lane.offsets[worker + 1];
    let best = null, bestDistance = reach;
    const middle = firstAbove(lane.start, lane.offsets[worker], end, time);
    for (let k = Math.max(lane.offsets[worker], middle - 6); k < Math.min(end, middle + 3); ++k) {
      const look = this.looks[lane.op[k]];
      if (look === 7 || (look === 4 && !this.messages)) continue;
      const distance = Math.max(lane.start[k] - time, time - lane.end[k], 0);
      if (distance < bestDistance || (distance === 0 && bestDistance === 0)) {
        best = {lane: lanes[index], worker, k};
        bestDistance = distance;
      }
    }
    return best || {lane: lanes[index], worker, k: -1};
  }

  drawOver() {
    if (!this.hover || this.hover.k < 0) return;
    const {context: pen, box} = this;
    const {lane: hoverLane, worker, k} = this.hover;
    const lane = this.model.lanes[hoverLane];
    pen.strokeStyle = this.accent;
    pen.lineWidth = 2;
    this.lanesShown().forEach((index, place) => {
      const other = this.model.lanes[index];
      const j = index === hoverLane ? k : counterpart(lane, k, worker, other);
      if (j < 0) return;
      const x0 = Math.max(box.left, this.xOf(other.start[j])),
            x1 = Math.min(box.right, this.xOf(other.end[j]));
      if (x1 >= x0)
        pen.strokeRect(
            x0 - 0.5, this.yOf(worker, place) + 0.5, Math.max(3, x1 - x0),
            Math.max(2, box.row - 2));
    });
  }
}

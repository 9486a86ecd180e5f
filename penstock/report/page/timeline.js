// The timeline: all lanes of a worker below each other on one canvas. Bars where there is room for
// them; where there is not, each pixel shows how much of its time went into what, so that a frame
// costs one pass over what is in sight, whatever the zoom.

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
const kGutter = 168;
const kAxis = 24;
const kScrollBar = 9;
const kMostBars = 20000;

function rgbOf(hex) {
  const value = parseInt(hex.trim().slice(1), 16);
  return [value >> 16 & 255, value >> 8 & 255, value & 255];
}
const mixed = (a, b, share) =>
    a.map((channel, i) => Math.round(channel + (b[i] - channel) * share));
const cssOf = (rgb) => `rgb(${rgb[0]},${rgb[1]},${rgb[2]})`;

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

class Timeline extends Drawing {
  constructor(canvas, model, view) {
    super(canvas);
    this.overview = document.createElement("canvas");
    this.model = model;
    this.view = view;
    this.scroll = 0;
    this.zoomRows = 1;
    this.shown = model.lanes.map(() => true);
    this.messages = true;
    this.hover = null;
    this.selected = -1;
    this.drawn = 0;
    this.looks = model.ops.map((name) => kLookOfOp[name]);
    this.paints = new Map();
    for (const lane of model.lanes)
      if (!this.paints.has(lane.op)) this.paints.set(lane.op, this.paintOf(lane));
    this.readColours();
  }

  readColours() {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => rgbOf(style.getPropertyValue("--" + name));
    this.background = colour("panel");
    this.colours = kLooks.map((look) => {
      const base = colour(look);
      return Array.from(
          {length: kShades}, (_, shade) => mixed(base, this.background, 0.22 * shade));
    });
    this.labelColours =
        kLooks.map((look) => style.getPropertyValue(`--on-${look}`).trim() || "#000");
    this.idle = colour("idle");
    this.hatch = colour("hatch");
    this.text = style.getPropertyValue("--text");
    this.muted = style.getPropertyValue("--muted");
    this.rule = style.getPropertyValue("--rule");
    this.thumb = style.getPropertyValue("--thumb");
    this.accent = style.getPropertyValue("--accent");
    this.selection = style.getPropertyValue("--selection");
    this.waitingColour = style.getPropertyValue("--waiting");
    const tile = document.createElement("canvas");
    tile.width = tile.height = 6;
    const pen = tile.getContext("2d");
    pen.fillStyle = cssOf(this.idle);
    pen.fillRect(0, 0, 6, 6);
    pen.strokeStyle = cssOf(this.hatch);
    pen.beginPath();
    for (const shift of [-6, 0, 6]) pen.moveTo(shift, 6), pen.lineTo(shift + 6, 0);
    pen.stroke();
    this.idlePattern = this.context.createPattern(tile, "repeat");
    this.idleFlat = mixed(this.idle, this.hatch, 0.3);
  }

  lanesShown() {
    return this.model.lanes.map((_, index) => index).filter((index) => this.shown[index]);
  }

  // Rows fill the canvas: few rows become tall, many become as low as can be seen, and more than
  // that scroll.
  layout() {
    const ratio = window.devicePixelRatio || 1;
    const lanes = this.lanesShown().length || 1;
    const most = Math.min(Math.max(window.innerHeight * 0.56, 220), 700) - kAxis - kScrollBar - 4;
    const fit = most / Math.max(1, this.model.workers);
    const group =
        Math.max(2, Math.min(Math.max(fit, 2 * lanes + 1), 30 * lanes + 8) * this.zoomRows);
    const gap = group >= 14 * lanes ? Math.min(8, group * 0.16) : 1;
    const room = Math.max(60, Math.min(most, group * this.model.workers));
    const width = this.canvas.clientWidth, height = Math.round(room + kAxis + kScrollBar + 4);
    this.canvas.style.height = height + "px";
    if (this.canvas.width !== Math.round(width * ratio) ||
        this.canvas.height !== Math.round(height * ratio)) {
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round(height * ratio);
    }
    this.box = {
      ratio,
      width,
      height,
      group,
      row: (group - gap) / lanes,
      room,
      left: kGutter,
      right: width - 8,
      top: kAxis
    };
    this.scroll =
        Math.min(Math.max(this.scroll, 0), Math.max(0, group * this.model.workers - room));
  }

  xOf(ns) {
    return this.box.left +
        (ns - this.view.from) / (this.view.to - this.view.from) * (this.box.right - this.box.left);
  }
  timeAt(x) {
    return this.view.from +
        (x - this.box.left) / (this.box.right - this.box.left) * (this.view.to - this.view.from);
  }
  yOf(worker, laneIndex) {
    return this.box.top + worker * this.box.group - this.scroll + laneIndex * this.box.row;
  }
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

  draw() {
    this.layout();
    const {context: pen, box, view} = this;
    pen.setTransform(box.ratio, 0, 0, box.ratio, 0, 0);
    pen.fillStyle = cssOf(this.background);
    pen.fillRect(0, 0, box.width, box.height);
    this.drawn = 0;
    const first = Math.max(0, Math.floor(this.scroll / box.group));
    const last = Math.min(this.model.workers, Math.ceil((this.scroll + box.room) / box.group));
    this.bars = new Map();
    this.labels = [];
    pen.save();
    pen.beginPath();
    pen.rect(0, box.top, box.width, box.room + 2);
    pen.clip();
    const lanes = this.lanesShown();
    const rows = [];
    for (let worker = first; worker < last; ++worker) {
      lanes.forEach((lane, index) => {
        const row = {
          lane: this.model.lanes[lane],
          worker,
          y: this.yOf(worker, index),
          height: Math.max(1, box.row - (box.row > 6 ? 1 : 0))
        };
        row.begin = firstAbove(
            row.lane.end, row.lane.offsets[worker], row.lane.offsets[worker + 1], view.from);
        row.end = firstAbove(row.lane.start, row.begin, row.lane.offsets[worker + 1], view.to);
        rows.push(row);
      });
    }
    // One way for all rows, so that they look alike.
    const total = rows.reduce((sum, row) => sum + row.end - row.begin, 0);
    if (total > kMostBars || total > rows.length * (box.right - box.left)) {
      this.drawDense(rows);
    } else {
      for (const row of rows) this.drawBars(row);
      this.flushBars();
    }
    this.drawLabels();
    this.drawGutter(first, last, lanes);
    this.drawHover();
    pen.restore();
    this.drawAxis();
    this.drawScrollBar();
  }

  drawBars(row) {
    const {context: pen, box} = this;
    const lane = row.lane, paint = this.paints.get(lane.op);
    pen.fillStyle = this.idlePattern;
    const begin = Math.max(box.left, this.xOf(0)),
          end = Math.min(box.right, this.xOf(lane.makespan));
    if (end > begin) pen.fillRect(begin, row.y, end - begin, row.height);
    for (let k = row.begin; k < row.end; ++k) {
      ++this.drawn;
      const look = this.looks[lane.op[k]];
      if (look === 7 || (look === 4 && !this.messages)) continue;
      const working = lane.start[k] + lane.waiting[k];
      if (lane.waiting[k] > 0) this.addBar("waiting", row, lane.start[k], working, 0.14, 0.43);
      if (lane.end[k] > working) {
        const shade = paint[k] % kShades;
        this.addBar(paint[k], row, working, lane.end[k], kHeights[look], 1 - kHeights[look]);
        if (look < 4 && row.height >= 11) this.addLabel(row, k, look, shade);
      }
    }
  }

  addBar(key, row, from, to, height, above) {
    const {box} = this;
    const x0 = Math.max(box.left, this.xOf(from)), x1 = Math.min(box.right, this.xOf(to));
    if (x1 <= x0) return;
    let list = this.bars.get(key);
    if (!list) this.bars.set(key, list = []);
    const width = x1 - x0;
    list.push(
        x0, row.y + row.height * above, width > 4 ? width - 0.7 : Math.max(width, 0.6),
        row.height * height);
  }

  flushBars() {
    const pen = this.context;
    for (const [key, list] of this.bars) {
      pen.fillStyle = key === "waiting" ?
          this.waitingColour :
          cssOf(this.colours[Math.floor(key / kShades)][key % kShades]);
      for (let i = 0; i < list.length; i += 4)
        pen.fillRect(list[i], list[i + 1], list[i + 2], list[i + 3]);
    }
  }

  addLabel(row, k, look, shade) {
    const {box} = this;
    const lane = row.lane;
    const x0 = Math.max(box.left, this.xOf(lane.start[k] + lane.waiting[k])),
          x1 = Math.min(box.right, this.xOf(lane.end[k]));
    const several = this.model.stagesOfWorker[row.worker].length > 1;
    const text = (several ? lane.stage[k] : "") + this.model.ops[lane.op[k]] + lane.batch[k];
    if (text.length * 6.4 + 3 < x1 - x0)
      this.labels.push([text, (x0 + x1) / 2, row.y + row.height / 2 + 4, look, shade]);
  }

  drawLabels() {
    const pen = this.context;
    pen.font = "11px system-ui, 'DejaVu Sans', sans-serif";
    pen.textAlign = "center";
    for (const [text, x, y, look, shade] of this.labels) {
      pen.fillStyle = shade < 2 ? this.labelColours[look] : this.text;
      pen.fillText(text, x, y);
    }
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

  drawGutter(first, last, lanes) {
    const {context: pen, box} = this;
    pen.fillStyle = cssOf(this.background);
    pen.fillRect(0, box.top, box.left - 1, box.room + 2);
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
        const stages = this.model.stagesOfWorker[worker];
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
        lanes.forEach((lane, index) => {
          const name = this.model.lanes[lane].name.replace(", predicted", ", pred.")
              .replace(", measured", ", meas.");
          const text = `${name.slice(0, 12)} ${
              Math.round(100 * this.model.idle[lane][worker])} %`;
          pen.fillText(text, box.left - 6, this.yOf(worker, index) + box.row / 2 + 3.5);
        });
      }
    }
  }

  drawAxis() {
    const {context: pen, box, view} = this;
    pen.fillStyle = cssOf(this.background);
    pen.fillRect(0, 0, box.width, box.top - 1);
    pen.fillStyle = this.muted;
    pen.font = "11px system-ui, 'DejaVu Sans', sans-serif";
    pen.textAlign = "left";
    pen.fillText("idle share", 8, 15);
    pen.textAlign = "center";
    pen.strokeStyle = this.rule;
    pen.lineWidth = 1;
    for (const [time, label] of ticksOf(view.from, view.to, (box.right - box.left) / 110)) {
      const x = Math.round(this.xOf(time)) + 0.5;
      pen.beginPath();
      pen.moveTo(x, box.top - 6);
      pen.lineTo(x, box.top - 1);
      pen.stroke();
      pen.fillText(label, Math.min(Math.max(x, box.left + 20), box.right - 22), 14);
    }
    pen.beginPath();
    pen.moveTo(box.left, box.top - 0.5);
    pen.lineTo(box.right, box.top - 0.5);
    pen.stroke();
  }

  drawScrollBar() {
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

  drawHover() {
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

// Round times with labels, at most `most` steps in sight.
function ticksOf(from, to, most) {
  const least = (to - from) / Math.max(1, most);
  const power = Math.pow(10, Math.floor(Math.log10(least)));
  const step = Math.max(
      1, [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= least * 0.999));
  const [unit, name] = to >= 2e9 ? [1e9, "s"] :
      to >= 2e6                  ? [1e6, "ms"] :
      to >= 2e3                  ? [1e3, "\u00b5s"] :
                                   [1, "ns"];
  const digits = Math.max(0, Math.ceil(-Math.log10(step / unit) - 1e-9));
  const ticks = [];
  for (let time = Math.ceil(from / step) * step; time <= to && ticks.length < 40; time += step) {
    ticks.push([time, (time / unit).toFixed(digits) + " " + name]);
  }
  return ticks;
}

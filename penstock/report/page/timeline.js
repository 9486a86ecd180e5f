// A timeline: for each worker a row per lane on one canvas, with bars for actions. What a page
// shows in it is in a class of its own: which lanes, how an action looks, what stands at the left.

const kAxis = 24;

function rgbOf(hex) {
  const value = parseInt(hex.trim().slice(1), 16);
  return [value >> 16 & 255, value >> 8 & 255, value & 255];
}
const mixed = (a, b, share) =>
    a.map((channel, i) => Math.round(channel + (b[i] - channel) * share));
const cssOf = (rgb) => `rgb(${rgb[0]},${rgb[1]},${rgb[2]})`;

class Timeline extends Drawing {
  // view: {from, to}, the nanoseconds in sight.
  constructor(canvas, view) {
    super(canvas);
    this.view = view;
    this.workers = 0;
    this.gutter = 168;
    this.gutterTitle = "";
    this.footer = 4;
    this.scroll = 0;
    this.zoomRows = 1;
    this.drawn = 0;
  }

  // The page's own class has, too:
  //   lanesShown() -> indices, laneAt(index) -> {offsets, start, end: of worker w's actions}
  //   drawTrack(row), addAction(row, k), fillOf(key), drawGutter(first, last)
  outlineOf() { return null; }
  drawOver() {}
  drawFooter() {}

  readColours() {
    const style = getComputedStyle(document.documentElement);
    this.background = rgbOf(style.getPropertyValue("--panel"));
    for (const name of ["panel", "text", "muted", "rule", "accent", "message", "card"])
      this[name] = style.getPropertyValue("--" + name).trim();
    return style;
  }

  // Stripes in `line` over `ground`.
  stripes(ground, line, lineWidth = 1) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 6;
    const pen = tile.getContext("2d");
    pen.fillStyle = ground;
    pen.fillRect(0, 0, 6, 6);
    pen.strokeStyle = line;
    pen.lineWidth = lineWidth;
    pen.beginPath();
    for (const shift of [-6, 0, 6]) pen.moveTo(shift - 1, 7), pen.lineTo(shift + 7, -1);
    pen.stroke();
    return this.context.createPattern(tile, "repeat");
  }

  // Rows fill the canvas: few rows become tall, many become as low as can be seen, and more than
  // that scroll.
  layout() {
    const ratio = window.devicePixelRatio || 1;
    const lanes = this.lanesShown().length || 1, workers = Math.max(1, this.workers);
    const most = Math.min(Math.max(window.innerHeight * 0.62, 240), 760) - kAxis - this.footer;
    const fit = most / workers;
    const group =
        Math.max(2, Math.min(Math.max(fit, 2 * lanes + 1), 46 * lanes + 12) * this.zoomRows);
    const gap = group >= 14 * lanes ? Math.min(8, group * 0.16) : 1;
    const room = Math.max(60, Math.min(most, group * workers));
    const width = this.canvas.clientWidth, height = Math.round(room + kAxis + this.footer);
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
      left: this.gutter,
      right: width - 8,
      top: kAxis
    };
    this.scroll = Math.min(Math.max(this.scroll, 0), Math.max(0, group * workers - room));
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
  draw() {
    this.layout();
    const {context: pen, box} = this;
    if (!box.width) return;
    pen.setTransform(box.ratio, 0, 0, box.ratio, 0, 0);
    pen.fillStyle = this.panel;
    pen.fillRect(0, 0, box.width, box.height);
    this.drawn = 0;
    const first = Math.max(0, Math.floor(this.scroll / box.group));
    const last = Math.min(this.workers, Math.ceil((this.scroll + box.room) / box.group));
    this.bars = new Map();
    this.labels = [];
    pen.save();
    pen.beginPath();
    pen.rect(0, box.top, box.width, box.room + 2);
    pen.clip();
    this.drawRows(this.rowsInSight(first, last));
    this.drawLabels();
    pen.fillStyle = this.panel;
    pen.fillRect(0, box.top, box.left - 1, box.room + 2);
    this.drawGutter(first, last);
    this.drawOver();
    pen.restore();
    this.drawAxis();
    this.drawFooter();
  }

  // Of workers [first, last): {lane, worker, y, height, begin, end: of its actions in sight}.
  rowsInSight(first, last) {
    const {box, view} = this, lanes = this.lanesShown(), rows = [];
    for (let worker = first; worker < last; ++worker) {
      lanes.forEach((index, place) => {
        const lane = this.laneAt(index), to = lane.offsets[worker + 1];
        const begin = firstAbove(lane.end, lane.offsets[worker], to, view.from);
        const end = firstAbove(lane.start, begin, to, view.to);
        const height = Math.max(1, box.row - (box.row > 6 ? 1 : 0));
        rows.push({lane, worker, y: this.yOf(worker, place), height, begin, end});
      });
    }
    return rows;
  }

  drawRows(rows) {
    for (const row of rows) {
      this.drawTrack(row);
      for (let k = row.begin; k < row.end; ++k) {
        ++this.drawn;
        this.addAction(row, k);
      }
    }
    const pen = this.context;
    for (const [key, list] of this.bars) {
      pen.fillStyle = this.fillOf(key);
      for (let i = 0; i < list.length; i += 4)
        pen.fillRect(list[i], list[i + 1], list[i + 2], list[i + 3]);
      const outline = this.outlineOf(key);
      if (!outline) continue;
      pen.strokeStyle = outline;
      pen.lineWidth = 1;
      for (let i = 0; i < list.length; i += 4)
        if (list[i + 2] > 3)
          pen.strokeRect(list[i] + 0.5, list[i + 1] + 0.5, list[i + 2] - 1, list[i + 3] - 1);
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

  // `colour` of the text; `ground`: of a box behind it, or none.
  addLabel(row, from, to, text, colour, ground) {
    const {box} = this;
    const x0 = Math.max(box.left, this.xOf(from)), x1 = Math.min(box.right, this.xOf(to));
    if (text.length * 6.4 + 3 < x1 - x0)
      this.labels.push([text, (x0 + x1) / 2, row.y + row.height / 2 + 4, colour, ground]);
  }

  drawLabels() {
    const pen = this.context;
    pen.font = "11px system-ui, 'DejaVu Sans', sans-serif";
    pen.textAlign = "center";
    for (const [text, x, y, colour, ground] of this.labels) {
      if (ground) {
        const room = pen.measureText(text).width + 4;
        pen.fillStyle = ground;
        pen.fillRect(x - room / 2, y - 11, room, 14);
      }
      pen.fillStyle = colour;
      pen.fillText(text, x, y);
    }
  }

  drawAxis() {
    const {context: pen, box, view} = this;
    pen.fillStyle = cssOf(this.background);
    pen.fillRect(0, 0, box.width, box.top - 1);
    pen.fillStyle = this.muted;
    pen.font = "11px system-ui, 'DejaVu Sans', sans-serif";
    pen.textAlign = "left";
    pen.fillText(this.gutterTitle, 8, 15);
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

// The first index in [from, to) whose value is above `value`; `to` where there is none.
function firstAbove(values, from, to, value) {
  while (from < to) {
    const middle = (from + to) >> 1;
    if (values[middle] > value)
      to = middle;
    else
      from = middle + 1;
  }
  return from;
}

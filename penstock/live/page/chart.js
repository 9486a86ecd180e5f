// A chart of the history: curves over the time since the stream began.

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

// About `count` round numbers between low and high.
function roundTicks(low, high, count) {
  const raw = (high - low) / count, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((k) => k * power).find((size) => size >= raw * 0.999);
  const ticks = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; ++k)
    ticks.push(k * step);
  return ticks;
}

function timeText(ns) {
  const seconds = Math.max(0, Math.floor(ns / 1e9));
  const two = (value) => String(value).padStart(2, "0");
  const minutes = `${Math.floor(seconds / 60) % 60}`;
  return seconds < 3600 ? `${minutes}:${two(seconds % 60)}` :
                          `${Math.floor(seconds / 3600)}:${two(minutes)}:${two(seconds % 60)}`;
}

class Chart extends Drawing {
  // series: [{name, of: (point, before) => value}]; text: value -> words; from: the lowest value of
  // the axis, null to follow the curve.
  constructor(parent, title, series, text, tooltip, from = 0) {
    const figure = document.createElement("figure");
    figure.className = "chart";
    const caption = figure.appendChild(document.createElement("figcaption"));
    caption.appendChild(document.createElement("b")).textContent = title;
    if (series.length > 1) {
      series.forEach(({name}, index) => {
        const key = caption.appendChild(document.createElement("span"));
        key.appendChild(document.createElement("i")).className = "series-" + index;
        key.append(name);
      });
    }
    super(figure.appendChild(document.createElement("canvas")));
    Object.assign(this, {title, series, text, tooltip, from, points: [], pointer: null, drawn: 0});
    this.canvas.setAttribute("role", "img");
    parent.appendChild(figure);
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => {
      this.pointer = null;
      this.tooltip.hide();
      this.request();
    });
  }

  // history: points of the state; extra: what `of` needs besides.
  show(history, extra) {
    const points = history.filter((point) => point && isNumber(point.time_ns));
    this.points =
        points.map((point, index) => ({
                     time: point.time_ns,
                     values: this.series.map(({of}) => of(point, points[index - 1], extra))
                   }));
    const last = this.points[this.points.length - 1];
    const now = last ?
        this.series
            .map(
                ({name}, k) =>
                    isNumber(last.values[k]) ? `${name} ${this.text(last.values[k])}` : "")
            .filter(Boolean)
            .join(", ") :
        "";
    this.canvas.setAttribute("aria-label", `${this.title} over time: ${now || "nothing yet"}`);
    this.request();
  }

  range() {
    const values = this.points.flatMap((point) => point.values).filter(isNumber);
    if (!values.length) return [0, 1];
    let high = Math.max(...values), low = this.from === null ? Math.min(...values) : this.from;
    if (!(high > low)) high = low + (Math.abs(low) || 1);
    const room = 0.06 * (high - low);
    return [this.from === null ? low - room : low, high + room];
  }

  draw() {
    const ratio = window.devicePixelRatio || 1;
    const width = this.canvas.clientWidth, height = this.canvas.clientHeight;
    if (!width || !height) return;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    const pen = this.context, style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue("--" + name).trim();
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.fillStyle = colour("panel");
    pen.fillRect(0, 0, width, height);
    pen.font = "11px system-ui, sans-serif";
    if (!this.points.some((point) => point.values.some(isNumber))) {
      this.drawn = 0;
      this.xOf = null;
      pen.fillStyle = colour("muted");
      pen.textAlign = "center";
      pen.fillText("nothing yet", width / 2, height / 2);
      return;
    }
    const [low, high] = this.range();
    const ticks = roundTicks(low, high, 4), labels = ticks.map(this.text);
    const left =
        Math.ceil(Math.max(24, ...labels.map((label) => pen.measureText(label).width))) + 8;
    const box = this.box = {left, right: width - 10, top: 8, bottom: height - 20};
    const first = this.points.length ? this.points[0].time : 0;
    const last = this.points.length ? this.points[this.points.length - 1].time : 1e9;
    const x = this.xOf = (time) =>
        box.left + (box.right - box.left) * (time - first) / Math.max(last - first, 1);
    const y = (value) => box.bottom - (box.bottom - box.top) * (value - low) / (high - low);
    this.grid(pen, colour, ticks, labels, y, first, last);
    const colours = ["curve-0", "curve-1", "muted"].map(colour);
    this.drawn = 0;
    // The first series lies on top.
    for (let k = this.series.length - 1; k >= 0; --k) this.curve(pen, k, colours[k], x, y);
    if (this.pointer !== null) {
      pen.strokeStyle = colour("muted");
      pen.setLineDash([3, 3]);
      pen.beginPath();
      pen.moveTo(x(this.pointer), box.top);
      pen.lineTo(x(this.pointer), box.bottom);
      pen.stroke();
      pen.setLineDash([]);
    }
  }

  grid(pen, colour, ticks, labels, y, first, last) {
    const box = this.box;
    pen.strokeStyle = colour("rule");
    pen.fillStyle = colour("muted");
    pen.lineWidth = 1;
    pen.textBaseline = "middle";
    pen.textAlign = "right";
    ticks.forEach((tick, k) => {
      const at = Math.round(y(tick)) + 0.5;
      pen.beginPath();
      pen.moveTo(box.left, at);
      pen.lineTo(box.right, at);
      pen.stroke();
      pen.fillText(labels[k], box.left - 6, at);
    });
    if (!this.points.length) return;
    const at = box.bottom + 12;
    pen.textAlign = "left";
    pen.fillText(timeText(first), box.left, at);
    pen.textAlign = "right";
    pen.fillText(timeText(last), box.right, at);
    if (box.right - box.left > 180) {
      pen.textAlign = "center";
      pen.fillText(timeText((first + last) / 2), (box.left + box.right) / 2, at);
    }
  }

  curve(pen, k, colour, x, y) {
    pen.strokeStyle = colour;
    pen.lineWidth = k ? 1.3 : 1.8;
    pen.lineJoin = "round";
    if (this.series[k].dashed) pen.setLineDash([5, 4]);
    pen.beginPath();
    let isDown = false;
    pen.lineCap = "round";
    for (const point of this.points) {
      const value = point.values[k];
      if (!isNumber(value)) {
        isDown = false;
        continue;
      }
      if (!isDown) pen.moveTo(x(point.time) - 0.1, y(value));  // a point alone is a dot
      pen.lineTo(x(point.time), y(value));
      isDown = true;
      ++this.drawn;
    }
    pen.stroke();
    pen.setLineDash([]);
  }

  point(event) {
    if (!this.points.length || !this.xOf) return;
    const at = event.clientX - this.canvas.getBoundingClientRect().left;
    const near = this.points.reduce(
        (a, b) => Math.abs(this.xOf(b.time) - at) < Math.abs(this.xOf(a.time) - at) ? b : a);
    this.pointer = near.time;
    const rows = this.series.map(
        ({name}, k) => [name, isNumber(near.values[k]) ? this.text(near.values[k]) : "unknown"]);
    this.tooltip.show(event, [timeText(near.time), ...rows]);
    this.request();
  }
}

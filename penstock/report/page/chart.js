// A chart: curves on a canvas, with the numbers of the nearest point under the pointer.

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

// About `count` round numbers between low and high.
function roundTicks(low, high, count) {
  const raw = (high - low) / count, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((k) => k * power).find((size) => size >= raw * 0.999);
  const first = Math.ceil(low / step - 1e-9), ticks = [];
  for (let k = 0; k <= 2 * count && (first + k) * step <= high + step * 1e-9; ++k)
    ticks.push((first + k) * step);
  return ticks;
}

const axisText = (value) => String(Number(value.toPrecision(3)));

class Chart extends Drawing {
  // look: {title,
  //   series: [{name, dashed}],
  //   text: y -> words of the tooltip, label: y -> words of the axis,
  //   xName: x -> words of the tooltip, xTicks: (first, last) -> [[x, words]],
  //   from: the lowest value of the axis, null to follow the curves,
  //   reach: how far in x the points of one row of the tooltip may lie apart}
  constructor(parent, look, tooltip) {
    const figure = document.createElement("figure");
    figure.className = "chart";
    const caption = figure.appendChild(document.createElement("figcaption"));
    caption.appendChild(document.createElement("b")).textContent = look.title;
    if (look.series.length > 1) {
      look.series.forEach(({name}, index) => {
        const key = caption.appendChild(document.createElement("span"));
        key.appendChild(document.createElement("i")).className = "series-" + index;
        key.append(name);
      });
    }
    super(figure.appendChild(document.createElement("canvas")));
    Object.assign(this, {look, tooltip, curves: [], pointer: null, drawn: 0});
    this.canvas.setAttribute("role", "img");
    parent.appendChild(figure);
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => {
      this.pointer = null;
      this.tooltip.hide();
      this.request();
    });
  }

  // curves: of each series its points in order, [x, y]; y null where it is not known, null instead
  // of a point where no line leads on.
  show(curves) {
    this.curves = curves;
    const last = this.look.series.map(({name}, k) => {
      const point = curves[k][curves[k].length - 1];
      return point && isNumber(point[1]) ? `${name} ${this.look.text(point[1])}` : "";
    });
    const words = last.filter(Boolean).join(", ") || "nothing yet";
    this.canvas.setAttribute("aria-label", `${this.look.title}: ${words}`);
    this.request();
  }

  known() {
    return this.curves.flatMap((points) => points.filter((point) => point && isNumber(point[1])));
  }

  // Of the axes: [first x, last x, lowest y, highest y].
  range(known) {
    const over = (values, pick, start) => values.reduce((a, b) => pick(a, b), start);
    const xs = this.curves.flatMap((points) => points.filter(Boolean).map((point) => point[0]));
    const ys = known.map((point) => point[1]);
    const least = over(ys, Math.min, Infinity);
    let high = over(ys, Math.max, -Infinity),
        low = this.look.from === null ? least : this.look.from;
    if (!(high > low)) high = low + (Math.abs(low) || 1);
    const room = 0.06 * (high - low);
    return [
      over(xs, Math.min, Infinity), over(xs, Math.max, -Infinity),
      this.look.from === null ? low - room : low, high + room
    ];
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
    this.drawn = 0;
    const known = this.known();
    if (!known.length) {
      this.xOf = null;
      pen.fillStyle = colour("muted");
      pen.textAlign = "center";
      pen.fillText("nothing yet", width / 2, height / 2);
      return;
    }
    const [first, last, low, high] = this.range(known);
    const ticks = roundTicks(low, high, 4).map((tick) => [tick, this.look.label(tick)]);
    const widest = Math.max(24, ...ticks.map(([, words]) => pen.measureText(words).width));
    const box =
        this.box = {left: Math.ceil(widest) + 8, right: width - 10, top: 8, bottom: height - 20};
    const x = this.xOf = (value) =>
        box.left + (box.right - box.left) * (last > first ? (value - first) / (last - first) : 0.5);
    const y = (value) => box.bottom - (box.bottom - box.top) * (value - low) / (high - low);
    this.grid(pen, colour, ticks, x, y, this.look.xTicks(first, last));
    const colours = ["curve-0", "curve-1", "muted"].map(colour);
    // The first series lies on top.
    for (let k = this.curves.length - 1; k >= 0; --k) this.curve(pen, k, colours[k], x, y);
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

  grid(pen, colour, ticks, x, y, xTicks) {
    const box = this.box;
    pen.strokeStyle = colour("rule");
    pen.fillStyle = colour("muted");
    pen.lineWidth = 1;
    pen.textBaseline = "middle";
    pen.textAlign = "right";
    for (const [tick, words] of ticks) {
      const at = Math.round(y(tick)) + 0.5;
      pen.beginPath();
      pen.moveTo(box.left, at);
      pen.lineTo(box.right, at);
      pen.stroke();
      pen.fillText(words, box.left - 6, at);
    }
    pen.textAlign = "center";
    let free = box.left;
    for (const [tick, words] of xTicks) {
      const half = pen.measureText(words).width / 2;
      const at = Math.min(Math.max(x(tick), box.left + half), box.right - half);
      if (at - half < free) continue;
      pen.fillText(words, at, box.bottom + 12);
      free = at + half + 12;
    }
  }

  curve(pen, k, colour, x, y) {
    pen.strokeStyle = pen.fillStyle = colour;
    pen.lineWidth = k ? 1.3 : 1.8;
    pen.lineJoin = pen.lineCap = "round";
    if (this.look.series[k].dashed) pen.setLineDash([5, 4]);
    pen.beginPath();
    const points = this.curves[k], dots = [];
    const isKnown = (point) => Boolean(point) && isNumber(point[1]);
    points.forEach((point, n) => {
      if (!isKnown(point)) return;
      const at = x(point[0]), height = y(point[1]);
      const isDown = isKnown(points[n - 1]);
      if (isDown)
        pen.lineTo(at, height);
      else
        pen.moveTo(at, height);
      // A point alone, or one of few.
      if (points.length <= 40 || (!isDown && !isKnown(points[n + 1]))) dots.push([at, height]);
      ++this.drawn;
    });
    pen.stroke();
    pen.setLineDash([]);
    for (const [at, height] of dots) {
      pen.beginPath();
      pen.arc(at, height, 2, 0, 2 * Math.PI);
      pen.fill();
    }
  }

  point(event) {
    if (!this.xOf) return;
    const at = event.clientX - this.canvas.getBoundingClientRect().left;
    const nearest = (points, distance) =>
        points.filter(Boolean).reduce((a, b) => a && distance(a) <= distance(b) ? a : b, null);
    const near = nearest(this.curves.flat(), (point) => Math.abs(this.xOf(point[0]) - at));
    if (!near) return;
    this.pointer = near[0];
    // A curve without a point there has no row. Of a thinned one another point of the same stretch
    // will do, if the row says which.
    const {text, xName, reach, series} = this.look;
    const rows = [];
    this.curves.forEach((points, k) => {
      const own = nearest(points, (point) => Math.abs(point[0] - near[0]));
      if (!own || Math.abs(own[0] - near[0]) > reach) return;
      const words = isNumber(own[1]) ? text(own[1]) : "unknown";
      rows.push([series[k].name, own[0] === near[0] ? words : `${words} at ${xName(own[0])}`]);
    });
    this.tooltip.show(event, [xName(near[0]), ...rows]);
    this.request();
  }
}

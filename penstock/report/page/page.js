// Puts the parts together: data, timeline with its controls, the charts that follow it, and
// a check of what was drawn.

function idleShares(lane, ops, workers) {
  const counts =
      ops.map((name) => kCompute.includes(name) || ["SYNC", "NORM", "STEP"].includes(name));
  return Array.from({length: workers}, (_, worker) => {
    let busy = 0;
    for (let k = lane.offsets[worker]; k < lane.offsets[worker + 1]; ++k)
      if (counts[lane.op[k]]) busy += lane.end[k] - lane.start[k] - lane.waiting[k];
    return lane.makespan > 0 ? 1 - busy / lane.makespan : 0;
  });
}

// "2", or of a team "2.1": member 1.
function stageName(model, stage) { return model.stages[stage] ? model.stages[stage].name : stage; }

function actionName(model, lane, k) {
  const op = model.ops[lane.op[k]], stage = stageName(model, lane.stage[k]);
  const number = kOfMicroBatch.includes(op) ? lane.batch[k] : lane.mini[k];
  const other = kMessages.includes(op) ?
      (op.startsWith("SEND") ? " to" : " from") + ` stage ${stageName(model, lane.peer[k])}` :
      "";
  return `${stage}${op}${number}${other}`;
}

// What the tooltip says about an action and the same action in the other lane.
function actionLines(model, hover) {
  const lane = model.lanes[hover.lane], k = hover.k;
  const op = model.ops[lane.op[k]];
  const lines = [`${actionName(model, lane, k)} on worker ${hover.worker}`];
  const stage = model.stages[lane.stage[k]];
  lines.push([`stage ${stageName(model, lane.stage[k])}`, stage ? stage.layers : ""]);
  const place = model.places[hover.worker];
  if (place) lines.push([place, ""]);
  const batch = kOfMicroBatch.includes(op) ? `micro-batch ${lane.batch[k]}, ` : "";
  lines.push([
    batch + `mini-batch ${lane.mini[k]}`,
    lane.version[k] < 0 ? "" :
        lane.sums       ? `bucket ${lane.version[k]} of the gradients` :
                          `weights version ${lane.version[k]}`
  ]);
  const times = model.lanes.map((other, index) => {
    if (other.sums !== lane.sums) return null;
    const j = index === hover.lane ? k : counterpart(lane, k, hover.worker, other);
    if (j < 0) return lines.push([other.name, "no such action"]) && null;
    const waiting = other.waiting[j] > 0 ? `, ${durationText(other.waiting[j])} of it waiting` : "";
    lines.push([
      other.name,
      `${durationText(other.end[j] - other.start[j])} from ${durationText(other.start[j])}${
          waiting}`
    ]);
    return other.end[j] - other.start[j] - other.waiting[j];
  });
  if (times.length > 1 && times[0] !== null && times[1] !== null) {
    const more = times[1] - times[0];
    const share = times[0] > 0 ?
        ` (${more >= 0 ? "+" : "\u2212"}${Math.abs(100 * more / times[0]).toFixed(1)} %)` :
        "";
    lines.push([
      "difference",
      `${more >= 0 ? "+" : "\u2212"}${durationText(Math.abs(more))}${share} without waiting`
    ]);
  }
  return lines;
}

const valueText = (given, y) => given.percent ? (100 * y).toFixed(2) + " %" : y.toPrecision(4);

// Curves that have one value each need no picture: "Learning rate: 0.02000 (steps 1 to 25)".
function sayConstant(given, points) {
  const line = document.createElement("p");
  line.className = "constant";
  line.appendChild(document.createElement("b")).textContent = given.title;
  const several = given.curves.length > 1;
  const words = points.map((curve, k) => {
    const first = curve[0][0], last = curve[curve.length - 1][0];
    const where = first === last ? `${given.x} ${first}` : `${given.x}s ${first} to ${last}`;
    const name = several ? given.curves[k].name + " " : "";
    return `${name}${valueText(given, curve[0][1])} (${where})`;
  });
  line.append(": " + words.join(", "));
  document.getElementById("charts").before(line);
}

// Of the training run: {title, x: "step", percent, reach, curves: [{name, points}]}.
function trainingChart(given, tooltip) {
  const [factor, unit] = given.percent ? [100, " %"] : [1, ""];
  const points = given.curves.map((curve) => curve.points.filter(Boolean));
  const values = points.flatMap((curve) => curve.map(([, y]) => y));
  const least = values.reduce((a, b) => Math.min(a, b)),
        most = values.reduce((a, b) => Math.max(a, b));
  if (points.every((curve) => curve.every(([, y]) => y === curve[0][1]))) {
    sayConstant(given, points);
    return null;
  }
  const chart = new Chart(
      document.getElementById("charts"), {
        title: given.title,
        series: given.curves,
        text: (y) => valueText(given, y),
        label: (y) => axisText(factor * y) + unit,
        xName: (x) => `${given.x} ${x}`,
        xTicks: (first, last) => last > first ?
            roundTicks(first, last, Math.min(8, last - first)).map((x) => [x, String(x)]) :
            [[first, String(first)]],
        // A curve far from zero need not show it.
        from: least >= 0 && least < 0.6 * most ? 0 : null,
        reach: given.reach
      },
      tooltip);
  chart.show(given.curves.map((curve) => curve.points));
  return chart;
}

const kNarrow = 640;
const kFirstSteps = 3;

// Of a run with many steps, when its start and the first ones are over: what a reader looks at
// first. Else all of it.
function endOfFirstSteps(lanes, span) {
  const steps = [...new Set(lanes[0].mini)].sort((a, b) => a - b);
  if (steps.length <= 2 * kFirstSteps) return span;
  let end = 0;
  for (const lane of lanes)
    for (let k = 0; k < lane.count; ++k)
      if (lane.mini[k] < steps[kFirstSteps]) end = Math.max(end, lane.end[k]);
  return Math.min(1.02 * end, span);
}

class Page {
  constructor(header, lanes) {
    const ops = header.ops;
    this.model = {
      ops,
      lanes,
      workers: header.workers,
      stages: header.stages,
      places: header.places,
      statePerWeight: header.optimizer_state_per_weight,
      memoryLimit: header.memory_limit_bytes,
      stagesOfWorker: stagesOfWorkers(lanes, header.workers),
      idle: lanes.map((lane) => idleShares(lane, ops, header.workers)),
    };
    const slowest = header.slowest_stages;
    this.model.slowest = this.model.stagesOfWorker.map(
        (stages) => slowest.length > 0 && slowest.every((stage) => stages.includes(stage)));
    this.tooltip = new Tooltip(document.getElementById("tooltip"));
    this.charts = header.charts.map((chart) => trainingChart(chart, this.tooltip)).filter(Boolean);
    if (lanes.length) this.buildTimeline();
    this.theme = new Theme(document.getElementById("theme"), () => this.recolour());
    this.recolour();
    window.addEventListener("resize", () => this.redraw());
  }

  buildTimeline() {
    const span = Math.max(...this.model.lanes.map((lane) => lane.makespan));
    const tick = Math.max(...this.model.lanes.map((lane) => lane.tick));
    this.view = new View(span, 20 * tick);
    this.timeline = new RunTimeline(document.getElementById("timeline"), this.model, this.view);
    if (window.innerWidth < kNarrow) this.timeline.gutter = 118;
    this.memory = new StepChart(
        document.getElementById("memory"), this.view, bytesText, this.timeline.gutter);
    this.versions = new StepChart(
        document.getElementById("versions"), this.view, countText, this.timeline.gutter);
    this.view.listeners.push(() => this.redraw());
    this.courses = this.model.lanes.map(
        (lane) => Array.from(
            {length: this.model.workers}, (_, worker) => memoryCourse(this.model, lane, worker)));
    this.buildControls();
    attachTimelineInput(this);
    const peaks = this.courses[0].map((course) => course.peak);
    this.selectWorker(Math.max(0, peaks.indexOf(Math.max(...peaks))));
    // "?zoom=0.25-0.5": the second quarter, for links and pictures.
    const asked =
        /^([0-9.]+)-([0-9.]+)$/.exec(new URLSearchParams(location.search).get("zoom") || "");
    const [from, to] = asked ? asked.slice(1).map((share) => Number(share) * span) :
                               [0, endOfFirstSteps(this.model.lanes, span)];
    if (Number.isFinite(from) && Number.isFinite(to)) this.view.set(from, to);
  }

  buildControls() {
    const on = (id, action) => document.getElementById(id).addEventListener("click", action);
    const middle = () => (this.view.from + this.view.to) / 2;
    on("zoom-in", () => this.view.zoom(0.5, middle()));
    on("zoom-out", () => this.view.zoom(2, middle()));
    on("pan-left", () => this.view.pan(-0.3));
    on("pan-right", () => this.view.pan(0.3));
    on("fit", () => this.fit());
    on("rows-taller", () => this.scaleRows(1.5));
    on("rows-lower", () => this.scaleRows(1 / 1.5));
    document.getElementById("messages").addEventListener("change", (event) => {
      this.timeline.messages = event.target.checked;
      this.timeline.request();
    });
    document.querySelectorAll("input[data-lane]")
        .forEach((box) => box.addEventListener("change", () => {
          this.timeline.shown[Number(box.dataset.lane)] = box.checked;
          this.timeline.request();
        }));
    const select = document.getElementById("worker");
    select.add(new Option("all workers", "-1"));
    for (let w = 0; w < this.model.workers; ++w) select.add(new Option(`worker ${w}`, String(w)));
    select.addEventListener("change", () => this.selectWorker(Number(select.value)));
    const lanes = document.getElementById("memory-lane");
    this.model.lanes.forEach((lane, index) => {
      if (!lane.sums) lanes.add(new Option(`${lane.name} times`, String(index)));
    });
    lanes.parentElement.hidden = lanes.options.length < 2;
    lanes.addEventListener("change", () => this.showMemory());
  }

  fit() {
    this.timeline.scroll = 0;
    this.timeline.zoomRows = 1;
    this.view.set(0, this.view.span);
  }

  scaleRows(factor, around) {
    const timeline = this.timeline, box = timeline.box;
    const y = around === undefined ? box.room / 2 : around - box.top;
    const worker = (timeline.scroll + y) / box.group;
    timeline.zoomRows = Math.min(Math.max(timeline.zoomRows * factor, 0.05), 60);
    timeline.layout();
    timeline.scroll = worker * timeline.box.group - y;
    timeline.request();
  }

  selectWorker(worker) {
    document.getElementById("worker").value = String(worker);
    this.timeline.selected = worker;
    this.timeline.request();
    this.showMemory();
  }

  showMemory() {
    const lane = Number(document.getElementById("memory-lane").value) || 0;
    const courses = this.courses[lane];
    const worker = this.timeline.selected;
    const limit = Math.max(...courses.map((course) => course.peak));
    const most =
        courses.reduce((high, course) => course.versions.reduce((a, b) => Math.max(a, b), high), 1);
    const note = document.getElementById("memory-note");
    document.getElementById("memory-legend").hidden = worker < 0;
    if (worker < 0) {
      const total = (course) => course.time.map(
          (_, i) => course.weights[i] + course.stash[i] + course.gradients + course.state);
      this.memory.show(
          courses.map(
              (course) =>
                  ({time: course.time, values: total(course), colour: "forward", alpha: 0.6})),
          limit, this.model.memoryLimit);
      this.versions.show(
          courses.map(
              (course) =>
                  ({time: course.time, values: course.versions, colour: "weights", alpha: 0.6})),
          most);
      note.textContent = `one line per worker; most on worker ${
          courses.findIndex((course) => course.peak === limit)}: ${bytesText(limit)}`;
      return;
    }
    const course = courses[worker];
    const stacked = (parts) => course.time.map(
        (_, i) =>
            parts.reduce((sum, part) => sum + (typeof part === "number" ? part : part[i]), 0));
    const versions = course.versions.reduce((a, b) => Math.max(a, b));
    const layers = [
      ["stash", [course.state, course.gradients, course.weights, course.stash]],
      ["weights", [course.state, course.gradients, course.weights]],
      ["gradients", [course.state, course.gradients]], ["state", [course.state]]
    ];
    this.memory.show(
        layers.map(
            ([colour, parts]) => ({time: course.time, values: stacked(parts), colour, fill: true})),
        limit, this.model.memoryLimit);
    this.versions.show(
        [{time: course.time, values: course.versions, colour: "weights", fill: true}], most);
    note.textContent =
        `at most ${bytesText(course.peak)}, ${versions} weight version${versions === 1 ? "" : "s"}`;
  }

  redraw() {
    for (const chart of this.charts) chart.request();
    if (!this.timeline) return;
    this.timeline.request();
    this.memory.request();
    this.versions.request();
  }

  recolour() {
    document.getElementById("theme").textContent =
        this.theme && this.theme.isDark() ? "Light" : "Dark";
    if (this.timeline) this.timeline.readColours();
    this.redraw();
  }

  // Left in the page for tests, and for readers who want to check that the picture is complete.
  check() {
    const result = {
      workers: this.model.workers,
      lanes: this.model.lanes.length,
      actions: 0,
      drawn: 0,
      checked: 0,
      wrong: 0
    };
    if (this.timeline) {
      this.timeline.draw();
      this.memory.draw();
      this.versions.draw();
      result.actions = this.model.lanes.reduce((sum, lane) => sum + lane.count, 0);
      result.drawn = this.timeline.drawn;
      result.slowest = this.model.slowest.flatMap((is, worker) => is ? [worker] : []).join(" ");
      result.peak = Math.max(...this.courses[0].map((course) => course.peak));
      Object.assign(result, checkPixels(this.timeline));
      result.disorder =
          this.model.lanes.reduce((sum, lane) => sum + disorderOf(lane, this.model.workers), 0);
    }
    for (const chart of this.charts) chart.draw();
    result.curves = this.charts.reduce((sum, chart) => sum + chart.look.series.length, 0);
    result.points = this.charts.reduce((sum, chart) => sum + chart.drawn, 0);
    result.constants = document.querySelectorAll(".constant").length;
    result.cut = cutElements().length;
    result.rows = document.querySelectorAll("#differences tbody tr").length;
    result.strategies = document.querySelectorAll("#strategies tbody tr").length;
    return result;
  }
}

// What reaches beyond the page's right edge, and no box lets a reader scroll to.
function cutElements() {
  const edge = document.documentElement.clientWidth + 1;
  return [...document.body.querySelectorAll("*")].filter(
      (element) => element.getBoundingClientRect().right > edge && !element.closest(".scroll"));
}

// Actions that begin before the one before them on the same worker.
function disorderOf(lane, workers) {
  let count = 0;
  for (let w = 0; w < workers; ++w)
    for (let k = lane.offsets[w] + 1; k < lane.offsets[w + 1]; ++k)
      if (lane.start[k] < lane.start[k - 1]) ++count;
  return count;
}

// The colour in the middle of bars wide enough to have one.
function checkPixels(timeline) {
  const {box, model} = timeline;
  let checked = 0, wrong = 0;
  timeline.lanesShown().forEach((index, place) => {
    const lane = model.lanes[index];
    for (let k = 0; k < lane.count && checked < 400; ++k) {
      const worker = firstAbove(lane.offsets, 0, lane.offsets.length, k) - 1;
      const look = timeline.looks[lane.op[k]];
      const x0 = timeline.xOf(lane.start[k] + lane.waiting[k]), x1 = timeline.xOf(lane.end[k]);
      const y = timeline.yOf(worker, place) + 2;
      if (look > 3 || x1 - x0 < 8 || y < box.top || y > box.top + box.room - 2) continue;
      if (x0 < box.left || x0 + 3 > box.right) continue;
      const pixel =
          timeline.context
              .getImageData(Math.round((x0 + 2) * box.ratio), Math.round(y * box.ratio), 1, 1)
              .data;
      const expected = timeline.colours[look][timeline.shadeOf(worker, lane.stage[k])];
      ++checked;
      if (expected.some((channel, c) => Math.abs(channel - pixel[c]) > 2)) ++wrong;
    }
  });
  return {checked, wrong};
}

async function start() {
  const header = JSON.parse(document.getElementById("data").textContent);
  const bytes = header.lanes.length ?
      await inflated(document.getElementById("actions").textContent.trim()) :
      new Uint8Array();
  const page = new Page(header, decodeLanes(header, bytes));
  window.penstock = page;
  for (const [name, value] of Object.entries(page.check()))
    document.documentElement.dataset[name] = String(value);
  document.documentElement.dataset.errors = String(scriptErrors);
  document.documentElement.dataset.state = "ready";
}
start().catch(complain);

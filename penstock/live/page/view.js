// The numbers, curves and stages of a state. What is missing is shown as unknown.

const kUnknown = "\u2013";
const countOf = (value) => isNumber(value) ? Math.round(value).toLocaleString("en") : kUnknown;
const durationOf = (value) => isNumber(value) ? durationText(value) : kUnknown;
const rateText = (value) => value >= 99.95 ? value.toFixed(0) : value.toFixed(1);
const lossText = (value) => value !== 0 && Math.abs(value) < 1e-3 || Math.abs(value) >= 1e5 ?
    value.toExponential(2) :
    value.toPrecision(4);

function timeText(ns) {
  const seconds = Math.max(0, Math.floor(ns / 1e9));
  const two = (value) => String(value).padStart(2, "0");
  const minutes = `${Math.floor(seconds / 60) % 60}`;
  return seconds < 3600 ? `${minutes}:${two(seconds % 60)}` :
                          `${Math.floor(seconds / 3600)}:${two(minutes)}:${two(seconds % 60)}`;
}

// Series: [{name, of: (point, before, state) => value, dashed}], over the time since the stream
// began.
function historyChart(parent, tooltip, title, series, text, from = 0) {
  const middle = (first, last) => [first, (first + last) / 2, last];
  return new Chart(
      parent, {
        title,
        series,
        text,
        label: text,
        xName: timeText,
        xTicks: (first, last) => middle(first, last).map((time) => [time, timeText(time)]),
        from,
        reach: 0
      },
      tooltip);
}

// What the output shows, by task.
const kOutputs = {
  reconstruct: "Rebuilt frame",
  predict: "Predicted next frame",
  pixels: "Class of each pixel",
  label: "No picture: the output is a class",
};

// Frames per second between two points of the history.
function droppedRate(point, before) {
  if (!before || !isNumber(point.dropped) || !isNumber(before.dropped)) return null;
  const seconds = (point.time_ns - before.time_ns) / 1e9;
  return seconds > 0 ? Math.max(0, point.dropped - before.dropped) / seconds : null;
}

class StreamView {
  constructor(tooltip) {
    this.tooltip = tooltip;
    this.charts = [];
    this.rows = [];
    this.changes = 0;
  }

  // Once it is known what is learned.
  buildCharts(task) {
    const tooltip = this.tooltip;
    const charts = document.getElementById("charts");
    const of = (key) => (point) => point[key];
    const losses = [{name: "loss", of: of("loss")}];
    if (task === "predict")
      losses.push({name: "copying the last frame", of: of("copying_loss"), dashed: true});
    this.charts = [
      historyChart(charts, tooltip, "Loss", losses, axisText, null),
      historyChart(
          charts, tooltip, "Frames per second",
          [
            {name: "processed", of: of("fps")}, {name: "dropped", of: droppedRate},
            {name: "wanted", of: (point, before, state) => state.wanted_fps, dashed: true}
          ],
          axisText),
      historyChart(
          charts, tooltip, "Latency",
          [
            {name: "median", of: of("latency_p50_ns")},
            {name: "99th percentile", of: of("latency_p99_ns")}
          ],
          (ns) => ns === 0 ? "0" : durationText(ns).replace(/\.0+ /, " ")),
    ];
  }

  // `small`: what stands behind the number.
  set(id, text, small = "") {
    const element = document.getElementById(id);
    const tile = element.closest(".figure");
    if (tile) tile.hidden = text === kUnknown;
    const whole = small ? `${text} ${small}` : text;
    if (element.textContent === whole) return;
    element.replaceChildren(small ? text + " " : text);
    if (small) element.appendChild(document.createElement("small")).textContent = small;
    ++this.changes;
  }

  show(state) {
    if (!this.charts.length) this.buildCharts(state.task);
    this.set("output-name", kOutputs[state.task] || "Output");
    const title = String(state.title || "Penstock stream");
    this.set("title", title);
    document.title = state.ended ? `${title} (ended)` : title;
    const time = isNumber(state.elapsed_ns) ? `running for ${timeText(state.elapsed_ns)}` : "";
    const about = [
      state.source, state.task && `task ${state.task}`, state.plan,
      state.ended ? time.replace("running", "ran") : time
    ];
    this.set("about", about.filter(Boolean).join(" \u00b7 "));
    this.numbers(state);
    const history = (Array.isArray(state.history) ? state.history : [])
                        .filter((point) => point && isNumber(point.time_ns));
    for (const chart of this.charts) {
      chart.show(chart.look.series.map(
          ({of}) => history.map(
              (point, index) => [point.time_ns, of(point, history[index - 1], state)])));
    }
    this.stages(Array.isArray(state.stages) ? state.stages : []);
  }

  numbers(state) {
    this.set("processed", countOf(state.processed));
    this.set("frames-in", countOf(state.frames_in));
    const share = isNumber(state.dropped) && state.frames_in > 0 ?
        `${(100 * state.dropped / state.frames_in).toFixed(1)} %` :
        "";
    this.set("dropped", countOf(state.dropped), share);
    this.set(
        "fps", isNumber(state.fps) ? rateText(state.fps) : kUnknown,
        isNumber(state.wanted_fps) ? `of ${axisText(state.wanted_fps)}` : "");
    this.set("latency-p50", durationOf(state.latency_p50_ns));
    this.set("latency-p99", durationOf(state.latency_p99_ns));
    this.set("misses", countOf(state.deadline_misses));
    this.set("loss", isNumber(state.loss) ? lossText(state.loss) : kUnknown);
    this.set(
        "right", isNumber(state.accuracy) ? `${(100 * state.accuracy).toFixed(1)} %` : kUnknown);
    this.set("copying", isNumber(state.copying_loss) ? lossText(state.copying_loss) : kUnknown);
    this.set("rebuilt", isNumber(state.rebuilt_loss) ? lossText(state.rebuilt_loss) : kUnknown);
    this.classes(Array.isArray(state.classes) ? state.classes : []);
  }

  // What the colours of the output mean; they do not change while a stream runs.
  classes(classes) {
    const legend = document.getElementById("classes");
    if (legend.childElementCount === classes.length) return;
    legend.hidden = classes.length === 0;
    legend.replaceChildren(...classes.map((given) => {
      const key = document.createElement("span");
      key.className = "key";
      key.appendChild(document.createElement("i")).style.backgroundColor =
          String((given && given.colour) || "");
      key.append(`class ${(given && given.name) || ""}`);
      return key;
    }));
  }

  stages(stages) {
    const body = document.getElementById("stages");
    while (this.rows.length < stages.length) this.rows.push(body.appendChild(this.row()));
    while (this.rows.length > stages.length) this.rows.pop().remove();
    stages.forEach((given, k) => {
      const stage = given || {}, cells = this.rows[k].cells;
      const put = (cell, text) => cell.textContent === text || (cell.textContent = text);
      put(cells[0], String(stage.name || `stage ${k}`));
      put(cells[1], String(stage.layers || ""));
      const busy = isNumber(stage.busy) ? Math.min(Math.max(stage.busy, 0), 1) : null;
      cells[2].querySelector(".track i").style.width = `${100 * (busy || 0)}%`;
      cells[2].querySelector(".number").textContent =
          busy === null ? kUnknown : `${(100 * busy).toFixed(0)} %`;
      put(cells[3], durationOf(stage.forward_ns));
      put(cells[4], durationOf(stage.backward_ns));
    });
  }

  row() {
    const row = document.createElement("tr");
    const name = row.appendChild(document.createElement("th"));
    name.scope = "row";
    for (const kind of ["layers left", "busy", "", ""])
      row.appendChild(document.createElement("td")).className = kind;
    name.className = "left";
    const share = row.cells[2].appendChild(document.createElement("div"));
    share.className = "share";
    const track = share.appendChild(document.createElement("span"));
    track.className = "track";
    track.setAttribute("aria-hidden", "true");
    track.appendChild(document.createElement("i"));
    share.appendChild(document.createElement("span")).className = "number";
    return row;
  }
}

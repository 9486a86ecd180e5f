// Memory and weight versions of a worker over time, from the order of its actions and the plan's
// bytes (docs/reports.md has the rules).

// Of each FREE that frees nothing, the STEP after it: where that is the stage's next action, FREEs
// left out, and replaces this very version, it works in place.
function stepsInPlace(lane, ops, begin, end) {
  const steps = new Map(), next = new Map();
  for (let k = end - 1; k >= begin; --k) {
    if (ops[lane.op[k]] !== "FREE") {
      next.set(lane.stage[k], k);
      continue;
    }
    const j = next.get(lane.stage[k]);
    if (j !== undefined && ops[lane.op[j]] === "STEP" && lane.version[j] === lane.version[k])
      steps.set(k, j);
  }
  return steps;
}

// {time, stash, weights, versions: arrays of one length, each value holding from its time on;
// fixed: gradients and state, in bytes; peak}. The simulator's rules (simulate/memory.h):
// activations live from F (inputs alone where the stage has an R) to B or W, but not from the next
// OFFLOAD after their own to their LOAD.
function memoryCourse(model, lane, worker) {
  const begin = lane.offsets[worker], end = lane.offsets[worker + 1];
  const nameOf = (k) => model.ops[lane.op[k]];
  const held = new Map(model.stagesOfWorker[worker].map((stage) => [stage, 1]));
  const trained = new Set(), remade = new Set();
  for (let k = begin; k < end; ++k) {
    if (nameOf(k) === "B" || nameOf(k) === "W") trained.add(lane.stage[k]);
    if (nameOf(k) === "R") remade.add(lane.stage[k]);
  }
  let weights = 0, gradients = 0, stash = 0, versions = held.size ? 1 : 0;
  for (const stage of held.keys()) weights += model.stages[stage].weight;
  for (const stage of trained) gradients += model.stages[stage].weight;
  const state = gradients * model.statePerWeight;
  const course = {
    time: [0],
    stash: [0],
    weights: [weights],
    versions: [versions],
    gradients,
    state,
    peak: weights + gradients + state
  };
  const stagesHolding = new Map([[1, held.size]]);  // by versions held
  const stepOfFree = stepsInPlace(lane, model.ops, begin, end);
  const inPlace = new Set(stepOfFree.values());
  let leaving = null;
  for (let k = begin; k < end; ++k) {
    const stage = model.stages[lane.stage[k]];
    const kept = remade.has(lane.stage[k]) ? stage.input : stage.stash;
    let time = lane.end[k], bytes = 0, count = 0;
    switch (nameOf(k)) {
      case "F":
        time = lane.start[k];
        bytes = trained.size ? kept : 0;
        break;
      case "R":
        time = lane.start[k];
        bytes = stage.stash;
        break;
      case "OFFLOAD":
        bytes = leaving ? -leaving.bytes : 0;
        leaving = {stage: lane.stage[k], batch: lane.batch[k], bytes: kept};
        break;
      case "LOAD":
        time = lane.start[k];
        if (leaving && leaving.stage === lane.stage[k] && leaving.batch === lane.batch[k])
          leaving = null;
        else
          bytes = kept;
        break;
      case "B":
      case "W":
        bytes = -kept - (remade.has(lane.stage[k]) ? stage.stash : 0);
        break;
      case "STEP":
        time = lane.start[k];
        count = inPlace.has(k) ? 0 : 1;
        break;
      case "FREE":
        count = stepOfFree.has(k) ? 0 : -1;
    }
    if (!bytes && !count) continue;
    stash = Math.max(0, stash + bytes);
    if (count) {
      const before = held.get(lane.stage[k]), after = Math.max(0, before + count);
      held.set(lane.stage[k], after);
      stagesHolding.set(before, stagesHolding.get(before) - 1);
      stagesHolding.set(after, (stagesHolding.get(after) || 0) + 1);
      weights = Math.max(0, weights + count * stage.weight);
      if (after > versions || !stagesHolding.get(versions)) versions = after;
    }
    course.time.push(time);
    course.stash.push(stash);
    course.weights.push(weights);
    course.versions.push(versions);
    course.peak = Math.max(course.peak, weights + gradients + state + stash);
  }
  return course;
}

// A chart below the timeline with the same time axis: step lines, stacked or one per worker.
class StepChart extends Drawing {
  constructor(canvas, view, format, left) {
    super(canvas);
    this.left = left;
    this.view = view;
    this.format = format;
    this.layers = [];
    this.limit = 0;
    this.dashed = 0;
  }

  // Layers: {time, values, colour (name of a style), fill, shared: the values above which it is
  // stacked}.
  show(layers, limit, dashed) {
    this.layers = layers;
    this.limit = limit || 1;
    this.dashed = dashed || 0;
    this.request();
  }

  draw() {
    const ratio = window.devicePixelRatio || 1, canvas = this.canvas, pen = this.context;
    const width = canvas.clientWidth, height = canvas.clientHeight;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    const style = getComputedStyle(document.documentElement);
    pen.fillStyle = style.getPropertyValue("--panel");
    pen.fillRect(0, 0, width, height);
    const left = this.left, right = width - 8, top = 8, bottom = height - 6;
    const most = this.limit * 1.06;
    const yOf = (value) => bottom - (bottom - top) * value / most;
    this.drawGrid(pen, style, left, right, yOf);
    pen.save();
    pen.beginPath();
    pen.rect(left, 0, right - left, height);
    pen.clip();
    for (const layer of this.layers) this.drawLayer(pen, style, layer, left, right, yOf);
    pen.restore();
  }

  drawGrid(pen, style, left, right, yOf) {
    pen.font = "10px system-ui, 'DejaVu Sans', sans-serif";
    pen.textAlign = "right";
    pen.lineWidth = 1;
    const whole = this.format === countText;
    const steps = whole ? Math.min(4, Math.max(1, this.limit)) : 3;
    for (let i = 0; i <= steps; ++i) {
      const value = whole ? Math.round(this.limit * i / steps) : this.limit * i / steps;
      const y = Math.round(yOf(value)) + 0.5;
      pen.strokeStyle = style.getPropertyValue("--rule");
      pen.beginPath();
      pen.moveTo(left, y);
      pen.lineTo(right, y);
      pen.stroke();
      pen.fillStyle = style.getPropertyValue("--muted");
      pen.fillText(this.format(value), left - 6, y + 3.5);
    }
    if (this.dashed > 0 && this.dashed <= this.limit * 1.06) {
      pen.strokeStyle = style.getPropertyValue("--accent");
      pen.setLineDash([5, 4]);
      pen.beginPath();
      pen.moveTo(left, yOf(this.dashed));
      pen.lineTo(right, yOf(this.dashed));
      pen.stroke();
      pen.setLineDash([]);
    }
  }

  // Several changes within a pixel are drawn from the lowest to the highest value there.
  drawLayer(pen, style, layer, left, right, yOf) {
    const {from, to} = this.view;
    const scale = (right - left) / (to - from);
    const colour = style.getPropertyValue("--" + layer.colour).trim();
    const {time, values} = layer;
    let k = Math.max(0, firstAbove(time, 0, time.length, from) - 1);
    let x = left, low = values[k], high = values[k], now = values[k];
    const path = new Path2D();
    path.moveTo(left, yOf(now));
    for (++k; k < time.length && time[k] <= to; ++k) {
      const next = left + (time[k] - from) * scale;
      if (next - x >= 1) {
        if (low < high) path.lineTo(x, yOf(high)), path.lineTo(x, yOf(low));
        path.lineTo(x, yOf(now));
        path.lineTo(next, yOf(now));
        x = next;
        low = high = now;
      }
      now = values[k];
      low = Math.min(low, now);
      high = Math.max(high, now);
    }
    if (low < high) path.lineTo(x, yOf(high)), path.lineTo(x, yOf(low));
    path.lineTo(x, yOf(now));
    path.lineTo(right, yOf(now));
    if (layer.fill) {
      path.lineTo(right, yOf(0));
      path.lineTo(left, yOf(0));
      path.closePath();
      pen.fillStyle = colour;
      pen.fill(path);
    } else {
      pen.strokeStyle = colour;
      pen.globalAlpha = layer.alpha || 1;
      pen.lineWidth = layer.alpha ? 1 : 2;
      pen.stroke(path);
      pen.globalAlpha = 1;
    }
  }
}

const countText = (value) => value.toFixed(0);

// Value of a step line at a time.
function valueAt(course, values, time) {
  return values[Math.max(0, firstAbove(course.time, 0, course.time.length, time) - 1)];
}

// Reads what the page carries: one JSON header and the timelines' columns (lane_data.h says how
// they are written).

// Numbers of seven bits a byte, low ones first. Arithmetic instead of shifts: they go beyond 32
// bits.
class ByteReader {
  constructor(bytes, begin, end) {
    this.bytes = bytes;
    this.at = begin;
    this.end = end;
  }
  next() {
    let value = 0;
    for (let scale = 1; this.at < this.end; scale *= 128) {
      const byte = this.bytes[this.at++];
      value += (byte & 127) * scale;
      if (byte < 128) return value;
    }
    throw new Error("the page's data ends too early");
  }
  nextSigned() {
    const value = this.next();
    return value % 2 ? -(value + 1) / 2 : value / 2;
  }
}

async function inflated(text) {
  const packed = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  if (typeof DecompressionStream === "undefined")
    throw new Error("this browser is too old for the timeline (it has no DecompressionStream)");
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

const kMessages = ["SEND_F", "RECV_F", "SEND_B", "RECV_B"];
const kCompute = ["F", "B", "I", "W", "R"];
const kMoves = ["OFFLOAD", "LOAD"];
const kOfMicroBatch = [...kMessages, ...kCompute, ...kMoves];
const kWaiting = [...kMessages, "SYNC", "NORM", "OFFLOAD"];

function readActions(lane, ops, counts, readers) {
  const [op, stage, batch, mini, peer, version] = readers;
  const isMessage = ops.map((name) => kMessages.includes(name));
  const hasBatch = ops.map((name) => kOfMicroBatch.includes(name));
  let k = 0;
  for (const count of counts) {
    let lastStage = 0, lastMini = 0;
    const lastBatch = new Array(ops.length).fill(0), lastVersion = new Array(ops.length).fill(0);
    for (const end = k + count; k < end; ++k) {
      const code = lane.op[k] = op.next();
      lastStage = lane.stage[k] = lastStage + stage.nextSigned();
      if (hasBatch[code]) lane.batch[k] = lastBatch[code] += batch.nextSigned();
      lastMini = lane.mini[k] = lastMini + mini.nextSigned();
      lane.peer[k] = lastStage + (isMessage[code] ? peer.nextSigned() : 0);
      lane.version[k] = lastVersion[code] += version.nextSigned();
    }
  }
}

function readTimes(lane, ops, counts, tick, readers) {
  const [start, duration, work] = readers;
  const canWait = ops.map((name) => kWaiting.includes(name));
  let k = 0;
  for (const count of counts) {
    let before = 0;
    for (const end = k + count; k < end; ++k) {
      const begin = before + start.nextSigned();
      const length = duration.next();
      const part = work.next();
      before = begin + length;
      lane.start[k] = begin * tick;
      lane.end[k] = before * tick;
      lane.waiting[k] = (canWait[lane.op[k]] ? length - part : part) * tick;
    }
  }
}

// Lanes: {name, offsets: of worker w's actions, op, stage, batch, mini, peer, version, start, end,
// waiting}, times in nanoseconds from 0.
function decodeLanes(header, bytes) {
  const lanes = [];
  let at = 0;
  for (const description of header.lanes) {
    const readers = description.columns.map((size) => new ByteReader(bytes, at, at += size));
    const counts = description.counts;
    const total = counts.reduce((sum, count) => sum + count, 0);
    const shared = description.same_as === null ? null : lanes[description.same_as];
    const lane = {
      name: description.name,
      sums: description.sums === true,
      count: total,
      tick: description.tick_ns,
      offsets: new Int32Array(header.workers + 1),
      op: shared ? shared.op : new Uint8Array(total),
      stage: shared ? shared.stage : new Int32Array(total),
      batch: shared ? shared.batch : new Float64Array(total),
      mini: shared ? shared.mini : new Float64Array(total),
      peer: shared ? shared.peer : new Int32Array(total),
      version: shared ? shared.version : new Float64Array(total),
      start: new Float64Array(total),
      end: new Float64Array(total),
      waiting: new Float64Array(total),
      makespan: 0,
    };
    for (let w = 0; w < header.workers; ++w)
      lane.offsets[w + 1] = lane.offsets[w] + (counts[w] || 0);
    if (!shared) readActions(lane, header.ops, counts, readers);
    readTimes(lane, header.ops, counts, description.tick_ns, readers.slice(6));
    for (let k = 0; k < total; ++k)
      if (lane.end[k] > lane.makespan) lane.makespan = lane.end[k];
    if (readers.slice(shared ? 6 : 0).some((reader) => reader.at !== reader.end))
      throw new Error("the page's data is damaged");
    lanes.push(lane);
  }
  return lanes;
}

// The stages of each worker, ascending.
function stagesOfWorkers(lanes, workers) {
  const result = [];
  for (let w = 0; w < workers; ++w) {
    const stages = new Set();
    for (const lane of lanes)
      for (let k = lane.offsets[w]; k < lane.offsets[w + 1]; ++k) stages.add(lane.stage[k]);
    result.push([...stages].sort((a, b) => a - b));
  }
  return result;
}

// The same action in another lane: most often at the same place of the worker's list.
function counterpart(lane, k, worker, other) {
  const same = (j) => other.op[j] === lane.op[k] && other.stage[j] === lane.stage[k] &&
      other.batch[j] === lane.batch[k] && other.mini[j] === lane.mini[k] &&
      other.peer[j] === lane.peer[k];
  const guess = other.offsets[worker] + k - lane.offsets[worker];
  if (guess < other.offsets[worker + 1] && same(guess)) return guess;
  for (let j = other.offsets[worker]; j < other.offsets[worker + 1]; ++j)
    if (same(j)) return j;
  return -1;
}

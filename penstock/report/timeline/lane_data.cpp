#include "penstock/report/timeline/lane_data.h"

#include <zlib.h>

#include <algorithm>
#include <array>

#include "penstock/util/check.h"
#include "penstock/util/text/printable.h"

namespace penstock::report {

using schedule::Action;
using schedule::Op;
using schedule::Timeline;
using schedule::TimelineEvent;

namespace {

constexpr size_t kNumOps = static_cast<size_t>(Op::FreeWeights) + 1;
constexpr int64_t kMostTicks = 200'000'000;

/// Numbers of one kind for all workers.
class ValueColumn {
 public:
  void put(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }
  void put_signed(int64_t value) {
    put(static_cast<uint64_t>(value) << 1 ^ static_cast<uint64_t>(value >> 63));
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

/// Numbers that are close to the one before.
class DeltaColumn : public ValueColumn {
 public:
  void put_delta(int64_t value, int64_t& last) {
    put_signed(value - last);
    last = value;
  }
};

bool can_wait(Op op) {
  return schedule::is_message(op) || op == Op::SyncGradients || op == Op::NormGradients ||
         op == Op::Offload;
}

struct ActionColumns {
  ValueColumn op;
  DeltaColumn stage, micro_batch, mini_batch, version;
  ValueColumn peer;

  void add(const std::vector<TimelineEvent>& events) {
    int64_t last_stage = 0;
    int64_t last_mini_batch = 0;
    std::array<int64_t, kNumOps> last_micro_batch{};
    std::array<int64_t, kNumOps> last_version{};
    for (const TimelineEvent& event : events) {
      const Action& action = event.action;
      const auto code = static_cast<size_t>(action.op);
      op.put(code);
      stage.put_delta(action.stage.value, last_stage);
      if (has_micro_batch(action.op))
        micro_batch.put_delta(action.micro_batch.value, last_micro_batch[code]);
      mini_batch.put_delta(action.mini_batch.value, last_mini_batch);
      if (schedule::is_message(action.op))
        peer.put_signed(int64_t{action.peer.value} - action.stage.value);
      version.put_delta(action.version.value, last_version[code]);
    }
  }
};

struct TimeColumns {
  ValueColumn start, duration, work;

  void add(const std::vector<TimelineEvent>& events, int64_t origin_ns, int64_t tick_ns) {
    const auto ticks = [&](int64_t ns) { return (ns - origin_ns + tick_ns / 2) / tick_ns; };
    int64_t before = 0;
    for (const TimelineEvent& event : events) {
      const int64_t begin = ticks(event.start_ns);
      const int64_t length = std::max<int64_t>(0, ticks(event.end_ns) - begin);
      const int64_t waiting =
          std::clamp<int64_t>((event.waiting_ns + tick_ns / 2) / tick_ns, 0, length);
      start.put_signed(begin - before);
      duration.put(static_cast<uint64_t>(length));
      work.put(static_cast<uint64_t>(can_wait(event.action.op) ? length - waiting : waiting));
      before = begin + length;
    }
  }
};

bool same_actions(const Timeline& a, const Timeline& b) {
  return std::equal(a.workers.begin(), a.workers.end(), b.workers.begin(), b.workers.end(),
                    [](const auto& left, const auto& right) {
                      return std::equal(left.begin(), left.end(), right.begin(), right.end(),
                                        [](const TimelineEvent& x, const TimelineEvent& y) {
                                          return x.action == y.action;
                                        });
                    });
}

}  // namespace

int64_t origin_of(const Timeline& timeline) {
  int64_t origin = INT64_MAX;
  for (const auto& events : timeline.workers) {
    for (const TimelineEvent& event : events) origin = std::min(origin, event.start_ns);
  }
  return origin == INT64_MAX ? 0 : origin;
}

Timeline sum_rows(const Timeline& timeline) {
  const int64_t begin_ns = origin_of(timeline);
  const int64_t end_ns = begin_ns + timeline.makespan_ns();
  Timeline rows{timeline.source.empty() ? "sums" : "sums, " + timeline.source, {}};
  rows.workers.resize(std::max<size_t>(timeline.workers.size(), 1));
  // FREE is not drawn.
  const Action mark{.op = Op::FreeWeights};
  rows.workers.front().push_back({mark, begin_ns, begin_ns, 0});
  for (const schedule::SumLane& lane : timeline.sums) {
    if (lane.worker.value < 0 || lane.worker.index() >= rows.workers.size()) continue;
    for (const schedule::SumEvent& event : lane.events) {
      const Action action{.op = Op::SyncGradients,
                          .stage = event.stage,
                          .mini_batch = event.mini_batch,
                          .peer = event.stage,
                          .version = WeightVersion{event.bucket}};
      rows.workers[lane.worker.index()].push_back({action, event.start_ns, event.end_ns, 0});
    }
  }
  rows.workers.front().push_back({mark, end_ns, end_ns, 0});
  return rows;
}

LaneData lane_data(const std::vector<const Timeline*>& timelines) {
  LaneData data;
  Json ops = Json::array();
  for (size_t code = 0; code < kNumOps; ++code)
    ops.push_back(schedule::to_string(static_cast<Op>(code)));
  size_t num_workers = 0;
  Json lanes = Json::array();
  for (size_t t = 0; t < timelines.size(); ++t) {
    const Timeline& timeline = *timelines[t];
    num_workers = std::max(num_workers, timeline.workers.size());
    size_t same_as = 0;
    while (same_as < t && !same_actions(*timelines[same_as], timeline)) ++same_as;
    int64_t tick_ns = 1;
    while (timeline.makespan_ns() / tick_ns > kMostTicks) tick_ns *= 10;
    const int64_t origin_ns = origin_of(timeline);
    ActionColumns actions;
    TimeColumns times;
    Json counts = Json::array();
    for (const auto& events : timeline.workers) {
      counts.push_back(events.size());
      if (same_as == t) actions.add(events);
      times.add(events, origin_ns, tick_ns);
    }
    Json columns = Json::array();
    for (const ValueColumn* column : {&actions.op, static_cast<ValueColumn*>(&actions.stage),
                                      static_cast<ValueColumn*>(&actions.micro_batch),
                                      static_cast<ValueColumn*>(&actions.mini_batch), &actions.peer,
                                      static_cast<ValueColumn*>(&actions.version), &times.start,
                                      &times.duration, &times.work}) {
      columns.push_back(column->bytes().size());
      data.bytes += column->bytes();
    }
    lanes.push_back({{"name", printable(timeline.source)},
                     {"tick_ns", tick_ns},
                     {"counts", std::move(counts)},
                     {"same_as", same_as == t ? Json(nullptr) : Json(same_as)},
                     {"columns", std::move(columns)}});
  }
  data.header = {{"ops", std::move(ops)}, {"workers", num_workers}, {"lanes", std::move(lanes)}};
  return data;
}

std::string deflated(std::string_view bytes) {
  uLongf size = compressBound(static_cast<uLong>(bytes.size()));
  std::string result(size, '\0');
  const int code = compress2(reinterpret_cast<Bytef*>(result.data()), &size,
                             reinterpret_cast<const Bytef*>(bytes.data()),
                             static_cast<uLong>(bytes.size()), Z_BEST_COMPRESSION);
  PENSTOCK_CHECK(code == Z_OK, code);
  result.resize(size);
  return result;
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t at = 0; at < bytes.size(); at += 3) {
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k)
      group = group << 8 | (at + k < bytes.size() ? static_cast<unsigned char>(bytes[at + k]) : 0u);
    for (size_t k = 0; k < 4; ++k)
      text += at + k <= bytes.size() ? kDigits[group >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

}  // namespace penstock::report

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "penstock/schedule/formats/chrome_trace.h"
#include "penstock/schedule/formats/text_format.h"
#include "penstock/schedule/lane_names.h"
#include "penstock/util/files/json.h"

namespace penstock::schedule {

namespace {

// Exact: nanoseconds as microseconds with three decimals, without going through floating point.
std::string microseconds(int64_t ns) {
  return fmt::format("{}{}.{:03}", ns < 0 ? "-" : "", std::abs(ns / 1000), std::abs(ns % 1000));
}

/// One of the colour names that trace viewers know: forwards blue, backwards green, communication
/// grey and orange.
std::string_view colour_of(Op op) {
  switch (op) {
    case Op::Forward:
      return "thread_state_runnable";
    case Op::Backward:
      return "thread_state_running";
    case Op::BackwardInput:
      return "rail_load";
    case Op::BackwardWeight:
      return "cq_build_passed";
    case Op::Recompute:
      return "rail_response";
    case Op::Offload:
    case Op::Load:
      return "rail_animation";
    case Op::SyncGradients:
    case Op::NormGradients:
      return "rail_idle";
    case Op::Step:
      return "detailed_memory_dump";
    case Op::FreeWeights:
      return "white";
    case Op::SendForward:
    case Op::RecvForward:
    case Op::SendBackward:
    case Op::RecvBackward:
      return "grey";
  }
  return "grey";
}

/// "worker 0", "worker 0, stage 2", "worker 0, stages 0 7".
std::string thread_name(size_t worker, const std::string& lane) {
  return fmt::format("worker {}{}{}", worker, lane.empty() ? "" : ", ", lane);
}

void add_name(std::string& out, std::string_view kind, size_t process, size_t thread,
              const std::string& name) {
  fmt::format_to(
      std::back_inserter(out),
      "{{\"name\":\"{}\",\"ph\":\"M\",\"pid\":{},\"tid\":{},\"args\":{{\"name\":{}}}}},\n", kind,
      process, thread, Json(name).dump(-1, ' ', false, Json::error_handler_t::replace));
}

void add_event(std::string& out, size_t process, size_t thread, const TimelineEvent& event) {
  const Action& action = event.action;
  fmt::format_to(std::back_inserter(out),
                 "{{\"name\":\"{}\",\"cat\":\"{}\",\"cname\":\"{}\",\"ph\":\"X\",\"ts\":{},\"dur\":"
                 "{},\"pid\":{},\"tid\":{},"
                 "\"args\":{{\"stage\":{}",
                 to_text(action), to_string(action.op), colour_of(action.op),
                 microseconds(event.start_ns), microseconds(event.end_ns - event.start_ns), process,
                 thread, action.stage.value);
  if (has_micro_batch(action.op)) {
    fmt::format_to(std::back_inserter(out), ",\"micro_batch\":{}", action.micro_batch.value);
  }
  fmt::format_to(std::back_inserter(out), ",\"mini_batch\":{}", action.mini_batch.value);
  if (is_message(action.op))
    fmt::format_to(std::back_inserter(out), ",\"peer\":{}", action.peer.value);
  if (action.version.value >= 0)
    fmt::format_to(std::back_inserter(out), ",\"version\":{}", action.version.value);
  if (action.with_next) out += ",\"with_next\":1";
  fmt::format_to(std::back_inserter(out), ",\"waiting_us\":{}}}}},\n",
                 microseconds(event.waiting_ns));
}

void add_sum(std::string& out, size_t process, size_t thread, const SumLane& lane,
             const SumEvent& event) {
  fmt::format_to(std::back_inserter(out),
                 "{{\"name\":\"{}SUM{}.{}\",\"cat\":\"{}\",\"cname\":\"{}\",\"ph\":\"X\",\"ts\":{},"
                 "\"dur\":{},\"pid\":{},\"tid\":{},\"args\":{{\"stage\":{},\"mini_batch\":{},"
                 "\"bucket\":{},\"{}\":{}}}}},\n",
                 event.stage.value, event.mini_batch.value, event.bucket, kSumCategory,
                 colour_of(Op::SyncGradients), microseconds(event.start_ns),
                 microseconds(event.end_ns - event.start_ns), process, thread, event.stage.value,
                 event.mini_batch.value, event.bucket, lane.worker.value >= 0 ? "worker" : "server",
                 lane.worker.value >= 0 ? lane.worker.value : lane.server);
}

}  // namespace

std::string chrome_trace(const std::vector<const Timeline*>& timelines,
                         const std::vector<int>& teams) {
  std::string out = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  for (size_t t = 0; t < timelines.size(); ++t) {
    const Timeline& timeline = *timelines[t];
    add_name(out, "process_name", t, 0, timeline.source);
    const std::vector<std::string> lanes = lane_names(timeline, teams);
    for (size_t w = 0; w < timeline.workers.size(); ++w) {
      const auto& events = timeline.workers[w];
      add_name(out, "thread_name", t, w, thread_name(w, lanes[w]));
      for (const TimelineEvent& event : events) add_event(out, t, w, event);
    }
    for (size_t s = 0; s < timeline.sums.size(); ++s) {
      const size_t thread = timeline.workers.size() + s;
      add_name(out, "thread_name", t, thread, timeline.sums[s].name());
      for (const SumEvent& event : timeline.sums[s].events)
        add_sum(out, t, thread, timeline.sums[s], event);
    }
  }
  if (out.ends_with(",\n")) out.erase(out.size() - 2);
  return out + "\n]}\n";
}

}  // namespace penstock::schedule

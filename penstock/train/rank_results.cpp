#include "penstock/train/rank_results.h"

#include <algorithm>

#include "penstock/net/wire.h"
#include "penstock/runtime/fabric/mesh/raw_message.h"
#include "penstock/runtime/fabric/world.h"
#include "penstock/util/error.h"

namespace penstock::train {

namespace {

std::string packed(const TrainResult& result, const RankSummary& summary) {
  net::WireWriter out;
  out.put(summary);
  out.put(result.idle_share);
  out.put(result.timeline.active_workers());
  out.put<uint64_t>(result.timeline.workers.size());
  for (size_t w = 0; w < result.timeline.workers.size(); ++w) {
    out.put(result.peak_versions.at(w));
    out.put(w < result.worker_memory.size() ? result.worker_memory[w] : MemoryBytes{});
    out.list(result.timeline.workers[w]);
  }
  out.put<uint64_t>(result.timeline.sums.size());
  for (const schedule::SumLane& lane : result.timeline.sums) {
    out.put(lane.worker);
    out.list(lane.events);
  }
  return out.take();
}

/// Adds what another rank has. Returns its idle share and its number of workers.
std::pair<double, int64_t> add(const std::string& text, TrainResult& result) {
  net::WireReader in(text);
  result.ranks.push_back(in.get<RankSummary>());
  const auto idle_share = in.get<double>();
  const auto active = in.get<int64_t>();
  const auto workers = in.get<uint64_t>();
  if (workers != result.timeline.workers.size())
    throw TransportError("the ranks have measured different numbers of workers");
  for (size_t w = 0; w < workers; ++w) {
    const auto versions = in.get<int64_t>();
    const auto memory = in.get<MemoryBytes>();
    auto events = in.list<schedule::TimelineEvent>();
    if (events.empty()) continue;
    result.timeline.workers[w] = std::move(events);
    result.peak_versions[w] = versions;
    if (w < result.worker_memory.size()) result.worker_memory[w] = memory;
  }
  for (auto lanes = in.get<uint64_t>(); lanes > 0; --lanes) {
    schedule::SumLane lane{.worker = in.get<WorkerId>()};
    lane.events = in.list<schedule::SumEvent>();
    result.timeline.sums.push_back(std::move(lane));
  }
  return {idle_share, active};
}

/// Layer by layer, so that little is on its way at a time.
void collect_weights(const runtime::Ranks& ranks, TrainResult& result) {
  for (model::Tensors& layer : result.weights) {
    net::WireWriter out;
    runtime::put_tensors(out, layer);
    runtime::Wait wait = runtime::wait_for(ranks.deadline);
    const std::vector<std::string> texts = ranks.world->gather(out.take(), wait);
    for (size_t r = 1; r < texts.size(); ++r) {
      net::WireReader in(texts[r]);
      for (at::Tensor& weight : runtime::get_tensors(in)) layer.push_back(std::move(weight));
    }
  }
}

}  // namespace

void collect_on_first(const runtime::Ranks& ranks, TrainResult& result) {
  const runtime::WireStats wire = ranks.world->wire();
  const RankSummary own{.peak_memory_bytes = result.peak_memory_bytes,
                        .peak_tensor_bytes = result.peak_tensor_bytes,
                        .memory = result.memory,
                        .sent_bytes = wire.sent_bytes,
                        .received_bytes = wire.received_bytes,
                        .clock_error_ns = wire.clock_error_ns};
  runtime::Wait wait = runtime::wait_for(ranks.deadline);
  const std::vector<std::string> texts = ranks.world->gather(packed(result, own), wait);
  if (ranks.is_first()) {
    result.ranks = {own};
    auto workers = static_cast<double>(result.timeline.active_workers());
    double idle = result.idle_share * workers;
    for (size_t r = 1; r < texts.size(); ++r) {
      const auto [share, count] = add(texts[r], result);
      idle += share * static_cast<double>(count);
      workers += static_cast<double>(count);
      result.peak_memory_bytes =
          std::max(result.peak_memory_bytes, result.ranks.back().peak_memory_bytes);
    }
    result.idle_share = workers > 0 ? idle / workers : 0;
    std::sort(result.timeline.sums.begin(), result.timeline.sums.end(),
              [](const auto& a, const auto& b) { return a.worker < b.worker; });
  }
  collect_weights(ranks, result);
}

}  // namespace penstock::train

#include "penstock/simulate/sum_lanes.h"

#include <algorithm>
#include <numeric>

#include "penstock/util/check.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::simulate::detail {

void SumLane::record(const SumJob& job, int64_t end_ns) {
  if (!keeps_events_ || end_ns == now_ns_) return;
  const schedule::SumEvent event{.stage = job.stage,
                                 .mini_batch = job.mini_batch,
                                 .bucket = job.bucket,
                                 .start_ns = now_ns_,
                                 .end_ns = end_ns};
  if (!events_.empty() && events_.back().continues_as(event)) {
    events_.back().end_ns = end_ns;
  } else {
    events_.push_back(event);
  }
}

void SumLane::serve_until(int64_t now_ns, const std::function<void(const SumJob&, int64_t)>& done) {
  for (;;) {
    while (!coming_.empty() && coming_.top().made_ns <= now_ns_) {
      ready_.push(coming_.top());
      coming_.pop();
    }
    const int64_t next_ns = coming_.empty() ? now_ns : std::min(now_ns, coming_.top().made_ns);
    if (ready_.empty()) {
      if (now_ns_ >= next_ns) return;
      now_ns_ = next_ns;
      continue;
    }
    SumJob job = ready_.top();
    const int64_t end_ns = saturating_add(now_ns_, job.left_ns);
    if (end_ns <= next_ns) {
      ready_.pop();
      record(job, end_ns);
      now_ns_ = end_ns;
      done(job, end_ns);
      continue;
    }
    if (now_ns_ >= next_ns) return;
    ready_.pop();
    record(job, next_ns);
    job.left_ns -= next_ns - now_ns_;
    ready_.push(job);
    now_ns_ = next_ns;
  }
}

int64_t SumLane::next_ns() const {
  if (ready_.empty()) return coming_.empty() ? kNever : coming_.top().made_ns;
  const int64_t end_ns = saturating_add(now_ns_, ready_.top().left_ns);
  return coming_.empty() ? end_ns : std::min(end_ns, coming_.top().made_ns);
}

namespace {

int32_t root_of(std::vector<int32_t>& parents, int32_t worker) {
  while (parents[static_cast<size_t>(worker)] != worker) {
    int32_t& parent = parents[static_cast<size_t>(worker)];
    worker = parent = parents[static_cast<size_t>(parent)];
  }
  return worker;
}

}  // namespace

SumLanes::SumLanes(const Costs& costs, const schedule::WorkerTable& table, bool keeps_events)
    : costs_(costs), table_(table) {
  const auto has_buckets = [](const StageCost& stage) { return !stage.buckets.empty(); };
  if (std::none_of(costs.stages.begin(), costs.stages.end(), has_buckets)) return;
  // Workers that share a stage share a lane.
  std::vector<int32_t> parents(static_cast<size_t>(table.num_workers()));
  std::iota(parents.begin(), parents.end(), 0);
  const auto root_of_stage = [&](StageId stage) {
    return root_of(parents, table.worker_of_replica(stage, 0).value);
  };
  for (size_t s = 0; s < costs.stages.size(); ++s) {
    const StageId stage{static_cast<int32_t>(s)};
    if (costs.stages[s].buckets.empty()) continue;
    for (int r = 1; r < table.replicas(stage); ++r) {
      const int32_t other = root_of(parents, table.worker_of_replica(stage, r).value);
      parents[static_cast<size_t>(other)] = root_of_stage(stage);
    }
  }
  std::map<int32_t, int32_t> lane_of_root;
  lane_of_stage_.resize(costs.stages.size(), -1);
  rounds_.resize(costs.stages.size());
  for (size_t s = 0; s < costs.stages.size(); ++s) {
    const auto& buckets = costs.stages[s].buckets;
    if (buckets.empty()) continue;
    const int32_t root = root_of_stage(StageId{static_cast<int32_t>(s)});
    const auto [entry, added] = lane_of_root.try_emplace(root, static_cast<int32_t>(lanes_.size()));
    if (added) lanes_.emplace_back(keeps_events);
    lane_of_stage_[s] = entry->second;
    has_servers_ = has_servers_ || std::any_of(buckets.begin(), buckets.end(),
                                               [](const auto& b) { return b.server_ns > 0; });
  }
  if (has_servers_) lanes_.emplace_back(keeps_events);
}

SumLanes::Round& SumLanes::round(StageId stage, MiniBatchId mini_batch) {
  Round& round = rounds_[stage.index()][mini_batch.value];
  if (round.buckets.empty()) round.buckets.resize(costs_.stages[stage.index()].buckets.size());
  return round;
}

void SumLanes::give(StageId stage, MiniBatchId mini_batch, size_t bucket, int64_t made_ns,
                    EventQueue& events) {
  Bucket& sum = round(stage, mini_batch).buckets[bucket];
  sum.made_ns = std::max(sum.made_ns, made_ns);
  if (++sum.given < table_.replicas(stage)) return;
  const plan::GradientBucket& cost = costs_.stages[stage.index()].buckets[bucket];
  SumJob job{.stage = stage,
             .mini_batch = mini_batch,
             .bucket = static_cast<int32_t>(bucket),
             .made_ns = sum.made_ns,
             .left_ns = cost.wire_ns};
  sum.parts = has_servers_ ? 2 : 1;
  lanes_[static_cast<size_t>(lane_of(stage))].add(job);
  expect(lane_of(stage), events);
  if (!has_servers_) return;
  job.left_ns = cost.server_ns;
  lanes_.back().add(job);
  expect(static_cast<int32_t>(lanes_.size()) - 1, events);
}

void SumLanes::expect(int32_t lane, EventQueue& events) {
  SumLane& waits = lanes_[static_cast<size_t>(lane)];
  const int64_t next_ns = waits.next_ns();
  if (next_ns == waits.expected_ns) return;
  waits.expected_ns = next_ns;
  if (next_ns != SumLane::kNever) events.push(Event::of_lane(next_ns, lane));
}

int64_t SumLanes::arrival_ns(StageId stage, MiniBatchId mini_batch, size_t bucket, int32_t worker) {
  Bucket& sum = round(stage, mini_batch).buckets[bucket];
  if (sum.given == table_.replicas(stage) && sum.parts == 0)
    return saturating_add(sum.served_ns, costs_.stages[stage.index()].sync_latency_ns);
  sum.waiting.push_back(worker);
  return kUnknown;
}

void SumLanes::taken(StageId stage, MiniBatchId mini_batch) {
  Rounds& rounds = rounds_[stage.index()];
  const auto found = rounds.find(mini_batch.value);
  if (++found->second.taken == table_.replicas(stage)) rounds.erase(found);
}

void SumLanes::move_on(int32_t lane, int64_t now_ns, EventQueue& events,
                       std::vector<int32_t>& runnable) {
  SumLane& serving = lanes_[static_cast<size_t>(lane)];
  if (serving.expected_ns != now_ns) return;  // something more urgent has come since
  serving.serve_until(now_ns, [&](const SumJob& job, int64_t end_ns) {
    Bucket& sum = round(job.stage, job.mini_batch).buckets[static_cast<size_t>(job.bucket)];
    sum.served_ns = std::max(sum.served_ns, end_ns);
    if (--sum.parts > 0) return;
    runnable.insert(runnable.end(), sum.waiting.begin(), sum.waiting.end());
    sum.waiting.clear();
  });
  serving.expected_ns = SumLane::kNever;
  expect(lane, events);
}

int32_t SumLanes::given(StageId stage, MiniBatchId mini_batch, size_t bucket) const {
  const Rounds& rounds = rounds_[stage.index()];
  const auto found = rounds.find(mini_batch.value);
  return found == rounds.end() ? 0 : found->second.buckets[bucket].given;
}

std::vector<schedule::SumLane> SumLanes::timeline() const {
  std::vector<schedule::SumLane> lanes;
  if (!any()) return lanes;
  for (int32_t w = 0; w < table_.num_workers(); ++w) {
    schedule::SumLane lane{.worker = WorkerId{w}};
    for (const auto& held : table_.held_by(WorkerId{w})) {
      if (!carries(held.stage)) continue;
      // Its stages share the lane.
      for (const auto& event : lanes_[static_cast<size_t>(lane_of(held.stage))].events()) {
        if (table_.replica_on(WorkerId{w}, event.stage) >= 0) lane.events.push_back(event);
      }
      break;
    }
    if (!lane.events.empty()) lanes.push_back(std::move(lane));
  }
  const int servers = costs_.cluster ? costs_.cluster->cpu_machines.count : 0;
  for (int k = 0; has_servers_ && k < servers; ++k)
    lanes.push_back({.server = k, .events = lanes_.back().events()});
  return lanes;
}

}  // namespace penstock::simulate::detail

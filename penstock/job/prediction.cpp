#include "penstock/job/prediction.h"

#include <algorithm>
#include <map>

#include "penstock/schedule/plan_shape.h"
#include "penstock/schedule/teams.h"
#include "penstock/schedule/worker_table.h"
#include "penstock/simulate/expected_interval.h"
#include "penstock/simulate/memory_by_kind.h"
#include "penstock/simulate/simulator.h"
#include "penstock/train/training_schedule.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::job {

namespace {

/// With one message each way over every link of a worker's stages, as plans count them, and
/// gradients of replicas elsewhere.
std::vector<MemoryBytes> memory_of(const schedule::Schedule& schedule, const plan::Plan& plan,
                                   const simulate::Costs& costs) {
  std::vector<MemoryBytes> workers = simulate::memory_by_kind(schedule, costs);
  const schedule::WorkerTable table(schedule.shape);
  for (size_t w = 0; w < workers.size(); ++w) {
    for (const auto& held : table.held_by(WorkerId{static_cast<int32_t>(w)})) {
      const StageId stage = schedule::place_in_team(schedule.shape, held.stage).whole;
      int64_t& bytes = workers[w][MemoryKind::Messages];
      bytes = saturating_add(bytes, plan.stages[stage.index()].waiting_bytes);
      for (const plan::Link& link : plan.links) {
        if (link.from == stage || link.to == stage)
          bytes = saturating_add(bytes, saturating_mul(2, link.bytes));
      }
    }
  }
  return workers;
}

}  // namespace

std::optional<Prediction> predict(const train::TrainOptions& options,
                                  const train::TrainResult& result) {
  const plan::Plan& plan = options.plan;
  if (result.segments.empty()) return std::nullopt;
  const std::vector<schedule::StageLink> links = schedule::links_of(plan);
  const simulate::Costs costs = simulate::costs_of(plan);
  const int64_t longest = *std::max_element(result.segments.begin(), result.segments.end());

  Prediction prediction;
  std::map<int64_t, simulate::Result> simulated;  // epochs are alike
  double samples = 0;
  double span_ns = 0;
  double idle_ns = 0;
  for (const int64_t segment : result.segments) {
    const auto [entry, is_new] = simulated.try_emplace(segment);
    simulate::Result& simulation = entry->second;
    if (is_new) {
      const bool global_norm = result.schedule.shape.global_norm;
      const schedule::Schedule schedule =
          train::training_schedule(plan, links, segment, options.mini_batch_size, global_norm);
      simulation = simulate::simulate(schedule, costs);
      if (segment == longest) prediction.memory = memory_of(schedule, plan, costs);
    }
    if (segment == longest && !simulation.timeline.workers.empty())
      prediction.timeline = std::move(simulation.timeline);
    if (is_new) simulation.timeline.workers.clear();  // only one timeline is looked at
    samples += static_cast<double>(segment);
    span_ns += static_cast<double>(simulation.makespan_ns);
    idle_ns += simulation.idle_share * static_cast<double>(simulation.makespan_ns);
  }
  if (span_ns > 0) {
    prediction.throughput_samples_per_s = samples * 1e9 / span_ns;
    prediction.idle_share = idle_ns / span_ns;
    prediction.interval = simulate::expected_interval(plan, prediction.throughput_samples_per_s);
  }
  return prediction;
}

}  // namespace penstock::job

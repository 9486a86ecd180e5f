#include "penstock/job/prediction.h"

#include <algorithm>
#include <map>

#include "penstock/schedule/plan_shape.h"
#include "penstock/simulate/expected_interval.h"
#include "penstock/simulate/simulator.h"
#include "penstock/train/training_schedule.h"

namespace penstock::job {

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
      simulation = simulate::simulate(
          train::training_schedule(plan, links, segment, options.mini_batch_size, global_norm),
          costs);
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

// Four stages, sixteen micro-batches: how long do the schedules take, and what do they keep? Needs
// no libtorch.
#include <cmath>
#include <iostream>

#include "penstock/penstock.h"

using namespace penstock;

int main() {
  constexpr int kStages = 4;
  constexpr int64_t kMicroBatches = 16;

  simulate::Costs costs;
  costs.stages.assign(
      kStages, {.forward_ns = 1'000'000, .backward_ns = 2'000'000, .stash_bytes = 1'000'000});
  for (int stage = 1; stage < kStages; ++stage)
    costs.links.push_back({StageId{stage - 1}, StageId{stage}, 100'000});
  costs.bandwidth_bytes_per_s = 10'000'000'000;
  costs.latency_ns = 20'000;

  using plan::Strategy;
  for (const Strategy kind :
       {Strategy::ModelParallel, Strategy::GPipe, Strategy::OneFOneBFlush, Strategy::OneFOneB}) {
    schedule::ScheduleShape shape{.replicas = std::vector<int>(kStages, 1),
                                  .micro_batches = kMicroBatches};
    shape.policy = plan::default_policy(kind);
    shape.accumulate = schedule::default_accumulate(kind, shape);
    const schedule::Schedule compute = schedule::generate(kind, shape);
    const schedule::Schedule lowered = schedule::lower(compute, schedule::chain_links(kStages));

    for (const verify::Violation& violation : verify::verify(lowered)) {
      std::cerr << violation.message << '\n';
      return 1;
    }
    const simulate::Result result = simulate::simulate(lowered, costs);
    const auto peaks = verify::peaks(lowered);
    std::cout << to_string(kind) << ": " << static_cast<double>(result.makespan_ns) / 1e6
              << " ms, idle " << std::lround(100 * result.idle_share) << " %, first worker keeps "
              << peaks[0].stashed_micro_batches << " micro-batches and " << peaks[0].versions
              << " version(s)\n"
              << report::text_grid(compute) << '\n';
  }
  return 0;
}

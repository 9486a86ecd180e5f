#include "penstock/simulate/memory_by_kind.h"

#include "penstock/simulate/memory.h"
#include "penstock/simulate/sources.h"

namespace penstock::simulate {

std::vector<MemoryBytes> memory_by_kind(const schedule::Schedule& schedule, const Costs& costs) {
  const detail::InMemorySource source(schedule);
  detail::check_costs(costs, schedule.shape.num_stages());
  const std::vector<detail::StageMemory> stages =
      detail::stage_memories(schedule.shape, costs.stages);
  std::vector<MemoryBytes> peaks;
  for (size_t w = 0; w < schedule.workers.size(); ++w) {
    detail::BasicMemoryMeter</*kByKind=*/true> meter;
    for (const detail::HeldStage& held : source.stages_of(static_cast<int32_t>(w))) {
      const size_t stage = held.stage.index();
      meter.add_stage(held.stage, costs.stages[stage], stages[stage], held.trains,
                      detail::counts_weights(costs.stages[stage], source.table(), held.stage,
                                             static_cast<int32_t>(w)),
                      costs.optimizer_state_per_weight);
    }
    for (const schedule::Action& action : schedule.workers[w]) {
      if (!schedule::is_message(action.op)) meter.on(action, stages[action.stage.index()]);
    }
    peaks.push_back(meter.peak());
  }
  return peaks;
}

}  // namespace penstock::simulate

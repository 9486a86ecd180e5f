#include "penstock/verify/counterexample.h"

#include "penstock/verify/execution.h"
#include "penstock/verify/wait_graph.h"

namespace penstock::verify {
namespace {

constexpr size_t kMostAbandoned = 100;

std::string reason_of(const Execution& execution, WorkerId worker) {
  const Action& action = execution.blocked_at(worker);
  if (is_send(action.op)) return "to receive";
  if (is_receive(action.op)) return "to send";
  return execution.is_at_barrier(worker) ? "to join" : "for its data";
}

Counterexample::Wait wait_of(const Execution& execution, WorkerId worker, WorkerId other) {
  return {worker, static_cast<int64_t>(execution.position(worker)), other,
          reason_of(execution, worker)};
}

}  // namespace

std::optional<Counterexample> find_deadlock(const Facts& facts, int64_t credits) {
  const MessageIndex index(facts);
  Execution execution(facts, index, credits);
  if (execution.run()) return std::nullopt;

  Counterexample result;
  for (int32_t w = 0; w < facts.table.num_workers(); ++w) {
    const WorkerId worker{w};
    if (execution.is_blocked(worker))
      result.blocked.push_back({worker, static_cast<int64_t>(execution.position(worker))});
  }
  const WaitGraph graph(execution, facts.table.num_workers());
  const WaitGraph::Cycle cycle = graph.shortest_cycle();
  result.shortest = cycle.shortest;
  for (size_t i = 0; i < cycle.workers.size(); ++i) {
    result.cycle.push_back(
        wait_of(execution, cycle.workers[i], cycle.workers[(i + 1) % cycle.workers.size()]));
  }
  if (!cycle.workers.empty()) return result;
  for (const auto& [worker, other] : graph.abandoned(kMostAbandoned))
    result.abandoned.push_back(wait_of(execution, worker, other));
  return result;
}

}  // namespace penstock::verify

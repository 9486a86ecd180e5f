#include "penstock/runtime/run_context.h"

#include <algorithm>

#include "penstock/runtime/schedule_fit.h"

namespace penstock::runtime {

RunContext::RunContext(const schedule::Schedule& s, const BatchSource& batches,
                       const RunOptions& run_options, Fabric& run_fabric)
    : schedule(s),
      table(s.shape),
      source(batches),
      options(run_options),
      fabric(run_fabric),
      training(trains(s)),
      splits_backward(s.shape.replicas.size(), false) {
  for (const auto& actions : s.workers) {
    for (const schedule::Action& action : actions) {
      if (action.op == schedule::Op::BackwardInput) splits_backward[action.stage.index()] = true;
    }
  }
}

bool RunContext::is_on_one_gpu() const {
  if (site == nullptr || site->device_of_worker.empty() || site->num_ranks() > 1) return false;
  const at::Device first = site->device_of_worker.front();
  return first.is_cuda() &&
         std::all_of(site->device_of_worker.begin(), site->device_of_worker.end(),
                     [&](const at::Device& device) { return device == first; });
}

}  // namespace penstock::runtime

#include "penstock/simulate/network.h"
#include "penstock/simulate/simulator.h"

namespace penstock::simulate {

Costs costs_of(const plan::Plan& plan) {
  const Network network = flat_network(plan.cluster);
  Costs costs;
  costs.stages.reserve(plan.stages.size());
  for (const plan::Stage& stage : plan.stages) {
    costs.stages.push_back({.forward_ns = stage.forward_ns,
                            .backward_ns = stage.backward_ns,
                            .step_ns = stage.step_ns,
                            .sync_ns = stage.sync_ns,
                            .stash_bytes = stage.stash_bytes,
                            .weight_bytes = stage.weight_bytes});
  }
  costs.links.reserve(plan.links.size());
  for (const plan::Link& link : plan.links) costs.links.push_back({link.from, link.to, link.bytes});
  costs.bandwidth_bytes_per_s = network.by_reference ? 0 : network.bandwidth_bytes_per_s;
  costs.latency_ns = network.latency_ns;
  costs.samples_per_micro_batch = plan.micro_batch_size;
  return costs;
}

}  // namespace penstock::simulate

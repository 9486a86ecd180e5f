#include "penstock/plan/sync_rounds.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "penstock/util/error.h"

namespace penstock::plan {

namespace {

/// Each copy of the pipeline has its own share of a mini-batch, and the mean over that as its loss.
void check_copies(const Plan& plan, const std::string& method) {
  const std::vector<int> counts = plan.replicas();
  if (!std::equal(counts.begin() + 1, counts.end(), counts.begin())) {
    throw ConfigError(fmt::format(
        "with the synchronisation {} each copy of the pipeline trains by itself for {} step(s): "
        "expected as many replicas of every stage, found {}",
        method, plan.sync_every, plan.config()));
  }
  if (counts.front() > plan.micro_batches) {
    throw ConfigError(fmt::format(
        "with the synchronisation {} each of the {} replicas steps by itself: expected at least as "
        "many micro-batches per step, found {}",
        method, counts.front(), plan.micro_batches));
  }
}

}  // namespace

void check_rounds(const Plan& plan) {
  const std::string method = to_string(plan.sync_method());
  if (plan.sync_every < 1 || plan.sync_every > kMostStepsOfRound ||
      (plan.sync_every > 1 && plan.sync != GradientSync::DiLoCo)) {
    throw ConfigError(
        fmt::format("the synchronisation {} every {} steps: expected 1 step, or diloco and 1 to {}",
                    to_string(plan.sync), plan.sync_every, kMostStepsOfRound));
  }
  if (plan.sync != GradientSync::DiLoCo) return;
  check_copies(plan, method);
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    const Stage& stage = plan.stages[s];
    if (stage.replicas == 1 || (!stage.shard_optimizer && stage.tensor == 1)) continue;
    throw ConfigError(fmt::format(
        "with the synchronisation {} each replica has weights and an optimiser's state of its own: "
        "expected a plan without {}, found stage {} with it",
        method, stage.shard_optimizer ? "shared-out states" : "teams", s));
  }
}

}  // namespace penstock::plan

// Shapes and schedules for the tests of this folder.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "penstock/schedule/formats/text_format.h"
#include "penstock/schedule/generate.h"
#include "penstock/schedule/teams.h"
#include "penstock/util/error.h"
#include "penstock/verify/verify.h"

namespace penstock::verify::testing {

using schedule::Schedule;
using schedule::ScheduleShape;
using schedule::Strategy;
using schedule::WeightPolicy;

/// Replica counts of 1 to 6 stages, equal and unequal, dividing each other and not.
inline const std::vector<std::vector<int>>& replica_samples() {
  static const std::vector<std::vector<int>> kSamples = {
      {1},
      {2},
      {3},
      {4},
      {1, 1},
      {2, 1},
      {1, 2},
      {3, 2},
      {2, 4},
      {4, 3},
      {1, 1, 1},
      {2, 1, 1},
      {1, 3, 1},
      {3, 1, 2},
      {2, 3, 4},
      {4, 2, 1},
      {1, 1, 1, 1},
      {1, 4, 1, 3},
      {3, 2, 1, 1},
      {2, 2, 2, 2},
      {4, 1, 4, 1},
      {1, 1, 1, 1, 1},
      {2, 3, 1, 4, 2},
      {1, 1, 1, 1, 1, 1},
      {1, 3, 2, 1, 4, 1},
  };
  return kSamples;
}

/// Every kind with each policy it supports.
inline std::vector<std::pair<Strategy, WeightPolicy>> kinds_and_policies() {
  std::vector<std::pair<Strategy, WeightPolicy>> result;
  for (const Strategy kind : plan::scheduled_strategies()) {
    for (const WeightPolicy policy :
         {WeightPolicy::Flush, WeightPolicy::Stash, WeightPolicy::VerticalSync,
          WeightPolicy::TwoBuffered, WeightPolicy::Latest, WeightPolicy::Current}) {
      if (plan::supports(kind, policy)) result.emplace_back(kind, policy);
    }
  }
  return result;
}

/// The shape with the worker_of_replica of the kind, two stages per worker for interleaved; nothing
/// when generate() refuses it.
inline std::optional<ScheduleShape> shape_for(Strategy kind, const ScheduleShape& shape) {
  try {
    const ScheduleShape hosted = schedule::with_placement(kind, shape);
    schedule::check_runs(kind, hosted);
    return hosted;
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

inline Schedule full_schedule(Strategy kind, const ScheduleShape& shape) {
  return schedule::lower(schedule::generate(kind, shape),
                         schedule::chain_links(shape.num_stages()));
}

/// `shape`: of whole stages in a chain.
inline Schedule team_schedule(Strategy kind, const ScheduleShape& shape,
                              const std::vector<int>& teams) {
  return schedule::lower(
      schedule::with_teams(schedule::generate(kind, shape), teams),
      schedule::links_of_members(schedule::chain_links(shape.num_stages()), teams));
}

/// The first violation as text, empty when there is none.
inline std::string first_violation(const Schedule& schedule, int64_t credits) {
  const std::vector<Violation> violations = verify(schedule, {.credits = credits});
  return violations.empty() ? "" : violations[0].rule + ": " + violations[0].message;
}

inline std::string describe(Strategy kind, const ScheduleShape& shape) {
  std::string text(to_string(kind));
  text += "/";
  text += to_string(shape.policy);
  if (shape.global_norm) text += " norm";
  if (!shape.recompute.empty()) text += " recompute";
  if (!shape.offload.empty()) text += " offload";
  text += " replicas";
  for (const int count : shape.replicas) text += " " + std::to_string(count);
  return text + ", " + std::to_string(shape.micro_batches) + " micro-batches, accumulate " +
         std::to_string(shape.accumulate);
}

}  // namespace penstock::verify::testing

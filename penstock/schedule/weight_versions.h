// Which version each forward and backward uses and where versions are freed: the second part of
// lowering (docs/weights.md).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "penstock/plan/weight_rules.h"
#include "penstock/schedule/schedule.h"
#include "penstock/schedule/worker_table.h"

namespace penstock::schedule {

/// Fills in the versions by the shape's policy, worker by worker. Where no worker holds several
/// stages they must come in the order of their stages: vertical-sync takes the versions of the
/// later stages from stage 0.
class VersionAssigner {
 public:
  VersionAssigner(const ScheduleShape& shape, bool forward_only);
  /// `actions`: one worker's list after place_steps(). O(actions).
  void assign(std::vector<Action>& actions);

 private:
  WeightVersion version_of(const Action& action);
  int32_t ahead_of(const Action& action);

  const plan::WeightPolicyTraits& rule_;
  plan::Compensation compensation_;
  bool forward_only_;
  int64_t steps_before_ = 0;  ///< by the current worker, of its only stage; unused under flush
  /// That forward passes read, by micro-batch; only where passes read moved weights.
  std::vector<int64_t> forward_versions_;
  std::vector<int64_t> noted_;  ///< steps before a forward, of micro-batches (plan::VersionNote)
};

/// A FREE action and the position in the list after which it comes (-1: at the beginning).
struct FreePlace {
  int64_t after = -1;
  bool in_place = false;  ///< the step after it writes the next version over this one
  Action action;
};
/// Where the versions of one worker's list are freed, by position. `actions` has its versions and
/// steps, `num_steps` of each of its stages (`held`), and no messages.
std::vector<FreePlace> place_frees(const std::vector<Action>& actions,
                                   std::span<const WorkerTable::Held> held, int64_t num_steps);

}  // namespace penstock::schedule

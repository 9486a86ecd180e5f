// Simulates the schedule of a plan of any kind. The schedule is generated while it runs where that
// is possible (schedule/lazy_schedule.h), otherwise it is generated in memory first.
//
//   Result result = simulate_plan(plan, 64, {.keep_timeline = true});
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "penstock/plan/plan.h"
#include "penstock/schedule/generate.h"
#include "penstock/schedule/lazy_schedule.h"
#include "penstock/schedule/schedule.h"
#include "penstock/simulate/simulator.h"

namespace penstock::simulate {

/// A kind's lowered schedule, ready to be simulated. Immutable, so thread-safe.
class PlannedSchedule {
 public:
  /// Throws ConfigError when the kind cannot run the shape, and for more than kMaxActions actions
  /// where the actions have to be in memory.
  PlannedSchedule(plan::Strategy strategy, const schedule::ScheduleShape& shape,
                  const std::vector<schedule::StageLink>& links);

  /// Whether all actions are in memory, 40 bytes each.
  bool in_memory() const { return std::holds_alternative<schedule::Schedule>(schedule_); }
  const schedule::ScheduleShape& shape() const;
  int64_t num_actions() const;
  /// As simulate/simulator.h's.
  Result simulate(const Costs& costs, const Options& options) const;

 private:
  std::variant<schedule::LazySchedule, schedule::Schedule> schedule_;
};

/// The plan's own schedule over `mini_batches` optimiser steps. Throws ConfigError for an unknown
/// strategy or policy, and like the constructor.
PlannedSchedule planned_schedule(const plan::Plan& plan, int64_t mini_batches);

/// What a step gives away to be summed: each replica its part of each bucket. Saturates.
int64_t sums_per_step(const plan::Plan& plan);

/// Computations and messages of one step with a split backward pass, the most that a schedule of
/// the plan has, and its sums. Saturates.
int64_t actions_per_step(const plan::Plan& plan);

/// planned_schedule() with costs_of(plan).
Result simulate_plan(const plan::Plan& plan, int64_t mini_batches, const Options& options);

}  // namespace penstock::simulate

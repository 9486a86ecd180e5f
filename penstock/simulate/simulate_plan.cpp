#include "penstock/simulate/simulate_plan.h"

#include <algorithm>

#include "penstock/schedule/plan_shape.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::simulate {

namespace {

std::variant<schedule::LazySchedule, schedule::Schedule> made(
    plan::Strategy strategy, const schedule::ScheduleShape& shape,
    const std::vector<schedule::StageLink>& links) {
  if (schedule::LazySchedule::can_make(strategy, shape))
    return schedule::LazySchedule(strategy, shape, links);
  return schedule::lower(schedule::generate(strategy, shape), links);
}

}  // namespace

PlannedSchedule::PlannedSchedule(plan::Strategy strategy, const schedule::ScheduleShape& shape,
                                 const std::vector<schedule::StageLink>& links)
    : schedule_(made(strategy, shape, links)) {}

const schedule::ScheduleShape& PlannedSchedule::shape() const {
  const auto* lazy = std::get_if<schedule::LazySchedule>(&schedule_);
  return lazy != nullptr ? lazy->shape() : std::get<schedule::Schedule>(schedule_).shape;
}

int64_t PlannedSchedule::num_actions() const {
  return std::visit([](const auto& schedule) { return schedule.num_actions(); }, schedule_);
}

Result PlannedSchedule::simulate(const Costs& costs, const Options& options) const {
  return std::visit(
      [&](const auto& schedule) { return simulate::simulate(schedule, costs, options); },
      schedule_);
}

PlannedSchedule planned_schedule(const plan::Plan& plan, int64_t mini_batches) {
  return {plan.strategy, schedule::member_shape_of(plan, mini_batches), schedule::links_of(plan)};
}

int64_t sums_per_step(const plan::Plan& plan) {
  int64_t sums = 0;
  for (const plan::Stage& stage : plan.stages) {
    if (stage.replicas == 1) continue;
    sums = saturating_add(sums, saturating_mul(saturating_mul(stage.replicas, stage.tensor),
                                               static_cast<int64_t>(stage.buckets.size())));
  }
  return sums;
}

int64_t actions_per_step(const plan::Plan& plan) {
  int64_t stages = 0;
  for (const plan::Stage& stage : plan.stages) stages = saturating_add(stages, stage.tensor);
  int64_t links = 0;
  for (const plan::Link& link : plan.links)
    links = saturating_add(links, std::max(plan.stages.at(link.from.index()).tensor,
                                           plan.stages.at(link.to.index()).tensor));
  const int64_t per_micro_batch =
      saturating_add(saturating_mul(3, stages), saturating_mul(4, links));
  return saturating_add(saturating_mul(plan.micro_batches, std::max<int64_t>(per_micro_batch, 1)),
                        sums_per_step(plan));
}

Result simulate_plan(const plan::Plan& plan, int64_t mini_batches, const Options& options) {
  return planned_schedule(plan, mini_batches).simulate(costs_of(plan), options);
}

}  // namespace penstock::simulate

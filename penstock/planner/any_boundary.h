// The codings of a plan's boundaries where the planner chooses them: small messages where they make
// the plan faster, and exact ones elsewhere.
//
//   plan = with_chosen_boundaries(std::move(plan));     // its links say what was chosen
#pragma once

#include <functional>

#include "penstock/planner/plan_options.h"
#include "penstock/planner/plan_result.h"
#include "penstock/planner/time_limit.h"

namespace penstock::planner {

struct BoundarySearch {
  /// The best plan with the coding of `options.boundary`.
  std::function<PlanResult(const PlanOptions& options, TimeLimit time)> search;
  /// The plan as it is, priced anew: each link in its own coding.
  std::function<plan::Plan(const plan::Plan& plan)> price;
};

/// The best plan without codings, or, where one with small messages is faster by more than 0.5 %,
/// that one, with boundaries as with_chosen_boundaries() chooses them: the more exact one of
/// several that are as fast. Its predictions are those of what was chosen.
PlanResult plan_with_any_boundary(PlanOptions options, TimeLimit time, const BoundarySearch& by);

/// The same split. Each boundary gets the most exact of float32, bfloat16 and int8, up to
/// `smallest`, with which the simulated plan stays within 0.5 % of the same with `smallest` at all
/// of them; boundaries inside a worker get float32. Of more than 32 links all get the same.
/// Throughput and the note are those of what was chosen; other predictions stay. Two simulations
/// for each link, and three more.
plan::Plan with_chosen_boundaries(plan::Plan plan, const plan::BoundaryCoding& smallest = {
                                                       .kind = plan::Coding::Int8});

}  // namespace penstock::planner

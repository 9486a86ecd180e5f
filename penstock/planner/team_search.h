// Searches for plans whose stages are run by teams (tensor parallelism): of teams of each size, in
// worlds where a team is one worker (teams/team_world.h), and from the fastest of these on with
// other sizes stage by stage.
#pragma once

#include <functional>
#include <vector>

#include "penstock/planner/plan_options.h"
#include "penstock/planner/plan_result.h"
#include "penstock/planner/pricing/team_pricing.h"
#include "penstock/planner/time_limit.h"

namespace penstock::planner {

/// The best plan of whole stages.
using WholeSearch =
    std::function<PlanResult(const profile::Profile& profile, const cluster::Cluster& cluster,
                             const PlanOptions& options, TimeLimit time)>;

/// `options.tensor`: the size of all teams, or nothing: chosen per stage. Of equally fast plans the
/// one with the smallest teams. Notes say how fast the other sizes are, and how much of the model
/// is shared out. Throws ConfigError where a size is asked for that does not fit the cluster, or
/// the profile says of no layer what teams can share out.
PlanResult plan_with_teams(const profile::Profile& profile, const cluster::Cluster& cluster,
                           const PlanOptions& options, const WholeSearch& search);

/// Of samples/s from the largest teams to the smallest, 0 for no plan: which is taken. The smallest
/// teams that are as fast as the fastest, but for kFaster (families.h); the last where all are 0.
size_t smallest_of_fastest(const std::vector<double>& samples_per_s);

/// The split of a plan, to be priced anew.
TeamSplit split_of(const plan::Plan& plan);
/// The options with what the plan has decided.
PlanOptions options_of(const plan::Plan& plan, PlanOptions options);

}  // namespace penstock::planner

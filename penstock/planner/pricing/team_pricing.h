// Prices plans whose stages are run by teams (tensor parallelism). Each stage is priced in the
// world of its teams (teams/team_world.h), and the plan that they make is simulated with every
// member as a worker. Internal to the planner.
//
//   TeamPricer pricer(profile, cluster, options);
//   Plan plan = pricer.price({.strategy = Strategy::OneFOneBFlush,
//       .policy = WeightPolicy::Flush, .stages = stages});      // with Stage::tensor
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "penstock/plan/plan.h"
#include "penstock/planner/pricing/context.h"
#include "penstock/planner/pricing/split.h"
#include "penstock/planner/teams/team_world.h"

namespace penstock::planner {

/// What is priced. Of the stages: layers, replicas, tensor, first_worker (-1 for all: one after the
/// other), sequence, recompute, offload, shard_optimizer, keep.
struct TeamSplit {
  plan::Strategy strategy = plan::Strategy::OneFOneBFlush;
  plan::WeightPolicy policy = plan::WeightPolicy::Flush;
  int64_t slack = 0;
  int64_t micro_batches = 0;  ///< 0: the options', or chosen
  std::vector<plan::Stage> stages;
  std::vector<int> worker_of_replica = {};  ///< plan::Plan
};

/// Keeps references. One thread at a time.
class TeamPricer {
 public:
  TeamPricer(const profile::Profile& profile, const cluster::Cluster& cluster,
             const PlanOptions& options);
  ~TeamPricer();

  /// Throws ConfigError when the stages do not cover the model in order, do not fit the cluster or
  /// share workers, for teams that do not stand in units of the cluster's levels, for workers that
  /// hold several stages with teams of several sizes, and when the kind cannot run the split.
  plan::Plan price(const TeamSplit& split);
  /// Whether every worker has the memory that the plan predicts.
  bool fits(const plan::Plan& plan);
  /// The input as it is for teams of that size. Throws ConfigError where there are none.
  const Context& context(int team, bool sequence = false);

 private:
  struct World;
  struct Parts;
  /// Members, and whether they share out places of sequences.
  using Team = std::pair<int, bool>;
  World& world(Team team);
  void add_world(const TeamSplit& asked, const std::vector<StageId>& stage_of_layer, Team team,
                 Parts& parts);
  static std::vector<Team> kinds_of_teams(const std::vector<plan::Stage>& stages);
  void put_on_workers(const TeamSplit& asked, const std::vector<StageId>& stage_of_layer,
                      Parts& parts);

  const profile::Profile& profile_;
  const cluster::Cluster& cluster_;
  const PlanOptions& options_;
  std::map<Team, std::unique_ptr<World>> worlds_;
};

}  // namespace penstock::planner

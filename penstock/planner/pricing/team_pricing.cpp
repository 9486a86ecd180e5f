#include "penstock/planner/pricing/team_pricing.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "penstock/planner/pricing/prediction.h"
#include "penstock/planner/pricing/pricing.h"
#include "penstock/planner/pricing/traffic.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/arithmetic.h"
#include "penstock/util/numbers/rounding.h"

namespace penstock::planner {

using cluster::WorkerRange;
using plan::Plan;
using plan::Stage;

namespace {

int members(const Plan& plan, StageId stage) { return plan.stages[stage.index()].tensor; }

WorkerRange range_of_members(const Stage& stage) {
  return {stage.first_worker, stage.replicas * stage.tensor};
}

/// Checks layers and places, and places stages that have none.
std::vector<Stage> placed_stages(const TeamSplit& split, const cluster::Cluster& cluster) {
  const std::vector<Stage>& stages = split.stages;
  if (stages.empty()) throw ConfigError("expected at least one stage, found none");
  Plan named;
  named.cluster = cluster;
  named.worker_of_replica = split.worker_of_replica;
  int64_t next = 0;
  for (const Stage& stage : stages) {
    named.stages.push_back({.layers = stage.layers,
                            .replicas = stage.replicas,
                            .tensor = stage.tensor,
                            .first_worker = stage.first_worker});
    if (split.worker_of_replica.empty() && stage.first_worker < 0)
      named.stages.back().first_worker = static_cast<int>(std::min<int64_t>(next, INT32_MAX));
    next = saturating_add(next, saturating_mul(stage.replicas, stage.tensor));
  }
  plan::validate(named);
  std::vector<Stage> placed = stages;
  for (size_t s = 0; s < placed.size(); ++s) placed[s].first_worker = named.stages[s].first_worker;
  return placed;
}

/// As a stage's own world sees it: places of stages with other teams do not matter there.
Split split_in_world(const Context& context, const TeamSplit& asked,
                     const std::vector<StageId>& stage_of_layer, int team) {
  const std::vector<Stage>& stages = asked.stages;
  Split split{.strategy = asked.strategy,
              .policy = asked.policy,
              .stages = {},
              .places = {},
              .recompute = {},
              .worker_of_replica = asked.worker_of_replica,
              .slack = asked.slack};
  split.stages.resize(stages.size());
  for (size_t l = 0; l < stage_of_layer.size(); ++l)
    split.stages[stage_of_layer[l].index()].push_back(LayerId{static_cast<int32_t>(l)});
  int next = 0;
  for (const Stage& stage : stages) {
    if (!asked.worker_of_replica.empty()) {
      split.places.push_back({next, stage.replicas});
    } else if (stage.tensor == team) {
      split.places.push_back({stage.first_worker / team, stage.replicas});
    } else {
      split.places.push_back({0, std::min(stage.replicas, context.workers)});
    }
    next += stage.replicas;
    split.recompute.push_back(stage.recompute);
    split.shard_optimizer.push_back(stage.shard_optimizer);
    split.offload.push_back(stage.offload);
    split.keep.push_back(stage.keep);
  }
  return split;
}

/// On the real workers.
Split split_of_members(Split split, const std::vector<Stage>& stages) {
  if (!split.worker_of_replica.empty()) return split;
  for (size_t s = 0; s < stages.size(); ++s) {
    split.places[s] = range_of_members(stages[s]);
    split.teams.push_back(stages[s].tensor);
  }
  return split;
}

/// Each member of the team that has more sends its own messages over the links that they share.
int64_t messages_of(const Plan& plan, const plan::Link& link, int level) {
  return level <= 1 ? 1 : std::max(members(plan, link.from), members(plan, link.to));
}

double slowest_boundary_ns(const Context& context, const Plan& plan,
                           const std::vector<int64_t>& cut_bytes) {
  double slowest = 0;
  for (size_t s = 0; s < cut_bytes.size(); ++s) {
    const int level = cut_level(context.topology(), range_of_members(plan.stages[s]),
                                range_of_members(plan.stages[s + 1]));
    const auto at = StageId{static_cast<int32_t>(s)};
    const plan::Link link{at, StageId{at.value + 1}, cut_bytes[s]};
    const int64_t bytes = saturating_mul(link.bytes, messages_of(plan, link, level));
    slowest = std::max(slowest, coded_cut_ns(context, plan, s, bytes, level));
  }
  return slowest;
}

/// Ordered pairs of a team's members in different units, as a share of those of all members.
double share_across(const WorkerRange& team, int unit) {
  double within = 0;
  for (int worker = team.first; worker < team.end();) {
    const int end = std::min((worker / unit + 1) * unit, team.end());
    const auto count = static_cast<double>(end - worker);
    within += count * (count - 1);
    worker = end;
  }
  const auto all = static_cast<double>(team.count) * (team.count - 1);
  return all > 0 ? 1 - within / all : 0;
}

void add_bytes(std::vector<double>& sum, const std::vector<double>& more, double factor) {
  sum.resize(std::max(sum.size(), more.size()));
  for (size_t l = 0; l < more.size(); ++l) sum[l] += factor * more[l];
}

/// What teams sum, through each level. A micro-batch passes each stage once, on one replica.
std::vector<double> team_traffic(const cluster::Topology& topology, const Plan& plan) {
  std::vector<double> bytes(static_cast<size_t>(topology.num_levels()), 0);
  for (const Stage& stage : plan.stages) {
    const WorkerRange team{std::max(stage.first_worker, 0), stage.tensor};
    for (int level = 1; level <= topology.num_levels(); ++level) {
      const int unit = topology.unit_size(level - 1);
      if (topology.unit_size(level) == unit) continue;
      bytes[static_cast<size_t>(level) - 1] +=
          share_across(team, unit) * static_cast<double>(stage.team_bytes) * stage.tensor /
          static_cast<double>(plan.micro_batch_size);
    }
  }
  return bytes;
}

/// Between stages: their members counted as replicas, each message as often as it is sent.
std::vector<double> link_traffic(const Context& context, const Plan& plan) {
  std::vector<double> bytes;
  Plan workers = plan;
  for (Stage& stage : workers.stages) {
    stage.replicas *= stage.tensor;
    stage.tensor = 1;
    stage.weight_bytes = 0;
  }
  for (const plan::Link& link : plan.links) {
    workers.links = {link};
    add_bytes(bytes, bytes_per_sample(workers, *context.model),
              std::max(members(plan, link.from), members(plan, link.to)));
  }
  return bytes;
}

void refuse_unequal_teams(const TeamSplit& asked) {
  const int first = asked.stages.empty() ? 1 : asked.stages.front().tensor;
  const bool alike = std::all_of(asked.stages.begin(), asked.stages.end(), [&](const Stage& stage) {
    return stage.tensor == first && stage.sequence == asked.stages.front().sequence;
  });
  if (asked.worker_of_replica.empty() || alike) return;
  throw ConfigError(
      "where workers hold several stages, plans are priced with teams of one size only");
}

std::vector<StageId> stages_of_layers(const std::vector<Stage>& stages,
                                      const profile::Profile& profile) {
  Plan named;
  named.stages = stages;
  return plan::stage_of_layer(named, profile.graph);
}

}  // namespace

struct TeamPricer::World {
  World(TeamWorld input, const PlanOptions& options)
      : of_teams(std::move(input)), context(of_teams.profile, of_teams.cluster, options) {}
  TeamWorld of_teams;
  Context context;
};

TeamPricer::TeamPricer(const profile::Profile& profile, const cluster::Cluster& cluster,
                       const PlanOptions& options)
    : profile_(profile), cluster_(cluster), options_(options) {}

TeamPricer::~TeamPricer() = default;

/// Each once.
std::vector<TeamPricer::Team> TeamPricer::kinds_of_teams(const std::vector<Stage>& stages) {
  std::vector<Team> kinds;
  for (const Stage& stage : stages) kinds.emplace_back(stage.tensor, stage.sequence);
  std::sort(kinds.begin(), kinds.end());
  kinds.erase(std::unique(kinds.begin(), kinds.end()), kinds.end());
  return kinds;
}

TeamPricer::World& TeamPricer::world(Team team) {
  std::unique_ptr<World>& known = worlds_[team];
  if (known) return *known;
  std::optional<TeamWorld> input = team_world(profile_, cluster_, team.first, team.second);
  if (!input) {
    throw ConfigError(fmt::format(
        "teams of {} members do not fit the cluster: expected a size that divides the {} workers "
        "of a unit, or whole units, all of one device",
        team.first, cluster_.levels.front().count));
  }
  known = std::make_unique<World>(*std::move(input), options_);
  return *known;
}

const Context& TeamPricer::context(int team, bool sequence) {
  return world({team, sequence}).context;
}

bool TeamPricer::fits(const Plan& plan) {
  for (const Stage& stage : plan.stages) {
    const WorkerRange place = plan.shares_workers() || stage.first_worker < 0
                                  ? WorkerRange{0, plan.num_workers()}
                                  : range_of_members(stage);
    const int64_t limit = context(1).limit_bytes(place);
    if (limit > 0 && stage.memory_bytes > limit) return false;
  }
  return true;
}

/// What is put together from the worlds of all teams.
struct TeamPricer::Parts {
  Plan plan;
  std::vector<int64_t> cut_bytes;
  std::vector<StageMemory> memories;
  std::vector<double> bytes_per_sample;
  double slowest_ns = 0;
};

// The stages with teams of this size.
void TeamPricer::add_world(const TeamSplit& asked, const std::vector<StageId>& stage_of_layer,
                           Team team, Parts& parts) {
  const Context& own = context(team.first, team.second);
  const Split split = split_in_world(own, asked, stage_of_layer, team.first);
  Priced priced = price_parts(own, split, parts.plan.micro_batches);
  const std::vector<StageMemory> memories = stage_memories(own, split, priced.cut_bytes);
  if (parts.plan.stages.empty()) {
    parts.plan = priced.plan;
    parts.cut_bytes = priced.cut_bytes;
    parts.memories = memories;
  }
  if (!asked.worker_of_replica.empty()) {
    parts.slowest_ns = static_cast<double>(priced.plan.prediction.bottleneck_ns);
    return add_bytes(parts.bytes_per_sample, priced.plan.prediction.bytes_per_sample, team.first);
  }
  for (size_t s = 0; s < asked.stages.size(); ++s) {
    if (Team{asked.stages[s].tensor, asked.stages[s].sequence} != team) continue;
    parts.plan.stages[s] = priced.plan.stages[s];
    parts.memories[s] = memories[s];
    parts.slowest_ns = std::max(parts.slowest_ns, stage_ns(own, priced.plan, s));
    Plan alone = priced.plan;
    alone.links.clear();
    alone.stages = {priced.plan.stages[s]};
    add_bytes(parts.bytes_per_sample, bytes_per_sample(alone, *own.model), team.first);
  }
}

// Of the workers, not of teams: cluster, places, bytes, the slowest part.
void TeamPricer::put_on_workers(const TeamSplit& asked, const std::vector<StageId>& stage_of_layer,
                                Parts& parts) {
  Plan& plan = parts.plan;
  plan.cluster = cluster_;
  std::vector<std::vector<LayerId>> layers(plan.stages.size());
  for (size_t l = 0; l < stage_of_layer.size(); ++l)
    layers[stage_of_layer[l].index()].push_back(LayerId{static_cast<int32_t>(l)});
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    Stage& stage = plan.stages[s];
    stage.tensor = asked.stages[s].tensor;
    stage.sequence = asked.stages[s].sequence;
    stage.team_bytes = team_bytes(profile_, layers[s], stage.tensor, stage.sequence);
    if (stage.tensor > 1) {
      stage.passes.reset();
      stage.shares_weights = false;
      stage.waiting_bytes = 0;
    }
    if (!plan.shares_workers()) stage.first_worker = asked.stages[s].first_worker;
  }
  const Context& real = context(1);
  if (!plan.shares_workers()) {
    parts.slowest_ns = std::max(parts.slowest_ns, slowest_boundary_ns(real, plan, parts.cut_bytes));
    add_bytes(parts.bytes_per_sample, link_traffic(real, plan), 1);
  }
  add_bytes(parts.bytes_per_sample, team_traffic(real.topology(), plan), 1);
  plan.prediction.bytes_per_sample = parts.bytes_per_sample;
  plan.prediction.bottleneck_ns = nearest(parts.slowest_ns);
}

Plan TeamPricer::price(const TeamSplit& wanted) {
  refuse_unequal_teams(wanted);
  TeamSplit asked = wanted;
  asked.stages = placed_stages(wanted, cluster_);
  const std::vector<StageId> stage_of_layer = stages_of_layers(asked.stages, profile_);
  const Context& real = context(1);
  std::vector<int> replicas;
  for (const Stage& stage : asked.stages) replicas.push_back(stage.replicas);
  Parts parts;
  parts.plan.micro_batches = asked.micro_batches;
  if (asked.micro_batches == 0)
    parts.plan.micro_batches = options_.micro_batches.value_or(
        asked.worker_of_replica.empty() ? chosen_micro_batches(real, asked.strategy, replicas) : 0);
  for (const Team& team : kinds_of_teams(asked.stages))
    add_world(asked, stage_of_layer, team, parts);
  put_on_workers(asked, stage_of_layer, parts);
  const Split members =
      split_of_members(split_in_world(real, asked, stage_of_layer, 1), asked.stages);
  if (!parts.plan.shares_workers()) {
    MemoryModel memory =
        memory_model(real, asked.strategy, asked.policy, parts.plan.micro_batches, asked.slack, 0);
    memory.max_workers = std::accumulate(replicas.begin(), replicas.end(), 0);
    memory.keep = members.keep_of(0);
    parts.plan.depth = memory.in_flight(replicas.front(), memory.max_workers);
  }
  predict(real, members, parts.memories, parts.plan);
  return std::move(parts.plan);
}

}  // namespace penstock::planner

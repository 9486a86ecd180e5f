#include "penstock/planner/teams/team_world.h"

#include <algorithm>
#include <cmath>

#include "penstock/cluster/topology.h"
#include "penstock/planner/cost/named_models.h"
#include "penstock/util/numbers/arithmetic.h"
#include "penstock/util/numbers/rounding.h"

namespace penstock::planner {

using profile::LayerCost;
using profile::SequenceShare;
using profile::TensorShare;

namespace {

/// What sums among the members of a team cost.
class SumCosts {
 public:
  SumCosts(const cluster::Cluster& cluster, int team)
      : model_(make_cost_model("penstock", cluster, GradientSync::Ordered, SyncOverlap::Waits)),
        team_(team),
        level_(model_->topology().level_of({0, team})),
        speed_(cluster.device.speed) {}

  /// As a part of a profile, whose times are those of a device of speed 1.
  int64_t ns(int64_t sums, int64_t bytes) const {
    if (sums == 0) return 0;
    const int64_t latency_ns = model_->sync_latency_ns(level_, false);
    const int64_t wire_ns = saturating_add(model_->wire_ns(bytes, team_, level_, false),
                                           model_->processor_ns(bytes, team_, level_, false));
    const int64_t ns = saturating_add(wire_ns, saturating_mul(2 * sums, latency_ns));
    return nearest(static_cast<double>(ns) * speed_);
  }

 private:
  std::unique_ptr<CostModel> model_;
  int team_;
  int level_;
  double speed_;
};

int64_t part_of(int64_t value, double share) {
  return rounded_up(static_cast<double>(value) * share);
}

LayerCost cost_of_member(const LayerCost& whole, int team, bool sequence, const SumCosts& sums) {
  const TensorShare& share = whole.team;
  const double most = largest_part(share, team);
  const double slower = 1 + kSmallerProducts * std::log2(static_cast<double>(team));
  const bool is_sequence = sequence && share.sequence.has_value();
  const SequenceShare places = is_sequence ? *share.sequence : SequenceShare{};
  const double work = is_sequence ? places.work : share.spread;
  const double time = 1 - work + work * std::min(most * slower, 1.0);
  const double weights = 1 - share.spread + share.spread * most;
  const double divided = is_sequence ? places.stash : share.spread_stash;
  const double stash = 1 - divided + divided * most;
  LayerCost cost = whole;
  cost.forward_ns =
      saturating_add(part_of(whole.forward_ns, time), sums.ns(share.sums, share.sum_bytes));
  cost.backward_ns = saturating_add(
      saturating_add(part_of(whole.backward_ns, time), sums.ns(places.sums, places.sum_bytes)),
      sums.ns(share.back_sums, share.back_sum_bytes));
  cost.backward_weight_ns = std::min(part_of(whole.backward_weight_ns, time), cost.backward_ns);
  cost.loss_ns =
      std::min(part_of(whole.loss_ns, time), saturating_add(cost.forward_ns, cost.backward_ns));
  for (const auto value : {&LayerCost::accumulate_ns, &LayerCost::step_ns, &LayerCost::weight_bytes,
                           &LayerCost::short_weight_bytes})
    cost.*value = part_of(whole.*value, weights);
  for (int64_t& bytes : cost.tied_bytes)
    bytes = std::min(part_of(bytes, weights), cost.weight_bytes);
  cost.stash_bytes = part_of(whole.stash_bytes, stash);
  // Most of what a backward pass needs are the gradients of weights.
  const int64_t gradients = std::min(whole.working_bytes, whole.weight_bytes);
  cost.working_bytes =
      saturating_add(part_of(gradients, weights), part_of(whole.working_bytes - gradients, stash));
  return cost;
}

/// Groups of devices in numbers of teams; nothing where a team would be in two.
std::optional<std::vector<cluster::DeviceGroup>> groups_of_teams(const cluster::Cluster& cluster,
                                                                 int team) {
  std::vector<cluster::DeviceGroup> groups = cluster.groups;
  for (cluster::DeviceGroup& group : groups) {
    if (group.first % team != 0 || group.count % team != 0) return std::nullopt;
    group.first /= team;
    group.count /= team;
  }
  return groups;
}

std::optional<cluster::Cluster> cluster_of_teams(const cluster::Cluster& cluster, int team) {
  auto groups = groups_of_teams(cluster, team);
  if (!groups) return std::nullopt;
  cluster::Cluster teams = cluster;
  teams.groups = std::move(*groups);
  teams.machine.reset();
  int left = team;
  int unit = 1;  // workers of a unit below the level
  for (cluster::Level& level : teams.levels) {
    const int count = level.count;
    const int sharing = std::min(team, unit);
    level.bandwidth_bytes_per_s = std::max<int64_t>(level.bandwidth_bytes_per_s / sharing, 1);
    unit *= count;
    if (count % left != 0 && left % count != 0) return std::nullopt;
    level.count = std::max(count / left, 1);
    left = std::max(left / count, 1);
  }
  if (left > 1) return std::nullopt;
  if (teams.cpu_machines.count > 0)
    teams.cpu_machines.bandwidth_bytes_per_s =
        std::max<int64_t>(teams.cpu_machines.bandwidth_bytes_per_s / team, 1);
  return teams;
}

}  // namespace

double largest_part(const TensorShare& share, int team) {
  if (team <= 1) return 1;
  if (share.units == 0) return 1.0 / team;
  return static_cast<double>(ceil_div(share.units, team)) / static_cast<double>(share.units);
}

bool can_be_shared_out(const profile::Profile& profile) {
  return std::any_of(profile.costs.begin(), profile.costs.end(),
                     [](const LayerCost& cost) { return cost.team.spread > 0; });
}

SharedOut shared_out(const profile::Profile& profile) {
  double weights = 0;
  double time = 0;
  SharedOut shared;
  for (const LayerCost& cost : profile.costs) {
    const auto own_weights = static_cast<double>(cost.weight_bytes);
    const double own_time =
        static_cast<double>(cost.forward_ns) + static_cast<double>(cost.backward_ns);
    weights += own_weights;
    time += own_time;
    shared.weights += cost.team.spread * own_weights;
    shared.time += cost.team.spread * own_time;
  }
  if (weights > 0) shared.weights /= weights;
  if (time > 0) shared.time /= time;
  return shared;
}

bool has_places(const profile::Profile& profile) {
  return std::any_of(profile.costs.begin(), profile.costs.end(), [](const LayerCost& cost) {
    return cost.team.sequence && cost.team.sequence->stash > cost.team.spread_stash;
  });
}

SharedStash shared_stash(const profile::Profile& profile) {
  double all = 0;
  SharedStash shared;
  for (const LayerCost& cost : profile.costs) {
    const auto bytes = static_cast<double>(cost.stash_bytes);
    all += bytes;
    shared.without += cost.team.spread_stash * bytes;
    shared.with +=
        (cost.team.sequence ? cost.team.sequence->stash : cost.team.spread_stash) * bytes;
  }
  if (all > 0) shared = {shared.with / all, shared.without / all};
  return shared;
}

std::optional<TeamWorld> team_world(const profile::Profile& profile,
                                    const cluster::Cluster& cluster, int team, bool sequence) {
  if (team == 1) return TeamWorld{profile, cluster};
  if (team < 1 || team > cluster.num_workers()) return std::nullopt;
  std::optional<cluster::Cluster> teams = cluster_of_teams(cluster, team);
  if (!teams) return std::nullopt;
  TeamWorld world{profile, std::move(*teams)};
  const SumCosts sums(cluster, team);
  for (LayerCost& cost : world.profile.costs) cost = cost_of_member(cost, team, sequence, sums);
  return world;
}

std::vector<int> possible_teams(const cluster::Cluster& cluster) {
  std::vector<int> sizes{1};
  const auto inner = std::find_if(cluster.levels.begin(), cluster.levels.end(),
                                  [](const cluster::Level& level) { return level.count > 1; });
  if (inner == cluster.levels.end()) return sizes;
  for (int size = 2; size <= inner->count; ++size) {
    if (inner->count % size == 0 && groups_of_teams(cluster, size)) sizes.push_back(size);
  }
  return sizes;
}

int64_t team_bytes(const profile::Profile& whole, const std::vector<LayerId>& layers, int team,
                   bool sequence) {
  int64_t bytes = 0;
  for (const LayerId id : layers) {
    const TensorShare& share = whole.costs[id.index()].team;
    bytes = saturating_add(bytes, saturating_add(share.sum_bytes, share.back_sum_bytes));
    if (sequence && share.sequence) bytes = saturating_add(bytes, share.sequence->sum_bytes);
  }
  return ceil_mul_div(bytes, 2 * (int64_t{team} - 1), team);
}

}  // namespace penstock::planner

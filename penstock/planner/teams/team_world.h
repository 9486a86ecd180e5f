// The planner's input as it is for teams (tensor parallelism): each team counts as one worker, a
// layer costs what it costs one member, and so do links. A plan for it is a plan of teams.
// Internal to the planner.
//
//   if (const auto world = team_world(profile, cluster, 4))
//     make_plan(world->profile, world->cluster, {});   // of teams of four
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "penstock/cluster/cluster.h"
#include "penstock/profile/profile.h"

namespace penstock::planner {

struct TeamWorld {
  profile::Profile profile;
  cluster::Cluster cluster;
};

/// Matrix products with fewer columns reach less of a device's peak: what each doubling of the team
/// adds to the time of what is divided, as a share of it.
inline constexpr double kSmallerProducts = 0.03;

/// Of the divided part, what the member with most of it has; 1 for a team of one.
double largest_part(const profile::TensorShare& share, int team);

/// Whether the profile says of any layer what teams can share out.
bool can_be_shared_out(const profile::Profile& profile);
/// The part of the model's trained weights, and of its time, that is divided.
struct SharedOut {
  double weights = 0;
  double time = 0;
};
SharedOut shared_out(const profile::Profile& profile);
/// Whether the profile knows of places of sequences that teams can share out.
bool has_places(const profile::Profile& profile);
/// The part of what operations save that is divided with them, and without.
struct SharedStash {
  double with = 0;
  double without = 0;
};
SharedStash shared_stash(const profile::Profile& profile);

/// Nothing where teams of that size do not fit the levels: they fill units of the innermost level
/// evenly, or units of outer levels (an innermost level of 4 takes 1, 2, 4, and 8 as two units);
/// nor where a team would have different devices. Team of one: the input itself.
///
/// Bandwidths of levels above are those of one member, since the members of a machine send over its
/// link at once; of CPU machines likewise. The inside of machines (Cluster::machine) is not known
/// of teams. Sums of a team cost what `ordered` costs over its members (cost/cost_model.h), with
/// the latency twice: each is a reduce-scatter and an all-gather. `sequence`: the members share out
/// places (plan::Stage::sequence). The two halves of each sum then stand in two layers, with the
/// same bytes. O(layers).
std::optional<TeamWorld> team_world(const profile::Profile& profile,
                                    const cluster::Cluster& cluster, int team,
                                    bool sequence = false);

/// Sizes of teams within a unit of the innermost level that joins workers, ascending, from 1.
std::vector<int> possible_teams(const cluster::Cluster& cluster);

/// What one member sends to its team for one micro-batch: 2 (t-1)/t of what it holds of sums.
int64_t team_bytes(const profile::Profile& whole, const std::vector<LayerId>& layers, int team,
                   bool sequence = false);

}  // namespace penstock::planner

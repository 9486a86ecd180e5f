#include "penstock/planner/teams/team_world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "penstock/planner/testing/testing_llama.h"

namespace penstock::planner {
namespace {

using ::testing::ElementsAre;

profile::Profile one_layer(const profile::TensorShare& team) {
  profile::Profile profile;
  profile.batch_size = 1;
  profile.costs = {{.forward_ns = 1'000'000,
                    .backward_ns = 3'000'000,
                    .backward_weight_ns = 1'000'000,
                    .accumulate_ns = 4'000,
                    .step_ns = 8'000,
                    .output_bytes = {64},
                    .weight_bytes = 1'000'000,
                    .stash_bytes = 2'000'000,
                    .working_bytes = 1'004'000,
                    .team = team}};
  profile.graph = graph::ModelGraph::build(
      1, {{"layer", "linear", {graph::ValueRef::model_input(0)}, 1}}, {{LayerId{0}, 0}});
  return profile;
}

cluster::Cluster servers_of_four() {
  return {.levels = {{.name = "server",
                      .count = 4,
                      .bandwidth_bytes_per_s = 1'000'000'000,
                      .latency_ns = 100},
                     {.name = "rack",
                      .count = 2,
                      .bandwidth_bytes_per_s = 500'000'000,
                      .latency_ns = 1'000}},
          .device = {}};
}

}  // namespace

TEST(LargestPart, IsThatOfTheMemberWithMostUnits) {
  EXPECT_DOUBLE_EQ(largest_part({}, 4), 0.25);
  EXPECT_DOUBLE_EQ(largest_part({.units = 12}, 4), 0.25);
  EXPECT_DOUBLE_EQ(largest_part({.units = 12}, 5), 0.25);  // 3, 3, 2, 2, 2
  EXPECT_DOUBLE_EQ(largest_part({.units = 2}, 4), 0.5);
  EXPECT_DOUBLE_EQ(largest_part({.units = 2}, 1), 1);
}

TEST(TeamWorld, MembersHaveTheirPartsAndTheWholeOfTheRest) {
  const profile::Profile whole = one_layer({.spread = 0.5, .spread_stash = 0.25});
  const auto world = team_world(whole, servers_of_four(), 4);
  ASSERT_TRUE(world);
  const profile::LayerCost& cost = world->profile.costs[0];
  const double divided = 0.25 * (1 + 2 * kSmallerProducts);
  EXPECT_EQ(cost.forward_ns, std::ceil(1e6 * (0.5 + 0.5 * divided)));
  EXPECT_EQ(cost.backward_ns, std::ceil(3e6 * (0.5 + 0.5 * divided)));
  EXPECT_EQ(cost.step_ns, 5'000);
  EXPECT_EQ(cost.accumulate_ns, 2'500);
  EXPECT_EQ(cost.weight_bytes, 625'000);
  EXPECT_EQ(cost.stash_bytes, 2'000'000 * 13 / 16);
  // 1,000,000 of gradients, as the weights; 4,000 of values, as what is kept.
  EXPECT_EQ(cost.working_bytes, 625'000 + 4'000 * 13 / 16);
  EXPECT_THAT(cost.output_bytes, ElementsAre(64));
  EXPECT_EQ(team_world(whole, servers_of_four(), 1)->profile, whole);
}

// The sums are those of members that have whole values, in two halves; the gradients of weights
// come besides.
TEST(TeamWorld, MembersThatShareOutPlacesKeepTheirPartOfMore) {
  profile::TensorShare share{.spread = 0.5,
                             .spread_stash = 0.25,
                             .sums = 1,
                             .sum_bytes = 40'000,
                             .back_sums = 1,
                             .back_sum_bytes = 40'000};
  const profile::Profile without = one_layer(share);
  share.sequence = {.work = 1, .stash = 0.75, .sums = 2, .sum_bytes = 8'000};
  const profile::Profile whole = one_layer(share);
  const profile::LayerCost with = team_world(whole, servers_of_four(), 4, true)->profile.costs[0];
  const double divided = 0.25 * (1 + 2 * kSmallerProducts);
  EXPECT_EQ(with.stash_bytes, 2'000'000 * 7 / 16);
  EXPECT_EQ(with.weight_bytes, 625'000);
  const profile::LayerCost as_before = team_world(without, servers_of_four(), 4)->profile.costs[0];
  const auto sum_ns = as_before.forward_ns - std::ceil(1e6 * (0.5 + 0.5 * divided));
  EXPECT_EQ(with.forward_ns, std::ceil(1e6 * divided) + sum_ns);
  EXPECT_GT(with.backward_ns, std::ceil(3e6 * divided) + sum_ns);
  EXPECT_EQ(team_world(whole, servers_of_four(), 4)->profile.costs[0].stash_bytes,
            as_before.stash_bytes);
  EXPECT_EQ(team_bytes(whole, {LayerId{0}}, 4), 80'000 * 3 / 2);
  EXPECT_EQ(team_bytes(whole, {LayerId{0}}, 4, true), 88'000 * 3 / 2);
  EXPECT_TRUE(has_places(whole));
  EXPECT_FALSE(has_places(without));
}

// It is a part of the passes, which are shorter.
TEST(TeamWorld, TheLossIsSharedOutAsItsPassesAre) {
  profile::Profile whole = one_layer({.spread = 1});
  whole.costs[0].loss_ns = 4'000'000;
  const profile::LayerCost cost = team_world(whole, servers_of_four(), 4)->profile.costs[0];
  EXPECT_EQ(cost.loss_ns, cost.forward_ns + cost.backward_ns);
  whole.costs[0].loss_ns = 1'000'000;
  EXPECT_EQ(team_world(whole, servers_of_four(), 4)->profile.costs[0].loss_ns, cost.forward_ns);
}

// 8 b s h (t-1)/t elements per transformer layer and micro-batch, half forward, half backward.
TEST(TeamWorld, ATransformerLayerSendsTheBytesOfTheFormula) {
  const testing_llama::Decoder sizes;
  const profile::Profile profile = testing_llama::decoder_profile(sizes);
  for (const int team : {2, 4, 8}) {
    const double elements =
        8.0 * static_cast<double>(sizes.length * sizes.hidden) * (team - 1) / team;
    EXPECT_EQ(team_bytes(profile, {LayerId{1}, LayerId{2}}, team), 2 * elements);
  }
  EXPECT_EQ(team_bytes(profile, {LayerId{1}, LayerId{2}}, 1), 0);
}

TEST(TeamWorld, SumsCostTheLevelThatTheTeamSpans) {
  const profile::Profile whole =
      one_layer({.spread = 1, .sums = 2, .sum_bytes = 1'000'000, .back_sums = 1});
  const auto time_of = [&](int team) {
    const double divided = 1e6 / team * (1 + kSmallerProducts * std::log2(team));
    return team_world(whole, servers_of_four(), team)->profile.costs[0].forward_ns -
           std::ceil(divided);
  };
  // 2 (t-1)/t bytes at 1 ns each, and two latencies for each of two sums.
  EXPECT_EQ(time_of(2), 1'000'000 + 2 * 2 * 100);
  EXPECT_EQ(time_of(4), 1'500'000 + 2 * 2 * 100);
  // Over the link of a server go what its four members send to the other four: 2 * 4 * 4 / 8 of the
  // bytes, at 2 ns each.
  EXPECT_EQ(time_of(8), 8'000'000 + 2 * 2 * 1'100);
}

TEST(TeamWorld, LinksAboveAreSharedByTheMembers) {
  const auto world = team_world(one_layer({.spread = 1}), servers_of_four(), 2);
  ASSERT_TRUE(world);
  EXPECT_EQ(world->cluster.num_workers(), 4);
  EXPECT_EQ(world->cluster.levels[0].count, 2);
  EXPECT_EQ(world->cluster.levels[0].bandwidth_bytes_per_s, 1'000'000'000);
  EXPECT_EQ(world->cluster.levels[1].count, 2);
  EXPECT_EQ(world->cluster.levels[1].bandwidth_bytes_per_s, 250'000'000);
  EXPECT_EQ(team_world(one_layer({}), servers_of_four(), 8)->cluster.num_workers(), 1);
}

TEST(TeamWorld, SizesFillUnitsOfTheInnermostLevel) {
  EXPECT_THAT(possible_teams(servers_of_four()), ElementsAre(1, 2, 4));
  cluster::Cluster six = servers_of_four();
  six.levels[0].count = 6;
  EXPECT_THAT(possible_teams(six), ElementsAre(1, 2, 3, 6));
  EXPECT_FALSE(team_world(one_layer({}), servers_of_four(), 3));
  EXPECT_FALSE(team_world(one_layer({}), servers_of_four(), 16));
  cluster::Cluster unequal = servers_of_four();
  unequal.groups = {{.first = 6, .count = 2, .device = {.name = "old", .speed = 0.5}}};
  EXPECT_THAT(possible_teams(unequal), ElementsAre(1, 2));
  EXPECT_EQ(team_world(one_layer({}), unequal, 2)->cluster.groups[0].first, 3);
  cluster::Cluster one_level{
      .levels = {{.name = "alone", .count = 1}, {.name = "host", .count = 2}}, .device = {}};
  EXPECT_THAT(possible_teams(one_level), ElementsAre(1, 2));
}

TEST(TeamWorld, SaysHowMuchIsSharedOut) {
  EXPECT_FALSE(can_be_shared_out(one_layer({})));
  profile::Profile profile = one_layer({.spread = 0.5});
  EXPECT_TRUE(can_be_shared_out(profile));
  EXPECT_DOUBLE_EQ(shared_out(profile).weights, 0.5);
  EXPECT_GT(shared_out(testing_llama::decoder_profile()).weights, 0.98);
}

}  // namespace penstock::planner

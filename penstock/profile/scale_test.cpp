#include "penstock/profile/scale.h"

#include <gtest/gtest.h>

namespace penstock::profile {
namespace {

Profile one_layer(int64_t batch_size, LayerCost cost) {
  Profile profile;
  profile.batch_size = batch_size;
  profile.graph = graph::ModelGraph::build(
      1, {{"fc1", "linear", {graph::ValueRef::model_input(0)}, 1}}, {{LayerId{0}, 0}});
  profile.costs = {std::move(cost)};
  return profile;
}

TEST(ScaledProfile, ScalesWhatDependsOnTheSamplesAndNothingElse) {
  const Profile scaled = scaled_to(one_layer(8, {.forward_ns = 10,
                                                 .backward_ns = 20,
                                                 .backward_weight_ns = 6,
                                                 .accumulate_ns = 3,
                                                 .step_ns = 7,
                                                 .forward_spread_ns = 2,
                                                 .backward_spread_ns = 4,
                                                 .output_bytes = {100},
                                                 .weight_bytes = 1000,
                                                 .stash_bytes = 150}),
                                   4);
  EXPECT_EQ(scaled, one_layer(4, {.forward_ns = 5,
                                  .backward_ns = 10,
                                  .backward_weight_ns = 3,
                                  .accumulate_ns = 3,
                                  .step_ns = 7,
                                  .forward_spread_ns = 1,
                                  .backward_spread_ns = 2,
                                  .output_bytes = {50},
                                  .weight_bytes = 1000,
                                  .stash_bytes = 75}));
}

TEST(ScaledProfile, ScalesWhatTeamsSum) {
  Profile profile;
  profile.batch_size = 4;
  profile.costs.push_back(
      {.output_bytes = {}, .team = {.spread = 0.5, .sums = 1, .sum_bytes = 100}});
  const TensorShare team = scaled_to(profile, 8).costs[0].team;
  EXPECT_EQ(team, (TensorShare{.spread = 0.5, .sums = 1, .sum_bytes = 200}));
}

TEST(ScaledProfile, DoesNotKnowTheErrorOfAnotherSize) {
  Profile profile = one_layer(8, {.forward_ns = 10, .backward_ns = 20, .output_bytes = {4}});
  profile.pass = {.mean_ns = 30, .spread = 0.2, .error = 0.01, .stretches = 20};
  EXPECT_EQ(scaled_to(profile, 8).pass, profile.pass);
  EXPECT_EQ(scaled_to(profile, 4).pass,
            (PassTimes{.mean_ns = 15, .spread = 0.2, .error = 0, .stretches = 20}));
}

TEST(ScaledProfile, CountsAnUnknownBatchSizeAsOneSample) {
  const Profile scaled =
      scaled_to(one_layer(0, {.forward_ns = 10, .backward_ns = 20, .output_bytes = {4}}), 3);
  EXPECT_EQ(scaled, one_layer(3, {.forward_ns = 30, .backward_ns = 60, .output_bytes = {12}}));
}

}  // namespace
}  // namespace penstock::profile

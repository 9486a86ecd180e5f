// Several measurements as one profile.
#include "penstock/profile/mean.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/util/error.h"

namespace penstock::profile {
namespace {

Profile measured(int64_t forward_ns, const std::string& device) {
  Profile profile;
  profile.model = "net";
  profile.device = device;
  profile.source = "measured";
  profile.batch_size = 8;
  profile.samples = static_cast<int>(forward_ns);
  profile.copy_bandwidth_bytes_per_s = 10 * forward_ns;
  profile.graph = graph::ModelGraph::build(
      1, {{"fc", "linear", {graph::ValueRef::model_input(0)}, 1}}, {{LayerId{0}, 0}});
  profile.costs = {{.forward_ns = forward_ns,
                    .backward_ns = 2 * forward_ns,
                    .backward_weight_ns = 2 * forward_ns,
                    .accumulate_ns = 3,
                    .step_ns = 5,
                    .forward_spread_ns = 1,
                    .backward_spread_ns = 2,
                    .output_bytes = {40},
                    .weight_bytes = 4000,
                    .stash_bytes = forward_ns}};
  return profile;
}

TEST(MeanProfile, TimesAreMeansAndSpeedsRelative) {
  const std::vector<Profile> profiles{measured(100, "fast"), measured(200, "fast"),
                                      measured(301, "slow")};
  const Profile mean = mean_of(profiles);
  validate(mean);
  EXPECT_EQ(mean.costs[0].forward_ns, 200);  // 200.3
  EXPECT_EQ(mean.costs[0].backward_ns, 400);
  EXPECT_EQ(mean.costs[0].backward_weight_ns, 400);
  EXPECT_EQ(mean.costs[0].accumulate_ns, 3);
  EXPECT_EQ(mean.costs[0].step_ns, 5);
  EXPECT_EQ(mean.costs[0].stash_bytes, 301);
  EXPECT_EQ(mean.costs[0].weight_bytes, 4000);
  EXPECT_EQ(mean.copy_bandwidth_bytes_per_s, 2003);
  EXPECT_EQ(mean.device, "fast and slow");
  EXPECT_EQ(mean.samples, 100);
  EXPECT_DOUBLE_EQ(speed_of(profiles[0], mean), 2);
  EXPECT_DOUBLE_EQ(speed_of(profiles[1], mean), 1);
  EXPECT_EQ(mean_of({profiles[2]}), profiles[2]);
}

TEST(MeanProfile, KnowsAsMuchOfPassesAsTheWorst) {
  Profile a = measured(100, "x");
  Profile b = a;
  a.pass = {.mean_ns = 10, .spread = 0.1, .error = 0.01, .stretches = 20};
  b.pass = {.mean_ns = 20, .spread = 0.2, .error = 0.02, .stretches = 10};
  EXPECT_EQ(mean_of({a, b}).pass,
            (PassTimes{.mean_ns = 15, .spread = 0.2, .error = 0.02, .stretches = 10}));
  b.pass = {};
  EXPECT_EQ(mean_of({a, b}).pass, PassTimes{});
}

TEST(MeanProfile, LargeTimesDoNotOverflow) {
  Profile large = measured(1, "d");
  large.costs[0].forward_ns = INT64_MAX;
  EXPECT_EQ(mean_of({large, large, large}).costs[0].forward_ns, INT64_MAX);
}

TEST(MeanProfile, OtherLayersAreRefused) {
  Profile other = measured(100, "d");
  other.costs[0].weight_bytes = 8000;
  EXPECT_THROW(mean_of({measured(100, "d"), other}), ConfigError);
  other = measured(100, "d");
  other.batch_size = 4;
  EXPECT_THROW(mean_of({measured(100, "d"), other}), ConfigError);
  EXPECT_THROW(mean_of({}), ConfigError);
  Profile empty = measured(0, "d");
  EXPECT_EQ(speed_of(empty, measured(100, "d")), 1);
}

}  // namespace
}  // namespace penstock::profile

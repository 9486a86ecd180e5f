#include "penstock/profile/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/util/error.h"
#include "tests/support/mutate.h"

namespace penstock::profile {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Profile two_layers() {
  Profile profile;
  profile.batch_size = 8;
  profile.graph = graph::ModelGraph::build(1,
                                           {{"fc1", "linear", {graph::ValueRef::model_input(0)}, 1},
                                            {"fc2", "linear", {{LayerId{0}, 0}}, 1}},
                                           {{LayerId{1}, 0}});
  profile.costs = {{10, 20, 5, 3, 1, 0, 0, {100}, 1000, 150},
                   {30, 40, 0, 4, 2, 0, 0, {200}, 2000, 250}};
  return profile;
}

template <class Change>
std::string refusal_after(Change change) {
  Profile profile = two_layers();
  change(profile);
  return tests::message_of<ConfigError>([&] { validate(profile); });
}

TEST(Profile, TotalComputeSumsForwardAndBackward) {
  EXPECT_EQ(total_compute_ns(two_layers()), 100);
}

TEST(Profile, TotalComputeSaturates) {
  Profile profile = two_layers();
  profile.costs[0].forward_ns = INT64_MAX;
  EXPECT_EQ(total_compute_ns(profile), INT64_MAX);
}

TEST(Profile, CountsTiedWeightsOnceEvenBeyond64Bits) {
  Profile profile = two_layers();
  graph::LayerNode second{"fc2", "linear", {{LayerId{0}, 0}}, 1};
  second.ties = {{0, {LayerId{0}, 0}}};
  profile.graph = graph::ModelGraph::build(
      1, {{"fc1", "linear", {graph::ValueRef::model_input(0)}, 1}, second}, {{LayerId{1}, 0}});
  profile.costs[1].tied_bytes = {1'500};
  const std::vector<LayerId> all = {LayerId{0}, LayerId{1}};
  EXPECT_EQ(weight_bytes_of(profile, all), 1'500);
  profile.costs[0].weight_bytes = INT64_MAX - 100;
  EXPECT_EQ(weight_bytes_of(profile, all), INT64_MAX);
}

TEST(Profile, CountsOneSampleWhenTheBatchSizeIsUnknown) {
  Profile profile = two_layers();
  EXPECT_EQ(samples_per_micro_batch(profile), 8);
  profile.batch_size = 0;
  EXPECT_EQ(samples_per_micro_batch(profile), 1);
}

TEST(ValidateProfile, AcceptsAGoodProfile) { EXPECT_NO_THROW(validate(two_layers())); }

TEST(ValidateProfile, NamesTheLayerAndTheValue) {
  EXPECT_THAT(refusal_after([](Profile& p) { p.costs[1].forward_ns = -5; }),
              AllOf(HasSubstr("'fc2'"), HasSubstr("forward_ns"), HasSubstr("-5")));
  EXPECT_THAT(refusal_after([](Profile& p) { p.costs[0].backward_ns = -1; }),
              HasSubstr("backward_ns"));
  EXPECT_THAT(refusal_after([](Profile& p) { p.costs[0].step_ns = -1; }), HasSubstr("step_ns"));
  EXPECT_THAT(refusal_after([](Profile& p) { p.costs[0].forward_spread_ns = -1; }),
              HasSubstr("forward_spread_ns"));
  EXPECT_THAT(refusal_after([](Profile& p) { p.costs[0].backward_spread_ns = -1; }),
              HasSubstr("backward_spread_ns"));
  EXPECT_THAT(refusal_after([](Profile& p) { p.costs[0].weight_bytes = -1; }),
              HasSubstr("weight_bytes"));
  EXPECT_THAT(refusal_after([](Profile& p) { p.costs[0].stash_bytes = -1; }),
              HasSubstr("stash_bytes"));
  EXPECT_THAT(refusal_after([](Profile& p) { p.costs[0].output_bytes[0] = -1; }),
              HasSubstr("output_bytes"));
  EXPECT_THAT(refusal_after([](Profile& p) { p.costs[0].output_bytes.push_back(1); }),
              HasSubstr("1 outputs, found 2"));
  EXPECT_THAT(refusal_after([](Profile& p) { p.costs.pop_back(); }),
              HasSubstr("2 layers, found 1"));
  EXPECT_THAT(refusal_after([](Profile& p) { p.batch_size = -1; }), HasSubstr("batch_size"));
  EXPECT_THAT(refusal_after([](Profile& p) { p.samples = -1; }), HasSubstr("samples"));
  EXPECT_THAT(refusal_after([](Profile& p) { p = Profile(); }), HasSubstr("no layer"));
}

}  // namespace
}  // namespace penstock::profile

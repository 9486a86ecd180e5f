#include "penstock/profile/lengths.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/profile/over_lengths.h"
#include "penstock/util/error.h"

namespace penstock::profile {
namespace {

using testing::HasSubstr;

const std::vector<LengthGroup> kLengths = {{0.75, {{12}, {8}}}, {0.25, {{40}, {44}}}};

/// One layer that takes `forward_ns`.
Profile profile_of(int64_t forward_ns) {
  Profile profile;
  profile.model = "words";
  profile.batch_size = 4;
  profile.samples = 3;
  profile.graph = graph::ModelGraph::build(
      1, {{.name = "a", .kind = "lstm", .inputs = {graph::ValueRef::model_input(0)}}},
      {{LayerId{0}, 0}});
  profile.costs = {{.forward_ns = forward_ns,
                    .backward_ns = 2 * forward_ns,
                    .output_bytes = {forward_ns / 10},
                    .weight_bytes = 64,
                    .stash_bytes = forward_ns}};
  profile.pass = {.mean_ns = 3 * forward_ns, .spread = 0.1, .error = 0.01, .stretches = 4};
  return profile;
}

TEST(Lengths, AreRangesAndMeansInWords) {
  EXPECT_EQ(lengths_text(kLengths), "12 to 40 places (mean 19.0), 8 to 44 (mean 17.0)");
  EXPECT_EQ(lengths_text({}), "");
}

TEST(Lengths, SharesThatAreNoneAreRefused) {
  EXPECT_THROW(validate(std::vector<LengthGroup>{{0.5, {{3}}}}), ConfigError);
  EXPECT_THROW(validate(std::vector<LengthGroup>{{0.5, {{3}}}, {0.5, {{3}, {4}}}}), ConfigError);
  EXPECT_THROW(validate(std::vector<LengthGroup>{{1.5, {{3}}}, {-0.5, {{3}}}}), ConfigError);
  EXPECT_THROW(validate(std::vector<LengthGroup>{{1, {{0}}}}), ConfigError);
  EXPECT_THROW(validate(std::vector<LengthGroup>{{0.5, {{4}}}, {0.5, {{}}}}), ConfigError);
  EXPECT_NO_THROW(validate(kLengths));
}

TEST(OverLengths, TimesAreMeansAndMemoryIsOfTheLongest) {
  const Profile all = over_lengths({profile_of(1000), profile_of(5000)}, kLengths);
  EXPECT_EQ(all.costs.front().forward_ns, 2000);
  EXPECT_EQ(all.costs.front().backward_ns, 4000);
  EXPECT_EQ(all.costs.front().output_bytes, std::vector<int64_t>{200});
  EXPECT_EQ(all.costs.front().stash_bytes, 5000);
  EXPECT_EQ(all.costs.front().weight_bytes, 64);
  EXPECT_EQ(all.pass.mean_ns, 6000);
  // Of single passes, most of the spread is between the lengths: 3000 and 15000 around 6000.
  EXPECT_NEAR(all.pass.spread, 0.875, 0.02);
  // Of the mean, only what was measured counts: sqrt(22.5^2 + 37.5^2) / 6000.
  EXPECT_NEAR(all.pass.error, 0.00729, 1e-4);
  EXPECT_EQ(all.samples, 6);
  EXPECT_EQ(all.lengths, kLengths);
}

TEST(OverLengths, OtherModelsAndMicroBatchesAreRefused) {
  Profile other = profile_of(1);
  other.batch_size = 5;
  EXPECT_THROW(over_lengths({profile_of(1), other}, kLengths), ConfigError);
  EXPECT_THROW(over_lengths({profile_of(1)}, kLengths), ConfigError);
}

TEST(OverLengths, TheFileKeepsThem) {
  const Profile all = over_lengths({profile_of(1000), profile_of(5000)}, kLengths);
  EXPECT_EQ(parse_profile(to_json(all), "p.json"), all);
  std::string damaged = to_json(all);
  damaged.replace(damaged.find("0.75"), 4, "0.95");
  try {
    parse_profile(damaged, "p.json");
    FAIL() << "shares of 1.2 were read";
  } catch (const ParseError& error) {
    EXPECT_THAT(error.what(), HasSubstr("add up to 1"));
  }
}

}  // namespace
}  // namespace penstock::profile

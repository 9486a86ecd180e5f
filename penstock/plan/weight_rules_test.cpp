#include "penstock/plan/weight_rules.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "penstock/util/error.h"

namespace penstock::plan {
namespace {

/// The example of docs/extending.md.
constexpr WeightPolicyTraits kThreeBuffered = {
    .name = "3bw",
    .summary = "the weights of two steps ago",
    .version = [](const VersionUse& use) { return std::max<int64_t>(use.mini_batch - 2, 0); },
    .delays =
        [](const DelayPlace& at) {
          return VersionDelays{2 * at.step, 2 * at.step};
        },
    .versions = [](const VersionsPlace&) -> int64_t { return 3; },
    .fills_pipeline = true,
};

TEST(WeightRules, IsReadByItsName) {
  for (const WeightPolicyTraits& row : weight_policies())
    EXPECT_EQ(parse_weight_policy(row.name), row.policy);
  EXPECT_EQ(weight_policy_names(), "flush, stash, vertical-sync, 2bw, latest or current");
  EXPECT_THROW(parse_weight_policy("fresh"), ConfigError);
}

TEST(WeightRules, OneVersionAtATimeIsTheMostThatIsKept) {
  const VersionsPlace deep{.in_flight = 9, .share = 2, .workers = 5};
  for (const WeightPolicyTraits& row : weight_policies()) {
    EXPECT_EQ(row.versions(deep) == 1, row.one_version) << row.name;
    EXPECT_EQ(row.versions(deep) != row.versions({.in_flight = 9, .share = 4, .workers = 5}),
              row.versions_by_share)
        << row.name;
  }
}

/// In steady 1F1B with `ahead` forwards ahead of the backwards, one replica.
void expect_closed_form_is_the_rule(const WeightPolicyTraits& row) {
  const DelayPlace place{.step = 4, .ahead = 3, .ahead_at_input = 7};
  const auto version = [&](int64_t b, int64_t delay) {
    return std::max<int64_t>(0, b - delay) / place.step;
  };
  const VersionDelays delays = row.delays(place);
  for (int64_t b = 0; b < 40; ++b) {
    const int64_t mini_batch = b / place.step;
    const bool of_input = row.note == VersionNote::OfInputStage;
    const int64_t noted = version(b, of_input ? place.ahead_at_input : place.ahead);
    const VersionUse forward{
        .mini_batch = mini_batch, .steps = version(b, place.ahead), .noted = noted};
    const VersionUse backward{.mini_batch = mini_batch, .steps = mini_batch, .noted = noted};
    EXPECT_EQ(row.version(forward), version(b, delays.forward)) << row.name << ' ' << b;
    EXPECT_EQ(row.version(backward), version(b, delays.backward)) << row.name << ' ' << b;
  }
}

TEST(WeightRules, ClosedFormIsTheRule) {
  for (const WeightPolicyTraits& row : weight_policies()) expect_closed_form_is_the_rule(row);
  expect_closed_form_is_the_rule(kThreeBuffered);
}

}  // namespace
}  // namespace penstock::plan

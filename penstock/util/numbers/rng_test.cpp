#include "penstock/util/numbers/rng.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace penstock {
namespace {

TEST(Rng, EqualsThePublishedSplitMix64Sequence) {
  // Reference values of the public-domain splitmix64.c for the seed 1234567.
  Rng rng(1234567);
  EXPECT_EQ(rng.next(), 6457827717110365317ULL);
  EXPECT_EQ(rng.next(), 3203168211198807973ULL);
  EXPECT_EQ(rng.next(), 9817491932198370423ULL);
}

TEST(Rng, UniformStaysInRangeAndHasTheRightMean) {
  Rng rng(1);
  double sum = 0;
  for (int i = 0; i < 10'000; ++i) {
    const double value = rng.uniform();
    ASSERT_GE(value, 0);
    ASSERT_LT(value, 1);
    sum += value;
  }
  EXPECT_NEAR(sum / 10'000, 0.5, 0.02);
}

TEST(DeriveSeed, DependsOnEveryPartAndOnTheirOrder) {
  EXPECT_EQ(derive_seed(1, 2, 3), derive_seed(1, 2, 3));
  EXPECT_NE(derive_seed(1, 2, 3), derive_seed(1, 3, 2));
  EXPECT_NE(derive_seed(1, 2, 3), derive_seed(2, 2, 3));
  EXPECT_NE(derive_seed(1, 2), derive_seed(1, 2, 0));
}

TEST(HashName, EqualsThePublishedFnv1a) {
  EXPECT_EQ(hash_name(""), 0xCBF29CE484222325ULL);
  EXPECT_EQ(hash_name("a"), 0xAF63DC4C8601EC8CULL);
}

RC_GTEST_PROP(Rng, BelowStaysBelow, (uint64_t seed)) {
  const auto bound =
      *rc::gen::suchThat(rc::gen::arbitrary<uint64_t>(), [](uint64_t value) { return value > 0; });
  Rng rng(seed);
  for (int i = 0; i < 10; ++i) RC_ASSERT(rng.below(bound) < bound);
}

RC_GTEST_PROP(Rng, ShuffleIsAPermutationThatTheSeedDecides,
              (uint64_t seed, std::vector<int> items)) {
  auto first = items;
  auto second = items;
  Rng(seed).shuffle<int>(first);
  Rng(seed).shuffle<int>(second);
  RC_ASSERT(first == second);
  std::sort(first.begin(), first.end());
  std::sort(items.begin(), items.end());
  RC_ASSERT(first == items);
}

}  // namespace
}  // namespace penstock

// Bounded delays: who waits for whom, and that every update reaches every replica once.
#include "penstock/runtime/fabric/delayed_sum.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <random>

#include "penstock/util/error.h"

namespace penstock::runtime {
namespace {

model::Tensors update(double value) { return {at::full({2}, value)}; }

double value_of(const std::optional<model::Tensors>& sums) {
  if (!sums) return -1;
  return sums->front().defined() ? sums->front()[1].item<double>() : 0;
}

TEST(DelayedSum, WithoutStalenessItIsASum) {
  DelayedSum sum(2, 1, 0);
  sum.give(0, update(1), false);
  EXPECT_FALSE(sum.take(0));
  EXPECT_FALSE(sum.take(1));  // has not given
  sum.give(1, update(10), false);
  EXPECT_EQ(value_of(sum.take(0)), 11);
  EXPECT_FALSE(sum.take(0));
  // Replica 0 goes on before replica 1 takes: that is for the next round.
  sum.give(0, update(2), false);
  EXPECT_EQ(value_of(sum.take(1)), 11);
  sum.give(1, update(20), false);
  EXPECT_EQ(value_of(sum.take(1)), 22);
  EXPECT_EQ(value_of(sum.take(0)), 22);
}

TEST(DelayedSum, AFastReplicaGoesAheadAsFarAsTheBound) {
  DelayedSum sum(2, 1, 2);
  for (const double value : {1., 2.}) {
    sum.give(0, update(value), false);
    EXPECT_EQ(value_of(sum.take(0)), value);
  }
  sum.give(0, update(4), false);
  EXPECT_FALSE(sum.take(0));
  sum.give(1, update(10), false);
  EXPECT_EQ(value_of(sum.take(0)), 14);
  EXPECT_EQ(value_of(sum.take(1)), 17);  // all of the fast one's: rounds 1 to 3
  sum.give(0, update(100), false);
  sum.give(1, update(1000), false);
  EXPECT_EQ(value_of(sum.take(1)), 1100);
}

TEST(DelayedSum, TheLastRoundWaitsForAll) {
  DelayedSum sum(2, 1, 100);
  sum.give(0, update(1), false);
  sum.take(0);
  sum.give(0, {}, true);
  EXPECT_FALSE(sum.take(0));
  sum.give(1, update(10), false);
  EXPECT_EQ(value_of(sum.take(1)), 11);
  EXPECT_FALSE(sum.take(0));
  sum.give(1, {}, true);
  EXPECT_EQ(value_of(sum.take(0)), 10);
  EXPECT_EQ(value_of(sum.take(1)), 0);
  EXPECT_THROW(sum.give(0, update(1), false), InternalError);
}

/// Any order in which the replicas can go: all copies get all updates, and none is further behind
/// than the bound.
TEST(DelayedSum, EveryUpdateReachesEveryReplicaOnce) {
  std::mt19937 random(7);
  for (const int64_t staleness : {0, 1, 3}) {
    constexpr int kReplicas = 3;
    constexpr int64_t kRounds = 40;
    DelayedSum sum(kReplicas, 1, staleness);
    std::vector<int64_t> given(kReplicas, 0);
    std::vector<int64_t> taken(kReplicas, 0);
    std::vector<double> copies(kReplicas, 0);
    double all = 0;
    while (*std::min_element(taken.begin(), taken.end()) <= kRounds) {
      const auto r = random() % kReplicas;
      if (given[r] == taken[r] && given[r] <= kRounds) {
        const double value = given[r] < kRounds ? static_cast<double>(random() % 1000) : 0;
        sum.give(static_cast<int>(r), given[r] < kRounds ? update(value) : model::Tensors(),
                 given[r] == kRounds);
        ++given[r];
        all += value;
      }
      const auto missing = sum.take(static_cast<int>(r));
      if (!missing) continue;
      ++taken[r];
      if (missing->front().defined()) copies[r] += missing->front()[0].item<double>();
      EXPECT_LE(taken[r] - *std::min_element(given.begin(), given.end()), staleness);
    }
    for (const double copy : copies) EXPECT_EQ(copy, all);
  }
}

}  // namespace
}  // namespace penstock::runtime

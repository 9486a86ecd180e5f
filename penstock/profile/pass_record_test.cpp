#include "penstock/profile/pass_record.h"

#include <gtest/gtest.h>

#include <cmath>

#include "penstock/util/numbers/rng.h"

namespace penstock::profile {
namespace {

/// Uniform between 0.9 and 1.1 of a millisecond: a standard deviation of 5.77 %.
int64_t noisy(Rng& rng) { return static_cast<int64_t>(900'000 + 200'000 * rng.uniform()); }

PassTimes times_of(int passes, uint64_t seed) {
  Rng rng(seed);
  PassRecord record;
  for (int i = 0; i < passes; ++i) record.add(noisy(rng));
  return record.times();
}

TEST(PassRecord, FewPassesSayNothing) {
  EXPECT_EQ(times_of(3, 1), PassTimes{});
  EXPECT_GT(times_of(4, 1).mean_ns, 0);
}

TEST(PassRecord, EqualPassesAreKnownExactly) {
  PassRecord record;
  for (int i = 0; i < 10; ++i) record.add(5000);
  EXPECT_EQ(record.times(), (PassTimes{.mean_ns = 5000, .spread = 0, .error = 0, .stretches = 10}));
}

TEST(PassRecord, KnowsTheSpreadOfPasses) {
  const PassTimes times = times_of(2000, 2);
  EXPECT_NEAR(times.spread, 0.0577, 0.003);
  EXPECT_NEAR(static_cast<double>(times.mean_ns), 1e6, 5000);
  EXPECT_EQ(times.stretches, 20);
}

// Two standard errors hold the true mean about 19 times of 20.
TEST(PassRecord, TheErrorIsHowFarMeansAreOff) {
  int inside = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const PassTimes times = times_of(100, seed);
    if (std::abs(static_cast<double>(times.mean_ns) / 1e6 - 1) <= 2 * times.error) ++inside;
  }
  EXPECT_GE(inside, 360);
  EXPECT_LE(inside, 396) << "no wider than it has to be";
}

// A machine that is slow for a while: neighbouring passes are alike, and there are fewer
// independent ones than passes.
TEST(PassRecord, DriftWidensTheError) {
  int inside = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    Rng rng(seed);
    PassRecord record;
    double speed = 0;
    for (int i = 0; i < 400; ++i) {
      speed = 0.97 * speed + 0.01 * (rng.uniform() - 0.5);
      record.add(static_cast<int64_t>(1e6 * (1 + speed)) + noisy(rng) / 100 - 10'000);
    }
    const PassTimes times = record.times();
    if (std::abs(static_cast<double>(times.mean_ns) / 1e6 - 1) <= 2 * times.error) ++inside;
  }
  EXPECT_GE(inside, 340);
}

TEST(PassRecord, StallsCountAsThreeMedians) {
  PassRecord record;
  for (int i = 0; i < 9; ++i) record.add(1000);
  record.add(1'000'000);
  EXPECT_EQ(record.times().mean_ns, 1200);
}

TEST(PassRecord, SeesThatTimesStillFall) {
  PassRecord record;
  for (const int64_t ns : {900, 800, 700}) record.add(ns);
  EXPECT_FALSE(record.still_falls()) << "too few to tell";
  for (const int64_t ns : {600, 500, 400}) record.add(ns);
  EXPECT_TRUE(record.still_falls());
  for (const int64_t ns : {405, 398, 401}) record.add(ns);
  EXPECT_FALSE(record.still_falls());
}

}  // namespace
}  // namespace penstock::profile

#include "penstock/plan/gradient_sync.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "penstock/util/error.h"
#include "tests/support/mutate.h"

namespace penstock::plan {
namespace {

using ::testing::HasSubstr;

/// Bytes through the slowest NIC in one direction, as shares of the gradients, when a replica owns
/// `g` and a server `c` of them and a server's NIC is `speed` times as fast.
double slowest(int n, double g, int k, double c, double speed) {
  // A replica sends all but its own share to the owners, and its sum to the others.
  const double replica = 1 - g + (n - 1) * g;
  return k == 0 ? replica : std::max(replica, n * c / speed);
}

TEST(GradientSyncTest, NamesAreReadBack) {
  for (const GradientSync sync : kGradientSyncs) {
    const SyncMethod method(sync, sync == GradientSync::DiLoCo ? 500 : 1,
                            sync == GradientSync::PowerSgd ? 4 : 0);
    EXPECT_EQ(parse_gradient_sync(to_string(method)), method);
  }
  EXPECT_EQ(to_string(SyncMethod(GradientSync::DiLoCo, 500)), "diloco:500");
  EXPECT_EQ(to_string(SyncMethod(GradientSync::PowerSgd, 1, 4)), "powersgd:4");
  for (const char* bad : {"powersgd", "powersgd:", "powersgd:0", "powersgd:4x", "powersgd:2000"}) {
    EXPECT_THAT(tests::message_of<ConfigError>([&] { parse_gradient_sync(bad); }),
                HasSubstr("expected the rank of the sums, 1 to 1024, such as powersgd:4"))
        << bad;
  }
  try {
    parse_gradient_sync("rings");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("'rings'"));
    EXPECT_THAT(error.what(), HasSubstr("ordered, ring, parameter-server, summation"));
  }
}

TEST(GradientSyncTest, SharesAddUpToOne) {
  for (const GradientSync sync : kGradientSyncs) {
    for (int n = 1; n <= 12; ++n) {
      for (int k = 0; k <= 14; ++k) {
        for (const double speed : {0.4, 1.0, 2.5}) {
          const SumShares shares = sum_shares(sync, n, k, speed);
          EXPECT_NEAR(n * shares.replica + k * shares.server, 1, 1e-12) << n << " " << k;
          EXPECT_GE(shares.replica, 0);
          EXPECT_GE(shares.server, 0);
        }
      }
    }
  }
}

TEST(GradientSyncTest, NoOtherSharesOfASummationAreFaster) {
  for (int n = 2; n <= 12; ++n) {
    for (int k = 1; k <= 14; ++k) {
      for (const double speed : {0.5, 1.0, 2.0}) {
        const SumShares shares = sum_shares(GradientSync::Summation, n, k, speed);
        const double best = slowest(n, shares.replica, k, shares.server, speed);
        for (int i = 0; i <= 1000; ++i) {
          const double g = i / 1000.0 / n;
          EXPECT_GE(slowest(n, g, k, (1 - n * g) / k, speed), best - 1e-9) << n << " " << k;
        }
      }
    }
  }
}

TEST(GradientSyncTest, KnownShares) {
  const SumShares four_two = sum_shares(GradientSync::Summation, 4, 2);
  EXPECT_NEAR(four_two.replica, 0.1, 1e-12);
  EXPECT_NEAR(four_two.server, 0.3, 1e-12);
  EXPECT_NEAR(slowest(4, 0.1, 2, 0.3, 1), 1.2, 1e-12);
  const SumShares four_four = sum_shares(GradientSync::Summation, 4, 4);
  EXPECT_EQ(four_four.replica, 0);
  EXPECT_EQ(four_four.server, 0.25);
  EXPECT_EQ(sum_shares(GradientSync::Ordered, 4, 4).replica, 0.25);
  EXPECT_EQ(sum_shares(GradientSync::ParameterServer, 4, 2).server, 0.5);
  EXPECT_EQ(sum_shares(GradientSync::ParameterServer, 4, 0).replica, 0.25);
  // Two replicas: every share gives the same time.
  EXPECT_NEAR(slowest(2, 0.25, 1, 0.5, 1), slowest(2, 0.5, 0, 0, 1), 1e-12);
}

TEST(GradientSyncTest, AChoiceMayBeAutoAndErrorsNameTheOption) {
  EXPECT_EQ(parse_sync_choice("auto"), std::nullopt);
  EXPECT_EQ(parse_sync_choice("ring"), GradientSync::Ring);
  try {
    parse_sync_choice("ringg");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "unknown gradient synchronisation 'ringg', expected one of auto, ordered, "
                 "ring, parameter-server, summation, asynchronous, hierarchical, diloco:H, "
                 "powersgd:R");
  }
  EXPECT_EQ(parse_sync_choice("diloco:1"), SyncMethod(GradientSync::DiLoCo, 1));
  for (const char* text : {"diloco", "diloco:", "diloco:0", "diloco:-1", "diloco:2x", "diloco:1e3",
                           "diloco:1000000001", "diloco:99999999999999999999"}) {
    EXPECT_THAT(tests::message_of<ConfigError>([&] { parse_sync_choice(text); }),
                HasSubstr("expected the steps between two sums, 1 to 1000000000"))
        << text;
  }
  EXPECT_THROW(parse_sync_choice("ring:3"), ConfigError);
}

TEST(GradientSyncTest, SharesOfNothingAreRefused) {
  EXPECT_THROW(sum_shares(GradientSync::Summation, 0, 1), ConfigError);
  EXPECT_THROW(sum_shares(GradientSync::Summation, 2, -1), ConfigError);
  EXPECT_THROW(sum_shares(GradientSync::Summation, 2, 1, 0), ConfigError);
}

TEST(GradientSyncTest, BucketsAreWholeLayersOfAMinimumSize) {
  constexpr int64_t k = kBucketBytes;
  using Ends = std::vector<size_t>;
  EXPECT_EQ(bucket_ends({}), Ends{});
  EXPECT_EQ(bucket_ends({0, 0}), Ends{});
  EXPECT_EQ(bucket_ends({0, k, 5 * k}), (Ends{2, 3}));
  EXPECT_EQ(bucket_ends({k - 1, 0, 1, k - 1, 1}), (Ends{3, 5}));
  // The last bucket may be smaller; layers without weights behind it belong to none.
  EXPECT_EQ(bucket_ends({k, 7, 0, 7, 0}), (Ends{1, 4}));
}

}  // namespace
}  // namespace penstock::plan

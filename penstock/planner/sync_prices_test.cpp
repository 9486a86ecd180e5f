#include "penstock/planner/sync_prices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/plan/sum_wait.h"
#include "penstock/planner/cost/distinct_syncs.h"
#include "penstock/planner/planner.h"
#include "penstock/planner/testing/testing_graphs.h"
#include "penstock/util/error.h"

namespace penstock::planner {
namespace {

using plan::GradientSync;
using ::testing::Contains;
using ::testing::HasSubstr;
using testing_graphs::chain;
using testing_graphs::flat_cluster;
using testing_graphs::two_servers;

/// Nearly all weights are in the last layer.
profile::Profile heavy() { return chain({400'000, 30'000}, {300'000, 8'000'000}, {10'000, 100}); }

plan::Plan summed_by(const cluster::Cluster& cluster, const std::string& sync,
                     const std::string& precision = "float32") {
  PlanOptions options;
  options.strategy = plan::Strategy::DataParallel;
  options.sync = plan::parse_sync_choice(sync);
  options.gradient_precision = plan::parse_sync_precision(precision);
  return *make_plan(heavy(), cluster, options).plan;
}

TEST(SyncPrices, AutoTakesAnotherMethodOnlyWhereItIsFaster) {
  EXPECT_EQ(summed_by(flat_cluster(4, 1'000'000'000), "auto").sync, plan::GradientSync::Ordered);
  // Two replicas in each of two servers: out of a server ordered sends 2 W, a ring 1.5 W, and
  // hierarchical W.
  const plan::Plan hierarchical = summed_by(two_servers(), "auto");
  EXPECT_EQ(hierarchical.sync, plan::GradientSync::Hierarchical);
  EXPECT_THAT(hierarchical.explanation.notes, Contains(HasSubstr("added by hierarchical")));
  const plan::Plan ring = summed_by(two_servers(), "ring");
  EXPECT_GT(hierarchical.prediction.throughput_samples_per_s,
            ring.prediction.throughput_samples_per_s);
  EXPECT_GT(ring.prediction.throughput_samples_per_s,
            summed_by(two_servers(), "ordered").prediction.throughput_samples_per_s);
  // Where machines hold one worker each it is no method of its own, and a ring is fastest.
  cluster::Cluster alone = two_servers();
  alone.levels.insert(alone.levels.begin(), {.name = "machine", .machine = true});
  const plan::Plan around = summed_by(alone, "auto");
  EXPECT_EQ(around.sync, plan::GradientSync::Ring);
  EXPECT_THAT(around.explanation.notes, Contains(HasSubstr("added by ring")));
}

TEST(SyncPrices, PriceEveryMethodAsItsOwnPlan) {
  const cluster::Cluster cluster = two_servers();
  const plan::Plan plan = summed_by(cluster, "ordered");
  const std::vector<SyncPrice> prices = sync_prices(heavy(), cluster, plan, false);
  ASSERT_EQ(prices.size(), 3U);
  for (const SyncPrice& price : prices) {
    const plan::Plan other = summed_by(cluster, std::string(to_string(price.sync)));
    EXPECT_DOUBLE_EQ(price.throughput_samples_per_s, other.prediction.throughput_samples_per_s);
    EXPECT_EQ(price.sync_ns, other.stages[0].sync_ns);
    EXPECT_LT(price.wait_ns, price.sync_ns);
  }
  EXPECT_GT(sync_prices(heavy(), cluster, plan, true)[0].wait_ns, prices[0].wait_ns);
}

TEST(SyncPrices, ArePricesInThePrecisionOfThePlan) {
  const cluster::Cluster cluster = two_servers();
  const auto prices_in = [&](const char* precision) {
    return sync_prices(heavy(), cluster, summed_by(cluster, "ordered", precision), false);
  };
  const std::vector<SyncPrice> wide = prices_in("float32");
  const std::vector<SyncPrice> half = prices_in("bfloat16");
  ASSERT_EQ(half.size(), wide.size());
  for (size_t i = 0; i < wide.size(); ++i) {
    EXPECT_NEAR(static_cast<double>(half[i].sync_ns), static_cast<double>(wide[i].sync_ns) / 2, 10);
    EXPECT_GT(half[i].throughput_samples_per_s, wide[i].throughput_samples_per_s);
    EXPECT_LT(half[i].wait_ns, wide[i].wait_ns);
  }
  EXPECT_THROW(summed_by(cluster, "ordered", "float64"), ConfigError);
  EXPECT_THROW(summed_by(cluster, "asynchronous", "float16"), ConfigError);
  EXPECT_EQ(summed_by(cluster, "auto", "float16").gradient_precision, FloatType::Float16);
}

TEST(SyncPrices, SayHowMachinesAddWhereTheyAreDescribed) {
  cluster::Cluster cluster = two_servers();
  EXPECT_EQ(distinct_syncs(cluster).back(), GradientSync::Hierarchical);
  const plan::Plan plan = summed_by(cluster, "ordered");
  EXPECT_FALSE(sync_prices(heavy(), cluster, plan, false).back().inside);
  cluster.machine = {.switches = 2,
                     .device_bytes_per_s = 10'000'000'000,
                     .switch_bytes_per_s = 10'000'000'000,
                     .cross_bytes_per_s = 1'000'000'000};
  const std::vector<SyncPrice> prices = sync_prices(heavy(), cluster, plan, false);
  ASSERT_TRUE(prices.back().inside);
  EXPECT_EQ(prices.back().inside->way, plan::MachineWay::CpuAssisted);
  EXPECT_FALSE(prices.front().inside);
  // All of one machine: worth a price of its own where its links are known.
  cluster::Cluster one = flat_cluster(4, 1'000'000'000);
  one.levels[0].machine = true;
  EXPECT_EQ(distinct_syncs(one).size(), 2U);
  one.machine = cluster.machine;
  EXPECT_EQ(distinct_syncs(one).size(), 3U);
}

TEST(SyncPrices, OfARoundEachStepHasItsPart) {
  for (const auto& cluster : {two_servers(), flat_cluster(4, 1'000'000'000)}) {
    const plan::Plan ordered = summed_by(cluster, "ordered");
    const plan::Plan rounds = summed_by(cluster, "diloco:50");
    EXPECT_EQ(rounds.sync_every, 50);
    EXPECT_EQ(rounds.config(), ordered.config());
    const plan::Stage& stage = rounds.stages[0];
    EXPECT_TRUE(stage.buckets.empty());
    EXPECT_EQ(stage.sync_ns, (ordered.stages[0].sync_ns + 49) / 50);
    EXPECT_EQ(sum_wait_ns(rounds, stage), stage.sync_ns);
    ASSERT_EQ(rounds.prediction.bytes_per_sample.size(),
              ordered.prediction.bytes_per_sample.size());
    for (size_t l = 0; l < cluster.levels.size(); ++l) {
      EXPECT_NEAR(50 * rounds.prediction.bytes_per_sample[l],
                  ordered.prediction.bytes_per_sample[l], 1e-6);
    }
    EXPECT_GT(rounds.prediction.throughput_samples_per_s,
              ordered.prediction.throughput_samples_per_s);
    const std::vector<SyncPrice> prices = sync_prices(heavy(), cluster, rounds, false);
    EXPECT_EQ(prices.back().sync, plan::GradientSync::DiLoCo);
    EXPECT_EQ(prices.back().sync_ns, stage.sync_ns);
  }
}

TEST(SyncPrices, OfFactorsTheBytesOfFactorsCount) {
  profile::Profile profile = heavy();  // 8,000,000 bytes, and 300,000 of vectors
  profile.costs[1].matrices = {{.rows = 1000, .columns = 2000}, {.rows = 4, .columns = 2}};
  const int64_t bytes = 4 * 4 * 3000 + 300'000;
  for (const auto& cluster : {two_servers(), flat_cluster(4, 1'000'000'000)}) {
    const auto planned = [&](const profile::Profile& of, const char* sync) {
      PlanOptions options;
      options.strategy = plan::Strategy::DataParallel;
      options.sync = plan::parse_sync_choice(sync);
      return *make_plan(of, cluster, options).plan;
    };
    const plan::Plan ordered = planned(profile, "ordered");
    const plan::Plan factors = planned(profile, "powersgd:4");
    EXPECT_EQ(factors.sync_method(), plan::SyncMethod(GradientSync::PowerSgd, 1, 4));
    EXPECT_TRUE(factors.stages[0].buckets.empty());
    const double share = static_cast<double>(bytes) / 8'300'000;
    EXPECT_NEAR(static_cast<double>(factors.stages[0].sync_ns),
                static_cast<double>(ordered.stages[0].sync_ns) * share,
                1e-3 * static_cast<double>(ordered.stages[0].sync_ns));
    EXPECT_EQ(sum_wait_ns(factors, factors.stages[0]), factors.stages[0].sync_ns);
    ASSERT_EQ(factors.prediction.bytes_per_sample.size(),
              ordered.prediction.bytes_per_sample.size());
    for (size_t l = 0; l < cluster.levels.size(); ++l) {
      EXPECT_NEAR(factors.prediction.bytes_per_sample[l],
                  ordered.prediction.bytes_per_sample[l] * share, 1e-6);
    }
    // Weights whose shapes are not known count whole.
    EXPECT_EQ(planned(heavy(), "powersgd:4").prediction.bytes_per_sample,
              ordered.prediction.bytes_per_sample);
  }
}

TEST(SyncPrices, WithoutAStrategyRoundsAreThoseOfDataParallelism) {
  const PlanOptions options{.sync = plan::SyncMethod(plan::GradientSync::DiLoCo, 10)};
  const auto found = make_plan(heavy(), two_servers(), options);
  ASSERT_TRUE(found.plan);
  EXPECT_EQ(found.plan->strategy, plan::Strategy::DataParallel);
}

TEST(SyncPrices, ThePlansOwnMethodIsNeverLeftOut) {
  for (const auto& cluster : {two_servers(), flat_cluster(4, 1'000'000'000)}) {
    for (const GradientSync sync : plan::kGradientSyncs) {
      const plan::Plan plan = summed_by(cluster, to_string(plan::SyncMethod(sync, 50, 4)));
      std::vector<GradientSync> syncs;
      for (const SyncPrice& price : sync_prices(heavy(), cluster, plan, false))
        syncs.push_back(price.sync);
      EXPECT_EQ(std::count(syncs.begin(), syncs.end(), sync), 1) << to_string(sync);
      EXPECT_TRUE(std::is_sorted(syncs.begin(), syncs.end()));
    }
  }
}

TEST(SyncPrices, ServersAddTheirMethodsAndThreadsHaveNone) {
  cluster::Cluster served = flat_cluster(4, 1'000'000'000);
  served.cpu_machines = {.count = 4, .bandwidth_bytes_per_s = 1'000'000'000};
  const auto prices = sync_prices(heavy(), served, summed_by(served, "ordered"), false);
  ASSERT_EQ(prices.size(), 4U);
  EXPECT_LT(prices[3].sync_ns, prices[0].sync_ns);  // W/B and 1.5 W/B
  const cluster::Cluster threads = flat_cluster(4, 1'000'000'000, 0, true);
  EXPECT_TRUE(sync_prices(heavy(), threads, summed_by(threads, "ordered"), false).empty());
}

}  // namespace
}  // namespace penstock::planner

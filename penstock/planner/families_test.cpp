#include "penstock/planner/families.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "penstock/planner/hybrid.h"
#include "penstock/planner/interleaved.h"
#include "penstock/planner/layer_runs.h"
#include "penstock/planner/testing_graphs.h"

namespace penstock::planner {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing_graphs::between;
using testing_graphs::chain;
using testing_graphs::flat_cluster;

profile::Profile vgg_like() { return chain({400'000, 400'000, 30'000}, {1000, 1000, 1'000'000}, {10'000, 10'000, 100}); }

plan::Plan compared(const profile::Profile& profile, const cluster::Cluster& cluster, PlanOptions options = {}) {
  options.compare = true;
  PlanResult result = make_plan(profile, cluster, options);
  EXPECT_TRUE(result.plan.has_value()) << result.reason;
  plan::validate(*result.plan);
  return *result.plan;
}

const plan::Alternative& row(const plan::Plan& plan, const std::string& strategy) {
  for (const plan::Alternative& alternative : plan.alternatives) {
    if (alternative.strategy == strategy) return alternative;
  }
  throw std::runtime_error("no row for " + strategy);
}

TEST(Compare, ListsEveryFamilyWithAReason) {
  const plan::Plan plan = compared(vgg_like(), flat_cluster(4, 1'000'000'000));
  std::vector<std::string> names;
  for (const plan::Alternative& alternative : plan.alternatives) {
    names.push_back(alternative.strategy);
    EXPECT_FALSE(alternative.note.empty()) << alternative.strategy;
    EXPECT_TRUE(alternative.throughput_samples_per_s == 0 || alternative.bytes_per_sample.size() == 1) << alternative.strategy;
  }
  EXPECT_EQ(names, all_families());
  EXPECT_THAT(row(plan, "1f1b").note, HasSubstr("The winner"));
  EXPECT_EQ(row(plan, "1f1b").throughput_samples_per_s, plan.throughput_samples_per_s);
  EXPECT_THAT(row(plan, "dp").note, HasSubstr("gradient synchronisation"));
  EXPECT_THAT(row(plan, "interleaved").note, HasSubstr("two chunks"));
}

TEST(Compare, SaysWhenDataParallelismIsBest) {
  const plan::Plan plan = compared(vgg_like(), flat_cluster(4, 1'000'000'000'000));
  EXPECT_EQ(plan.strategy, "dp");
  EXPECT_THAT(row(plan, "dp").note, HasSubstr("data parallelism is best"));
}

TEST(Compare, ChangesNothingOfThePlanItself) {
  plan::Plan with = compared(vgg_like(), flat_cluster(4, 1'000'000'000));
  plan::Plan without = *make_plan(vgg_like(), flat_cluster(4, 1'000'000'000), {}).plan;
  with.alternatives = without.alternatives = {};
  with.notes = without.notes = {};
  EXPECT_EQ(with, without);
}

TEST(Compare, FamiliesThatDoNotFitSayWhatTheyNeed) {
  PlanOptions options;
  options.memory_limit_bytes = 45'000;
  const plan::Plan plan = compared(chain({100, 100}, {10'000, 10'000}, {10, 10}), flat_cluster(2, 1'000'000'000), options);
  EXPECT_EQ(row(plan, "dp").throughput_samples_per_s, 0);
  EXPECT_THAT(row(plan, "dp").note, HasSubstr("no dp plan for 2 workers fits into"));
}

TEST(Compare, TwoBufferedNeedsStepsAsLongAsThePipeline) {
  PlanOptions options;
  options.mini_batch = 1;
  const plan::Plan plan = compared(chain({100, 100, 100}, {1, 1, 1}, {1, 1, 1}), flat_cluster(3, 1'000'000'000'000), options);
  EXPECT_EQ(row(plan, "2bw").throughput_samples_per_s, 0);
  EXPECT_FALSE(row(plan, "2bw").note.empty());
}

TEST(Compare, MemoryAndLatencyAreThoseOfThePlanByName) {
  const plan::Plan plan = compared(vgg_like(), flat_cluster(3, 1'000'000'000));
  for (const plan::Alternative& alternative : plan.alternatives) {
    if (alternative.strategy == "hybrid" || alternative.strategy == "interleaved") continue;
    PlanOptions options;
    options.strategy = alternative.strategy;
    const plan::Plan own = *make_plan(vgg_like(), flat_cluster(3, 1'000'000'000), options).plan;
    if (own.config() != alternative.config) continue;
    EXPECT_EQ(own.throughput_samples_per_s, alternative.throughput_samples_per_s) << alternative.strategy;
    EXPECT_EQ(own.latency_ns, alternative.latency_ns) << alternative.strategy;
    EXPECT_EQ(own.idle_share, alternative.idle_share) << alternative.strategy;
  }
}

TEST(LayerRuns, BalancedIsTheLeastPossibleMaximum) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Rng rng(seed);
    const int n = static_cast<int>(between(rng, 1, 8));
    const profile::Profile profile = testing_graphs::random_profile(rng, n, 0.2);
    const cluster::Cluster cluster = flat_cluster(2, 1);
    const PlanOptions options;
    const Context context(profile, cluster, options);
    const LayerRuns runs(context);
    const int begin = static_cast<int>(between(rng, 0, n - 1));
    const int parts = static_cast<int>(between(rng, 1, n - begin));
    const std::vector<int> ends = runs.balanced(begin, parts);
    ASSERT_EQ(static_cast<int>(ends.size()), parts) << "seed " << seed;
    ASSERT_EQ(ends.back(), n);
    const auto largest = [&](const std::vector<int>& cuts) {
      int64_t most = 0;
      int from = begin;
      for (const int end : cuts) {
        EXPECT_GT(end, from) << "seed " << seed;
        most = std::max(most, runs.compute_ns(from, end));
        from = end;
      }
      return most;
    };
    int64_t best = INT64_MAX;
    for (unsigned mask = 0; mask < 1u << (n - begin - 1); ++mask) {
      std::vector<int> cuts;
      for (int i = 0; i < n - begin - 1; ++i) {
        if ((mask >> i & 1) != 0) cuts.push_back(begin + i + 1);
      }
      cuts.push_back(n);
      if (static_cast<int>(cuts.size()) == parts) best = std::min(best, largest(cuts));
    }
    EXPECT_EQ(largest(ends), best) << "seed " << seed;
  }
}

TEST(LayerRuns, CutBytesAreThoseOfTheSplit) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    Rng rng(seed);
    const profile::Profile profile = testing_graphs::random_profile(rng, 6, 0.3);
    const cluster::Cluster cluster = flat_cluster(2, 1);
    const PlanOptions options;
    const Context context(profile, cluster, options);
    const CutStates states(profile.graph, context.layers);
    const LayerRuns runs(context);
    for (int s = 0; s < states.size(); ++s) {
      int count = 0;
      while (count < 6 && states.contains(s, LayerId{count})) ++count;
      bool is_prefix = true;
      for (int l = count; l < 6; ++l) is_prefix = is_prefix && !states.contains(s, LayerId{l});
      if (is_prefix) {
        EXPECT_EQ(runs.cut_bytes(count), states.cut_bytes(s)) << "seed " << seed;
      }
    }
  }
}

TEST(Hybrid, ReplicatesTheConvolutionsAndCutsOffTheDenseLayers) {
  const profile::Profile profile = vgg_like();
  const cluster::Cluster cluster = flat_cluster(8, 1'000'000'000);
  const PlanOptions options;
  const Context context(profile, cluster, options);
  const std::vector<Split> splits = hybrid_splits(context, 3);
  ASSERT_FALSE(splits.empty());
  EXPECT_THAT(splits[0].replicas(), ElementsAre(7, 1));
  EXPECT_EQ(splits[0].stages[1], std::vector<LayerId>{LayerId{2}});
  const plan::Plan plan = compared(profile, cluster);
  EXPECT_EQ(row(plan, "hybrid").config, "7-1");
  EXPECT_EQ(row(plan, "hybrid").micro_batches, 7);
  EXPECT_EQ(row(plan, "hybrid").weights, "flush");
  EXPECT_LT(row(plan, "hybrid").throughput_samples_per_s, plan.throughput_samples_per_s);
}

TEST(Hybrid, NeedsTwoWorkersAndTwoLayers) {
  const PlanOptions options;
  const cluster::Cluster one = flat_cluster(1, 1);
  const cluster::Cluster two = flat_cluster(2, 1);
  const profile::Profile layers = vgg_like();
  const profile::Profile layer = chain({1}, {1}, {1});
  EXPECT_TRUE(hybrid_splits(Context(layers, one, options), 3).empty());
  EXPECT_TRUE(hybrid_splits(Context(layer, two, options), 3).empty());
}

TEST(Interleaved, FollowsItsFormula) {
  const profile::Profile profile = chain(std::vector<int64_t>(8, 1000), std::vector<int64_t>(8, 10), std::vector<int64_t>(8, 5));
  const cluster::Cluster cluster = flat_cluster(2, 1'000'000'000'000, 7);
  const PlanOptions options;
  const InterleavedResult result = interleaved(Context(profile, cluster, options));
  ASSERT_TRUE(result.best.has_value()) << result.reason;
  // v = 4: each worker computes 4 layers, 12,000 ns; a step has 4 rounds of 2; one boundary fills: 2 * 5 bytes take 0.01 ns, latency 7.
  EXPECT_EQ(result.best->config, "2x4 chunks");
  EXPECT_EQ(result.best->micro_batches, 8);
  EXPECT_NEAR(result.best->throughput_samples_per_s, 8e9 / (8 * 12'000 + 12'000 / 4.0 + 7.01), 1e-3);
  EXPECT_EQ(result.best->memory_bytes, 3 * 40 + (3 * 2 + 2 + 1) * 5);
  EXPECT_NEAR(result.best->bytes_per_sample[0], 7 * 2 * 5, 1e-9);
}

TEST(Interleaved, KeepsTheMemoryLimitAndTheMiniBatch) {
  const profile::Profile profile = chain(std::vector<int64_t>(8, 1000), std::vector<int64_t>(8, 10), std::vector<int64_t>(8, 5));
  const cluster::Cluster cluster = flat_cluster(2, 1'000'000'000'000);
  PlanOptions options;
  options.memory_limit_bytes = 100;
  EXPECT_THAT(interleaved(Context(profile, cluster, options)).reason, HasSubstr("it needs"));
  options = {};
  options.mini_batch = 1;
  EXPECT_THAT(interleaved(Context(profile, cluster, options)).reason, HasSubstr("multiple of 2"));
  options.mini_batch = 7;
  EXPECT_EQ(interleaved(Context(profile, cluster, options)).best->micro_batches, 6);
}

}  // namespace
}  // namespace penstock::planner

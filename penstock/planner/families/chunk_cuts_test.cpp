#include "penstock/planner/families/chunk_cuts.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "penstock/planner/testing/testing_graphs.h"

namespace penstock::planner {
namespace {

using testing_graphs::between;
using testing_graphs::flat_cluster;

struct ChunkCase {
  profile::Profile profile;
  cluster::Cluster cluster = flat_cluster(2, 1);
  PlanOptions options;
  std::vector<double> speeds;
  std::vector<int> v;  ///< worker of each chunk of a V

  ChunkCase(uint64_t seed, int most_layers) {
    Rng rng(seed);
    std::vector<int64_t> times;
    const auto workers = static_cast<int>(between(rng, 1, 3));
    for (int64_t l = between(rng, 2 * workers, most_layers); l > 0; --l)
      times.push_back(rng.below(5) == 0 ? 0 : between(rng, 1, 50));
    profile = testing_graphs::chain(times, std::vector<int64_t>(times.size(), 1),
                                    std::vector<int64_t>(times.size(), 1));
    for (int w = 0; w < workers; ++w) speeds.push_back(rng.below(3) == 0 ? 0.5 : 1.0);
    for (int c = 0; c < 2 * workers; ++c) v.push_back(std::min(c, 2 * workers - 1 - c));
  }
};

// Calls visit(ends) for every way to cut `layers` into `parts` runs.
template <class Visit>
void for_each_cut(int layers, int parts, const Visit& visit) {
  for (unsigned mask = 0; mask < 1u << (layers - 1); ++mask) {
    std::vector<int> ends;
    for (int i = 0; i < layers - 1; ++i) {
      if ((mask >> i & 1) != 0) ends.push_back(i + 1);
    }
    ends.push_back(layers);
    if (static_cast<int>(ends.size()) == parts) visit(ends);
  }
}

TEST(BestFold, IsWithinItsBoundOfBruteForce) {
  int optimal = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const ChunkCase c(seed, 11);
    const Context context(c.profile, c.cluster, c.options);
    const LayerRuns runs(context);
    const Fold fold = best_fold(runs, c.speeds);
    double best = 1e300;
    for_each_cut(runs.num_layers(), static_cast<int>(c.v.size()),
                 [&](const std::vector<int>& ends) {
                   best = std::min(best, slowest_worker_ns(runs, ends, c.v, c.speeds));
                 });
    EXPECT_LE(fold.bound_ns, best * (1 + 1e-9)) << "seed " << seed;
    if (fold.ends.empty()) continue;
    ASSERT_EQ(fold.ends.size(), c.v.size()) << "seed " << seed;
    EXPECT_EQ(fold.ends.back(), runs.num_layers());
    EXPECT_TRUE(std::adjacent_find(fold.ends.begin(), fold.ends.end(), std::greater_equal<>()) ==
                fold.ends.end())
        << "seed " << seed;
    EXPECT_GT(fold.ends.front(), 0);
    EXPECT_DOUBLE_EQ(fold.slowest_ns, slowest_worker_ns(runs, fold.ends, c.v, c.speeds));
    EXPECT_GE(fold.slowest_ns, best * (1 - 1e-9)) << "seed " << seed;
    optimal += fold.slowest_ns <= best * 1.002 ? 1 : 0;
  }
  // Where chunks would be empty otherwise, the search may miss the optimum; rarely.
  EXPECT_GT(optimal, 270);
}

TEST(BestFold, FindsTheFoldThatStraightCutsMiss) {
  // Two workers: 9 and 1 outside, 5 and 5 inside. Straight cuts of equal length would leave one
  // with 14.
  const profile::Profile profile = testing_graphs::chain({9, 5, 5, 1}, {1, 1, 1, 1}, {1, 1, 1, 1});
  const cluster::Cluster cluster = flat_cluster(2, 1);
  const PlanOptions options;
  const Context context(profile, cluster, options);
  const Fold fold = best_fold(LayerRuns(context), {1.0, 1.0});
  EXPECT_EQ(fold.ends, (std::vector<int>{1, 2, 3, 4}));
  EXPECT_EQ(fold.slowest_ns, 30);
}

TEST(Improved, NeverMakesTheSlowestWorkerSlowerAndKeepsForbiddenCutsOut) {
  int faster = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const ChunkCase c(seed, 30);
    const Context context(c.profile, c.cluster, c.options);
    const LayerRuns runs(context);
    const auto parts = static_cast<int>(c.v.size());
    const std::vector<int> straight = runs.balanced(0, parts);
    std::vector<int> loop;
    for (int k = 0; k < parts; ++k) loop.push_back(k % static_cast<int>(c.speeds.size()));
    for (const std::vector<int>& workers : {c.v, loop}) {
      const std::vector<int> ends = improved(runs, straight, workers, c.speeds,
                                             [](int position) { return position % 3 != 0; });
      ASSERT_EQ(ends.size(), straight.size());
      const double before = slowest_worker_ns(runs, straight, workers, c.speeds);
      const double after = slowest_worker_ns(runs, ends, workers, c.speeds);
      EXPECT_LE(after, before) << "seed " << seed;
      faster += after < before ? 1 : 0;
      for (size_t k = 0; k + 1 < ends.size(); ++k) {
        EXPECT_LT(ends[k], ends[k + 1]) << "seed " << seed;
        EXPECT_TRUE(ends[k] == straight[k] || ends[k] % 3 != 0) << "seed " << seed;
      }
    }
  }
  EXPECT_GT(faster, 50);
}

TEST(BestFold, IsQuickForLongModels) {
  const profile::Profile profile = testing_graphs::chain(
      std::vector<int64_t>(5000, 7), std::vector<int64_t>(5000, 1), std::vector<int64_t>(5000, 1));
  const cluster::Cluster cluster = flat_cluster(2, 1);
  const PlanOptions options;
  const Context context(profile, cluster, options);
  const Fold fold = best_fold(LayerRuns(context), std::vector<double>(16, 1.0));
  EXPECT_EQ(fold.bound_ns, 0);
  EXPECT_LT(fold.slowest_ns, 1.1 * 5000 * 21 / 16);
}

}  // namespace
}  // namespace penstock::planner

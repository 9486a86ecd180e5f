#include "penstock/planner/cuts/cut_lattice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "penstock/planner/cuts/layer_orders.h"
#include "penstock/planner/testing/testing_graphs.h"
#include "penstock/planner/testing/testing_models.h"

namespace penstock::planner {
namespace {

using testing_graphs::planned_layers;
using Sets = std::set<std::vector<uint64_t>>;

constexpr int64_t kNodes = 1'000'000;
constexpr CutLattice::Limits kAll{.sets = 1'000'000, .steps = 100'000'000};

Sets sets_of(const LayerSets& list) {
  Sets sets;
  for (size_t s = 0; s < list.size(); ++s) sets.insert({list[s].begin(), list[s].end()});
  EXPECT_EQ(sets.size(), list.size()) << "a downset was listed twice";
  return sets;
}

// The oracle: every downset that passes, by another enumeration.
Sets passing(const CutStates& states, int64_t most_bytes, int64_t least_ns, int64_t most_ns) {
  Sets sets;
  for (int s = 0; s < states.size(); ++s) {
    const int64_t compute_ns = states.sums(s).compute_ns;
    if (states.cut_bytes(s) <= most_bytes && least_ns <= compute_ns && compute_ns <= most_ns) {
      sets.insert(states.layers(s));
    }
  }
  return sets;
}

CutLattice::Filter filter_of(int64_t most_bytes, int64_t least_ns, int64_t most_ns) {
  return {.most_bytes = most_bytes,
          .wanted_compute = [least_ns, most_ns](int64_t least, int64_t most) {
            return least <= most_ns && most >= least_ns;
          }};
}

TEST(CutLattice, ListsExactlyTheDownsetsThatPass) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Rng rng(seed);
    const auto profile =
        testing_graphs::random_profile(rng, static_cast<int>(1 + rng.below(14)), 0.15);
    const auto layers = planned_layers(profile);
    const CutStates states(profile.graph, layers);
    const auto lattice = CutLattice::build(profile.graph, layers, kNodes);
    ASSERT_TRUE(lattice) << "seed " << seed;
    EXPECT_EQ(lattice->count(), states.size()) << "seed " << seed;
    const int64_t total_ns = states.sums(states.full()).compute_ns;
    for (const int64_t most_bytes :
         {int64_t{-1}, int64_t{0}, int64_t{30}, int64_t{80}, INT64_MAX}) {
      const int64_t least_ns = testing_graphs::between(rng, 0, total_ns);
      const int64_t most_ns = testing_graphs::between(rng, least_ns, total_ns);
      LayerSets listed(profile.graph.num_layers());
      ASSERT_TRUE(lattice->list(filter_of(most_bytes, least_ns, most_ns), kAll, listed));
      EXPECT_EQ(sets_of(listed), passing(states, most_bytes, least_ns, most_ns))
          << "seed " << seed << " bytes " << most_bytes;
    }
  }
}

TEST(CutLattice, FindsTheCheapestCut) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    Rng rng(seed);
    const auto profile =
        testing_graphs::random_profile(rng, static_cast<int>(2 + rng.below(12)), 0.2);
    const auto layers = planned_layers(profile);
    const CutStates states(profile.graph, layers);
    const auto lattice = CutLattice::build(profile.graph, layers, kNodes);
    ASSERT_TRUE(lattice);
    const int64_t total_ns = states.sums(states.full()).compute_ns;
    int64_t least_bytes = INT64_MAX;
    for (int s = 1; s < states.full(); ++s) {
      if (states.sums(s).compute_ns > 0 && states.sums(s).compute_ns < total_ns)
        least_bytes = std::min(least_bytes, states.cut_bytes(s));
    }
    const auto found = lattice->cheapest(filter_of(INT64_MAX, 1, total_ns - 1), 1'000'000);
    ASSERT_EQ(found.empty(), least_bytes == INT64_MAX) << "seed " << seed;
    if (found.empty()) continue;
    LayerSets one(profile.graph.num_layers());
    one.add(found);
    EXPECT_EQ(CutStates(profile.graph, layers, one).cut_bytes(1), least_bytes) << "seed " << seed;
  }
}

TEST(CutLattice, CountsDownsetsThatNobodyCouldList) {
  Rng rng(1);
  const auto profile = testing_models::branched(rng, 482, 10, 0);
  const auto lattice = CutLattice::build(profile.graph, planned_layers(profile), kNodes);
  ASSERT_TRUE(lattice);
  // 10 chains of 48 between source and sink: 49^10 with the source, without the sink, and the empty
  // and the full set.
  EXPECT_DOUBLE_EQ(lattice->count(), std::pow(49.0, 10) + 2);
}

TEST(CutLattice, InceptionHasTheDownsetsOfItsBlocks) {
  const auto profile = testing_models::inception_v3(64, false);
  const auto lattice = CutLattice::build(profile.graph, planned_layers(profile), kNodes);
  ASSERT_TRUE(lattice);
  // Per block the product over its branches of (layers + 1); each further layer of the trunk adds
  // one. A split branch of a C block: the layers before it, 4 x 4 within, and the join.
  const double a = 4 * 7 * 10 * 5;
  const double b = 4 * 10 * 16 * 5;
  const double c = 4 * (3 + 16 + 1) * (6 + 16 + 1) * 5;
  const double reductions = 4 * 10 * 2 + 7 * 13 * 2;
  // the empty set and the stem but its last layer; the last join, pool, dropout, flatten and fc
  const double trunk = 17 + 5;
  EXPECT_EQ(profile.graph.num_layers(), 314);
  EXPECT_EQ(lattice->count(), 3 * a + 4 * b + 2 * c + reductions + trunk);
}

TEST(CutLattice, GivesUpWithinItsLimits) {
  Rng rng(2);
  const auto profile = testing_models::branched(rng, 200, 10, 0.1);
  const auto layers = planned_layers(profile);
  EXPECT_FALSE(CutLattice::build(profile.graph, layers, 1'000));
  const auto lattice = CutLattice::build(profile.graph, layers, kNodes);
  ASSERT_TRUE(lattice);
  LayerSets few(profile.graph.num_layers());
  EXPECT_FALSE(lattice->list({}, {.sets = 10, .steps = 1'000'000}, few));
  EXPECT_EQ(few.size(), 10);
  LayerSets none(profile.graph.num_layers());
  EXPECT_FALSE(lattice->list({}, {.sets = 10, .steps = 100}, none));
}

TEST(LayerOrders, AreTopological) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    Rng rng(seed);
    const auto profile =
        testing_graphs::random_profile(rng, static_cast<int>(1 + rng.below(40)), 0.1);
    const auto layers = planned_layers(profile);
    for (const auto& order : {narrow_order(profile.graph), balanced_order(profile.graph, layers),
                              least_cut_order(profile.graph, layers)}) {
      ASSERT_EQ(order.size(), layers.size());
      std::vector<bool> done(layers.size(), false);
      for (const int layer : order) {
        for (const LayerId p : profile.graph.predecessors(LayerId{layer}))
          EXPECT_TRUE(done[p.index()]) << "seed " << seed;
        EXPECT_FALSE(done[static_cast<size_t>(layer)]);
        done[static_cast<size_t>(layer)] = true;
      }
    }
  }
}

}  // namespace
}  // namespace penstock::planner

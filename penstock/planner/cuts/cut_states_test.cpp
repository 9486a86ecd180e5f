#include "penstock/planner/cuts/cut_states.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "penstock/planner/planner.h"
#include "penstock/planner/testing/testing_graphs.h"
#include "penstock/util/error.h"

namespace penstock::planner {
namespace {

using testing::HasSubstr;

CutStates states_of(const profile::Profile& profile) {
  return {profile.graph, testing_graphs::planned_layers(profile)};
}

// `layers` layers side by side between one source and one sink.
profile::Profile fan(int layers) {
  std::vector<graph::LayerNode> nodes = {{.name = "source",
                                          .kind = "k",
                                          .inputs = {graph::ValueRef::model_input(0)},
                                          .num_outputs = 1}};
  graph::LayerNode sink{.name = "sink", .kind = "k", .inputs = {}, .num_outputs = 1};
  for (int l = 0; l < layers; ++l) {
    nodes.push_back({.name = fmt::format("b{}", l),
                     .kind = "k",
                     .inputs = {{LayerId{0}, 0}},
                     .num_outputs = 1});
    sink.inputs.push_back({LayerId{l + 1}, 0});
  }
  nodes.push_back(sink);
  profile::Profile profile;
  profile.costs.assign(nodes.size(), {.forward_ns = 1, .backward_ns = 1, .output_bytes = {10}});
  profile.graph = graph::ModelGraph::build(1, std::move(nodes), {{LayerId{layers + 1}, 0}});
  return profile;
}

std::string refusal(const profile::Profile& profile) {
  try {
    states_of(profile);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(CutStates, AChainHasOneStatePerPrefix) {
  const CutStates states = states_of(testing_graphs::chain({1, 2, 3}, {10, 20, 30}, {5, 6, 7}));
  ASSERT_EQ(states.size(), 4);
  EXPECT_EQ(states.cut_bytes(0), 0);
  EXPECT_EQ(states.cut_bytes(1), 5);
  EXPECT_EQ(states.cut_bytes(2), 6);
  EXPECT_EQ(states.cut_bytes(3), 0);
  EXPECT_EQ(states.segment(1, 3).compute_ns, 3 * (2 + 3));
  EXPECT_EQ(states.segment(1, 3).weight_bytes, 50);
  EXPECT_TRUE(states.nested(1, 2));
  EXPECT_FALSE(states.nested(2, 1));
  EXPECT_FALSE(states.nested(2, 2));
}

TEST(CutStates, BranchesCanBeCutIndependently) {
  const CutStates states = states_of(fan(2));
  // {}, {source}, {source, b0}, {source, b1}, all but the sink, all.
  ASSERT_EQ(states.size(), 6);
  EXPECT_FALSE(states.nested(2, 3));
  EXPECT_FALSE(states.nested(3, 2));
  EXPECT_EQ(states.cut_bytes(1), 10);  // one value, though two layers read it
  EXPECT_EQ(states.cut_bytes(2), 20);
  EXPECT_EQ(states.cut_bytes(4), 20);
}

TEST(CutStates, AreExactlyTheDownsets) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Rng rng(seed);
    const auto profile =
        testing_graphs::random_profile(rng, static_cast<int>(1 + rng.below(9)), 0.2);
    const CutStates states = states_of(profile);
    const int n = profile.graph.num_layers();
    int downsets = 0;
    for (uint32_t mask = 0; mask < uint32_t{1} << n; ++mask) {
      bool closed = true;
      for (int l = 0; l < n; ++l) {
        for (const LayerId p : profile.graph.predecessors(LayerId{l}))
          closed = closed && ((mask >> l & 1) == 0 || (mask >> p.value & 1) != 0);
      }
      downsets += closed ? 1 : 0;
    }
    ASSERT_EQ(states.size(), downsets) << "seed " << seed;
    std::set<uint32_t> seen;
    for (int s = 0; s < states.size(); ++s) {
      uint32_t mask = 0;
      for (int l = 0; l < n; ++l) mask |= uint32_t{states.contains(s, LayerId{l})} << l;
      EXPECT_TRUE(seen.insert(mask).second) << "seed " << seed;
    }
  }
}

TEST(CutStates, OfChosenDownsetsAreWhatTheyAreAmongAll) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Rng rng(seed);
    const auto profile =
        testing_graphs::random_profile(rng, static_cast<int>(1 + rng.below(12)), 0.15);
    const auto layers = testing_graphs::planned_layers(profile);
    const CutStates all(profile.graph, layers);
    LayerSets chosen(profile.graph.num_layers());
    std::vector<int> expected = {0};
    for (int s = 1; s < all.full(); ++s) {
      if (rng.uniform() < 0.5) expected.push_back(s);
    }
    expected.push_back(all.full());
    for (int k = 0; k < 2; ++k) {
      for (size_t s = expected.size(); s-- > 0;) chosen.add(all.layers(expected[s]));
    }
    const CutStates states(profile.graph, layers, chosen);
    ASSERT_EQ(states.size(), static_cast<int>(expected.size())) << "seed " << seed;
    for (int s = 0; s < states.size(); ++s) {
      const int same = expected[static_cast<size_t>(s)];
      EXPECT_TRUE(std::ranges::equal(states.layers(s), all.layers(same))) << "seed " << seed;
      EXPECT_EQ(states.cut_bytes(s), all.cut_bytes(same)) << "seed " << seed;
      EXPECT_EQ(states.sums(s).forward_ns, all.sums(same).forward_ns) << "seed " << seed;
      EXPECT_EQ(states.sums(s).stash_bytes, all.sums(same).stash_bytes) << "seed " << seed;
    }
  }
}

TEST(CutStates, JoinLayersThatNoStateSeparates) {
  const std::vector<int64_t> ones(200, 1);
  const auto profile = testing_graphs::chain(ones, ones, ones);
  const auto layers = testing_graphs::planned_layers(profile);
  const CutStates all(profile.graph, layers);
  EXPECT_EQ(all.num_classes(), 200);
  LayerSets chosen(200);
  for (const int state : {150, 70, 3}) chosen.add(all.layers(state));
  const CutStates states(profile.graph, layers, chosen);
  EXPECT_EQ(states.num_layers(), 200);
  EXPECT_EQ(states.num_classes(), 4);
  for (int a = 0; a < states.size(); ++a) {
    for (int b = 0; b < states.size(); ++b) EXPECT_EQ(states.nested(a, b), a < b);
  }
  EXPECT_TRUE(states.contains(2, LayerId{69}));
  EXPECT_FALSE(states.contains(2, LayerId{70}));
  EXPECT_EQ(states.layers(2), all.layers(70));
}

TEST(CutStates, AreListedOnlyUpToALimit) {
  const auto profile = fan(4);
  const auto layers = testing_graphs::planned_layers(profile);
  EXPECT_FALSE(CutStates::all(profile.graph, layers, 17));
  ASSERT_TRUE(CutStates::all(profile.graph, layers, 18));
  EXPECT_EQ(CutStates::all(profile.graph, layers, 18)->size(), 18);
}

TEST(CutStates, SegmentsThatRecomputeRunForwardTwice) {
  const CutStates states = states_of(testing_graphs::chain({1, 2, 3}, {10, 20, 30}, {5, 6, 7}));
  EXPECT_EQ(states.segment(1, 3, false).compute_ns, 15);
  EXPECT_EQ(states.segment(1, 3, true).compute_ns, 20);
}

TEST(CutStates, OrderPutsSubsetsFirst) {
  Rng rng(7);
  const auto profile = testing_graphs::random_profile(rng, 80, 0.02);
  const CutStates states = states_of(testing_graphs::random_profile(rng, 12, 0.1));
  for (int a = 0; a < states.size(); ++a) {
    for (int b = 0; b < a; ++b) EXPECT_FALSE(states.nested(a, b));
    EXPECT_EQ(states.nested(0, a), a != 0);
    EXPECT_EQ(states.nested(a, states.full()), a != states.full());
  }
}

TEST(CutStates, LongChainsNestAcrossWords) {
  const std::vector<int64_t> ones(300, 1);
  const CutStates states = states_of(testing_graphs::chain(ones, ones, ones));
  ASSERT_EQ(states.size(), 301);
  for (int a = 0; a < states.size(); ++a) {
    for (int b = 0; b < states.size(); ++b) ASSERT_EQ(states.nested(a, b), a < b);
  }
}

TEST(CutStates, RefusesTooManyStatesWithoutListingThem) {
  EXPECT_THAT(refusal(fan(1000)), HasSubstr("more than 20000 cut states"));
  EXPECT_THAT(refusal(fan(1000)), HasSubstr("'b0' and 'b1'"));
  const std::vector<int64_t> many(static_cast<size_t>(kMaxCutStates), 1);
  EXPECT_THAT(refusal(testing_graphs::chain(many, many, many)), HasSubstr("20000 layers"));
}

TEST(CutStates, RefusesTwoLongChainsSideBySide) {
  profile::Profile profile;
  std::vector<graph::LayerNode> nodes;
  for (int l = 0; l < 1000; ++l) {
    const graph::ValueRef input =
        l < 2 ? graph::ValueRef::model_input(0) : graph::ValueRef{LayerId{l - 2}, 0};
    nodes.push_back(
        {.name = fmt::format("l{}", l), .kind = "k", .inputs = {input}, .num_outputs = 1});
  }
  profile.costs.assign(nodes.size(), {.output_bytes = {1}});
  profile.graph = graph::ModelGraph::build(1, std::move(nodes), {{LayerId{999}, 0}});
  EXPECT_THAT(refusal(profile), HasSubstr("more than 20000 cut states"));
}

TEST(CutStates, RefusesTotalsThatOverflow) {
  const int64_t huge = int64_t{1} << 61;
  EXPECT_THAT(refusal(testing_graphs::chain({1, 1, 1}, {huge, huge, huge}, {1, 1, 1})),
              HasSubstr("sizes (bytes) add up to more than 2^62"));
}

}  // namespace
}  // namespace penstock::planner

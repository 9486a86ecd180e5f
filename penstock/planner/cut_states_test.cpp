#include "penstock/planner/cut_states.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/planner/planner.h"
#include "penstock/planner/testing_graphs.h"
#include "penstock/util/error.h"

namespace penstock::planner {
namespace {

using testing::HasSubstr;

CutStates states_of(const profile::Profile& profile) { return {profile.graph, testing_graphs::planned_layers(profile)}; }

// `layers` layers side by side between one source and one sink.
profile::Profile fan(int layers) {
  std::vector<graph::LayerNode> nodes = {{.name = "source", .kind = "k", .inputs = {graph::ValueRef::model_input(0)}, .num_outputs = 1}};
  graph::LayerNode sink{.name = "sink", .kind = "k", .inputs = {}, .num_outputs = 1};
  for (int l = 0; l < layers; ++l) {
    nodes.push_back({.name = fmt::format("b{}", l), .kind = "k", .inputs = {{LayerId{0}, 0}}, .num_outputs = 1});
    sink.inputs.push_back({LayerId{l + 1}, 0});
  }
  nodes.push_back(sink);
  profile::Profile profile;
  profile.costs.assign(nodes.size(), {.forward_ns = 1, .backward_ns = 1, .output_bytes = {10}});
  profile.graph = graph::ModelGraph::build(1, std::move(nodes), {{LayerId{layers + 1}, 0}});
  return profile;
}

std::string failure(const profile::Profile& profile) {
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
    const auto profile = testing_graphs::random_profile(rng, static_cast<int>(1 + rng.below(9)), 0.2);
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
  EXPECT_THAT(failure(fan(1000)), HasSubstr("more than 20000 cut states"));
  EXPECT_THAT(failure(fan(1000)), HasSubstr("'b0' and 'b1'"));
  const std::vector<int64_t> many(static_cast<size_t>(kMaxCutStates), 1);
  EXPECT_THAT(failure(testing_graphs::chain(many, many, many)), HasSubstr("20000 layers"));
}

TEST(CutStates, RefusesTwoLongChainsSideBySide) {
  profile::Profile profile;
  std::vector<graph::LayerNode> nodes;
  for (int l = 0; l < 1000; ++l) {
    const graph::ValueRef input = l < 2 ? graph::ValueRef::model_input(0) : graph::ValueRef{LayerId{l - 2}, 0};
    nodes.push_back({.name = fmt::format("l{}", l), .kind = "k", .inputs = {input}, .num_outputs = 1});
  }
  profile.costs.assign(nodes.size(), {.output_bytes = {1}});
  profile.graph = graph::ModelGraph::build(1, std::move(nodes), {{LayerId{999}, 0}});
  EXPECT_THAT(failure(profile), HasSubstr("more than 20000 cut states"));
}

TEST(CutStates, RefusesTotalsThatOverflow) {
  const int64_t huge = int64_t{1} << 61;
  EXPECT_THAT(failure(testing_graphs::chain({1, 1, 1}, {huge, huge, huge}, {1, 1, 1})),
              HasSubstr("sizes (bytes) add up to more than 2^62"));
}

}  // namespace
}  // namespace penstock::planner

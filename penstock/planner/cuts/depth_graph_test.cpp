#include "penstock/planner/cuts/depth_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace penstock::planner {
namespace {

using testing::ElementsAre;
using testing::Pair;

// Ten cells of 10 ns; a stage does `limit` ns per replica.
DepthIntervals ten_cells() {
  DepthIntervals cells;
  for (int64_t c = 0; c < 10; ++c) cells.emplace_back(10 * c, c == 9 ? 100 : 10 * c + 9);
  return cells;
}

std::vector<bool> only(std::initializer_list<size_t> wanted) {
  std::vector<bool> occupied(10, false);
  for (const size_t c : wanted) occupied[c] = true;
  return occupied;
}

std::function<int64_t(double)> stages_of(double limit_ns) {
  return [limit_ns](double compute_ns) {
    return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(compute_ns / limit_ns)));
  };
}

TEST(DepthGraph, NeedsCutsWhereTheWorkersEnd) {
  const DepthIntervals cells = ten_cells();
  DepthGraph graph(cells, 100, 2, stages_of(50));
  EXPECT_TRUE(graph.find_paths(only({4, 5})));
  // Up to 9 ns of a cell may lie on either side of the cut: 41 .. 50 and 50 .. 59.
  EXPECT_THAT(graph.promising(true), ElementsAre(Pair(50, 59)));
  EXPECT_FALSE(graph.find_paths(only({2, 8})));
  EXPECT_FALSE(graph.find_paths(only({})));
  graph.allow_single_stage();
  EXPECT_TRUE(graph.find_paths(only({})));
}

TEST(DepthGraph, JoinsStagesWithinAUnitOnly) {
  const DepthIntervals cells = ten_cells();
  // Straight: a stage has one worker and 30 ns.
  const auto one = [](double compute_ns) { return compute_ns <= 30 ? int64_t{1} : int64_t{100}; };
  const std::vector<bool> inner = only({2, 3, 5, 7});
  for (const int unit : {1, 2, 3}) {
    DepthGraph graph(cells, 100, 8, one);
    graph.join_within_units(inner, unit);
    // From 0 to the outer cut at 50 it takes two stages, and from there to the end as many.
    EXPECT_EQ(graph.find_paths(only({5})), unit >= 2) << unit;
  }
  DepthGraph graph(cells, 100, 8, one);
  graph.join_within_units(inner, 2);
  ASSERT_TRUE(graph.find_paths(only({5})));
  EXPECT_THAT(graph.promising(true), ElementsAre(Pair(50, 59)));
  EXPECT_THAT(graph.promising(false), ElementsAre(Pair(0, 100)));
}

TEST(DepthGraph, IntervalsMeetRangesThatShareADepth) {
  const DepthIntervals intervals = {{10, 19}, {40, 49}};
  EXPECT_TRUE(meets(intervals, 0, 10));
  EXPECT_TRUE(meets(intervals, 19, 30));
  EXPECT_FALSE(meets(intervals, 20, 39));
  EXPECT_FALSE(meets(intervals, 50, 60));
  EXPECT_FALSE(meets({}, 0, 100));
}

}  // namespace
}  // namespace penstock::planner

#include "penstock/cluster/topology.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <climits>
#include <vector>

#include "penstock/util/error.h"

namespace penstock::cluster {
namespace {

Cluster four_servers_of_four() {
  Cluster cluster;
  cluster.levels = {{"server", 4, 10'000'000'000, 5'000, false},
                    {"rack", 4, 1'250'000'000, 20'000, false}};
  return cluster;
}

TEST(Topology, SaysWhichLevelHoldsARange) {
  const Topology topology(four_servers_of_four());
  EXPECT_EQ(topology.num_workers(), 16);
  EXPECT_EQ(topology.num_levels(), 2);
  EXPECT_EQ(topology.unit_size(1), 4);
  EXPECT_EQ(topology.level_of({.first = 5, .count = 1}), 0);
  EXPECT_EQ(topology.level_of({.first = 4, .count = 4}), 1);
  EXPECT_EQ(topology.level_of({.first = 2, .count = 3}), 2);
  EXPECT_EQ(topology.level_of({.first = 0, .count = 15}), 2);
  EXPECT_EQ(topology.level_between(3, 3), 0);
  EXPECT_EQ(topology.level_between(3, 4), 2);
  EXPECT_EQ(topology.level_between(15, 12), 1);
}

TEST(Topology, PathsPassEveryLevelUpToTheSharedOne) {
  const Topology topology(four_servers_of_four());
  EXPECT_EQ(topology.path(0), (Path{INT64_MAX, 0, true, true}));
  EXPECT_EQ(topology.path(1), (Path{10'000'000'000, 5'000, false}));
  EXPECT_EQ(topology.path(2), (Path{1'250'000'000, 25'000, false}));
}

TEST(Topology, LevelsWithoutASecondUnitAreNotPassed) {
  Cluster cluster;
  cluster.levels = {{"server", 1, 1, 1'000'000, false},
                    {"rack", 4, 5'000'000'000, 20'000, false},
                    {"row", 1, 2, 3, false}};
  const Topology topology(cluster);
  EXPECT_EQ(topology.path(2), (Path{5'000'000'000, 20'000, false}));
  EXPECT_EQ(topology.path(3), topology.path(2));
}

TEST(Topology, OneWorkerAloneHasThePathOfTheLastLevel) {
  EXPECT_EQ(Topology(local_cluster(1, 10)).path(1), (Path{10, 0, true, true}));
}

TEST(Topology, ByReferenceEndsAtTheFirstLevelThatCopies) {
  Cluster cluster;
  cluster.levels = {
      {"process", 2, 9, 0, true}, {"machine", 2, 7, 10, false}, {"odd", 2, 8, 0, true}};
  const Topology topology(cluster);
  EXPECT_TRUE(topology.path(1).by_reference);
  EXPECT_FALSE(topology.path(2).by_reference);
  EXPECT_FALSE(topology.path(3).by_reference);
  EXPECT_EQ(topology.path(3).bandwidth_bytes_per_s, 7);
}

TEST(Topology, TheHighestProcessorTimeOnTheWayCounts) {
  Cluster cluster;
  cluster.levels = {{"process", 2, 9, 0, true, false, 50, 5},
                    {"alone", 1, 9, 0, false, false, 40, 4},
                    {"machine", 2, 7, 0, false, false, 20, 1},
                    {"rack", 2, 7, 0, false, false, 10, 2},
                    {"hall", 2, 7, 0, false, false, 30, 0}};
  const Topology topology(cluster);
  // Threads of one process move no gradients, and nothing passes a level of one unit.
  for (const int level : {1, 2}) EXPECT_EQ(topology.path(level).processor_ns_per_gb, 0);
  EXPECT_EQ(topology.path(3).processor_ns_per_gb, 20);
  EXPECT_EQ(topology.path(4).processor_ns_per_gb, 20);
  EXPECT_EQ(topology.path(5).processor_ns_per_gb, 30);
  for (const auto& [level, ns] : {std::pair(2, 0), {3, 1}, {4, 2}, {5, 2}})
    EXPECT_EQ(topology.path(level).processor_ns_per_message, ns) << level;
}

TEST(Topology, LatenciesSaturate) {
  Cluster cluster;
  cluster.levels.assign(3, {"far", 2, 1, INT64_MAX / 2, false});
  EXPECT_EQ(Topology(cluster).path(3).latency_ns, INT64_MAX);
}

TEST(Topology, RefusesInvalidClustersAndRangesWithoutWorkers) {
  EXPECT_THROW(Topology(Cluster{}), ConfigError);
  const Topology topology(four_servers_of_four());
  for (const WorkerRange range : {WorkerRange{0, 0}, WorkerRange{-1, 2}, WorkerRange{0, 17},
                                  WorkerRange{16, 1}, WorkerRange{1, INT_MAX}}) {
    EXPECT_THROW(topology.level_of(range), InternalError) << range.first << ' ' << range.count;
  }
}

TEST(Topology, TenMillionWorkersCostNothing) {
  Cluster cluster;
  cluster.levels = {{"server", 1'000, 2, 0, false}, {"hall", 10'000, 1, 0, false}};
  const Topology topology(cluster);
  EXPECT_EQ(topology.level_of({.first = 999, .count = 2}), 2);
  EXPECT_EQ(topology.level_of({.first = 9'999'000, .count = 1'000}), 1);
}

rc::Gen<Cluster> any_small_cluster() {
  const auto level = rc::gen::build<Level>(
      rc::gen::set(&Level::count, rc::gen::inRange(1, 5)),
      rc::gen::set(&Level::bandwidth_bytes_per_s, rc::gen::inRange<int64_t>(1, 9)),
      rc::gen::set(&Level::latency_ns, rc::gen::inRange<int64_t>(0, 9)),
      rc::gen::set(&Level::by_reference), rc::gen::set(&Level::sums_wait));
  return rc::gen::map(rc::gen::mapcat(rc::gen::inRange<size_t>(1, 5),
                                      [=](size_t count) {
                                        return rc::gen::container<std::vector<Level>>(count, level);
                                      }),
                      [](std::vector<Level> levels) {
                        Cluster cluster;
                        cluster.levels = std::move(levels);
                        return cluster;
                      });
}

/// A worker's unit at every level, by counting instead of dividing: addresses like those of an
/// odometer.
std::vector<std::vector<int>> addresses(const Cluster& cluster) {
  std::vector<std::vector<int>> result;
  std::vector<int> digits(cluster.levels.size(), 0);
  for (int worker = 0; worker < cluster.num_workers(); ++worker) {
    result.push_back(digits);
    for (size_t level = 0; level < digits.size() && ++digits[level] == cluster.levels[level].count;
         ++level)
      digits[level] = 0;
  }
  return result;
}

/// The level of a pair: one above the outermost digit in which the addresses differ.
int level_by_digits(const std::vector<int>& a, const std::vector<int>& b) {
  int level = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] != b[i]) level = static_cast<int>(i) + 1;
  }
  return level;
}

RC_GTEST_PROP(Topology, LevelsAreThoseOfTheWorkersAddresses, ()) {
  const Cluster cluster = *any_small_cluster();
  const Topology topology(cluster);
  const auto address = addresses(cluster);
  const int workers = topology.num_workers();
  const int first = *rc::gen::inRange(0, workers);
  int most = 0;
  for (int last = first; last < workers; ++last) {
    const auto at = [&](int worker) -> const std::vector<int>& {
      return address[static_cast<size_t>(worker)];
    };
    const int expected = level_by_digits(at(first), at(last));
    RC_ASSERT(topology.level_between(first, last) == expected);
    RC_ASSERT(topology.level_between(last, first) == expected);
    for (int other = first; other <= last; ++other)
      most = std::max(most, level_by_digits(at(other), at(last)));
    RC_ASSERT(topology.level_of({first, last - first + 1}) == most);
  }
}

RC_GTEST_PROP(Topology, PathsAreTheSlowestLinkAndAllLatenciesOnTheWay, ()) {
  Cluster cluster = *any_small_cluster();
  if (cluster.num_workers() == 1) cluster.levels.front().count = 2;
  const Topology topology(cluster);
  for (int level = 1; level <= topology.num_levels(); ++level) {
    Path expected = topology.path(0);
    for (int i = 0; i < level; ++i) {
      const Level& passed = cluster.levels[static_cast<size_t>(i)];
      if (passed.count == 1) continue;
      expected.bandwidth_bytes_per_s =
          std::min(expected.bandwidth_bytes_per_s, passed.bandwidth_bytes_per_s);
      expected.latency_ns += passed.latency_ns;
      expected.by_reference = expected.by_reference && passed.by_reference;
      expected.sums_wait = expected.sums_wait && (passed.by_reference || passed.sums_wait);
    }
    RC_ASSERT(topology.path(level) == expected);
    RC_ASSERT(topology.path(level).bandwidth_bytes_per_s <=
              topology.path(level - 1).bandwidth_bytes_per_s);
    RC_ASSERT(topology.path(level).latency_ns >= topology.path(level - 1).latency_ns);
  }
}

}  // namespace
}  // namespace penstock::cluster

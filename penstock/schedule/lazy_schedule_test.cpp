#include "penstock/schedule/lazy_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <span>

#include "penstock/schedule/formats/text_format.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/rng.h"

namespace penstock::schedule {
namespace {

std::string text_of(const std::vector<Action>& actions) {
  std::string text;
  for (const Action& action : actions) text += to_text(action) + ",";
  return text;
}

// Action for action, against the generator and the lowering pass.
void expect_same(Strategy kind, const ScheduleShape& shape, const std::vector<StageLink>& links) {
  const Schedule full = lower(generate(kind, shape), links);
  const LazySchedule lazy(kind, shape, links);
  std::string where = std::string(to_string(kind)) + " " + std::string(to_string(shape.policy)) +
                      " micro-batches " + std::to_string(shape.micro_batches) + " accumulate " +
                      std::to_string(shape.accumulate) + " replicas";
  for (const int count : shape.replicas) where += " " + std::to_string(count);
  if (shape.slack > 0) where += " slack " + std::to_string(shape.slack);
  if (shape.global_norm) where += " norm";
  for (size_t s = 0; s < shape.recompute.size(); ++s) where += shape.recompute[s] ? " R" : " -";
  for (size_t w = 0; w < full.workers.size(); ++w) {
    const std::vector<Action> list = lazy.list(WorkerId{static_cast<int32_t>(w)});
    ASSERT_EQ(list == full.workers[w], true) << where << ", worker " << w << "\n"
                                             << text_of(list) << "\n"
                                             << text_of(full.workers[w]);
  }
  ASSERT_EQ(lazy.num_actions(), full.num_actions()) << where;
}

std::vector<WeightPolicy> policies_of(Strategy kind) {
  std::vector<WeightPolicy> policies;
  for (const WeightPolicy policy :
       {WeightPolicy::Flush, WeightPolicy::Stash, WeightPolicy::VerticalSync,
        WeightPolicy::TwoBuffered, WeightPolicy::Latest}) {
    if (supports(kind, policy)) policies.push_back(policy);
  }
  return policies;
}

std::vector<Strategy> lazy_kinds() {
  std::vector<Strategy> kinds;
  for (const Strategy kind : plan::scheduled_strategies()) {
    if (LazySchedule::can_make(kind, {.replicas = {1}})) kinds.push_back(kind);
  }
  return kinds;
}

std::vector<int> permuted_workers(const ScheduleShape& shape, Rng& rng) {
  std::vector<int> workers(static_cast<size_t>(shape.num_workers()));
  std::iota(workers.begin(), workers.end(), 0);
  rng.shuffle(std::span<int>(workers));
  return workers;
}

std::vector<StageLink> with_skips(int num_stages) {
  std::vector<StageLink> links = chain_links(num_stages);
  for (int s = 0; s + 2 < num_stages; s += 2) links.push_back({StageId{s}, StageId{s + 2}});
  return links;
}

}  // namespace

TEST(LazySchedule, EqualsGeneratingAndLoweringOverAGridOfShapes) {
  const std::vector<std::vector<int>> replicas = {
      {1}, {2}, {5}, {1, 1}, {2, 1}, {1, 3}, {3, 2}, {1, 1, 1, 1}, {2, 1, 2}, {1, 3, 1}, {4, 2, 1}};
  int64_t shapes = 0;
  for (const Strategy kind : lazy_kinds()) {
    for (const WeightPolicy policy : policies_of(kind)) {
      for (const auto& counts : replicas) {
        if (kind == Strategy::Serial && (counts.size() > 1 || counts[0] > 1)) continue;
        if (kind == Strategy::DataParallel && counts.size() > 1) continue;
        for (const int64_t micro_batches : {0, 1, 2, 3, 5, 8, 13, 24}) {
          for (const int64_t accumulate : {1, 2, 3, 4, 7, 100}) {
            const ScheduleShape shape{.replicas = counts,
                                      .micro_batches = micro_batches,
                                      .accumulate = accumulate,
                                      .policy = policy};
            if (policy == WeightPolicy::TwoBuffered && accumulate < pipeline_depth(shape)) continue;
            ++shapes;
            ASSERT_NO_FATAL_FAILURE(expect_same(kind, shape, chain_links(shape.num_stages())));
          }
        }
      }
    }
  }
  EXPECT_GT(shapes, 3'000);
}

TEST(LazySchedule, EqualsGeneratingAndLoweringForRandomShapes) {
  for (uint64_t seed = 0; seed < 1'500; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    const std::vector<Strategy> kinds = lazy_kinds();
    Strategy kind = kinds[rng.below(kinds.size())];
    if (kind == Strategy::Serial) kind = Strategy::OneFOneB;
    const int stages = kind == Strategy::DataParallel ? 1 : static_cast<int>(1 + rng.below(6));
    ScheduleShape shape;
    for (int s = 0; s < stages; ++s) shape.replicas.push_back(static_cast<int>(1 + rng.below(7)));
    const auto policies = policies_of(kind);
    shape.policy = policies[rng.below(policies.size())];
    shape.micro_batches = static_cast<int64_t>(rng.below(120));
    shape.accumulate = static_cast<int64_t>(1 + rng.below(30));
    if (shape.policy == WeightPolicy::TwoBuffered) shape.accumulate += pipeline_depth(shape);
    if (kind == Strategy::EagerOneFOneB) shape.slack = static_cast<int64_t>(rng.below(5));
    shape.global_norm = rng.below(3) == 0;
    for (int s = 0; s < stages && seed % 2 == 0; ++s) shape.recompute.push_back(rng.below(2) == 0);
    if (seed % 4 == 0) shape.worker_of_replica = permuted_workers(shape, rng);
    ASSERT_NO_FATAL_FAILURE(
        expect_same(kind, shape, rng.below(2) == 0 ? chain_links(stages) : with_skips(stages)));
  }
}

TEST(LazySchedule, MayHaveMoreActionsThanAScheduleInMemory) {
  const ScheduleShape shape{
      .replicas = std::vector<int>(16'384, 1), .micro_batches = 10'000, .accumulate = 10'000};
  EXPECT_THROW(generate(Strategy::GPipe, shape), ConfigError);
  const LazySchedule lazy(Strategy::GPipe, shape, chain_links(shape.num_stages()));
  EXPECT_EQ(lazy.num_actions(), (2 * 16'384 + 4 * 16'383) * int64_t{10'000} + 2 * 16'384);
  LazySchedule::Cursor cursor = lazy.cursor(WorkerId{7});
  Action action;
  ASSERT_TRUE(lazy.next(cursor, action));
  EXPECT_EQ(to_text(action), "7RECV_F0");
}

TEST(LazySchedule, RefusesWhatTheGeneratorsAndTheLoweringRefuse) {
  EXPECT_THROW(LazySchedule(Strategy::Serial, {.replicas = {2}}, {}), ConfigError);
  EXPECT_THROW(LazySchedule(Strategy::DataParallel, {.replicas = {1, 1}}, {}), ConfigError);
  EXPECT_THROW(LazySchedule(Strategy::GPipe, {.replicas = {}}, {}), ConfigError);
  EXPECT_THROW(LazySchedule(Strategy::GPipe, {.replicas = {1}, .accumulate = 0}, {}), ConfigError);
  EXPECT_THROW(LazySchedule(Strategy::GPipe, {.replicas = {1}, .policy = WeightPolicy::Stash}, {}),
               ConfigError);
  EXPECT_THROW(LazySchedule(Strategy::GPipe, {.replicas = {1, 1}}, {{StageId{1}, StageId{0}}}),
               ConfigError);
  EXPECT_THROW(LazySchedule(Strategy::GPipe, {.replicas = {1}, .micro_batches = INT64_MAX}, {}),
               ConfigError);
}

TEST(LazySchedule, RefusesKindsWithoutItsPatternAndWorkersWithSeveralStages) {
  for (const Strategy kind :
       {Strategy::Interleaved, Strategy::ZbH1, Strategy::ZbH2, Strategy::ZbV, Strategy::VHalf,
        Strategy::VMin, Strategy::DualPipeV, Strategy::DualPipe, Strategy::Chimera}) {
    EXPECT_FALSE(LazySchedule::can_make(kind, {.replicas = {1}})) << to_string(kind);
  }
  const ScheduleShape shape{.replicas = {1, 1, 1, 1}, .micro_batches = 4, .accumulate = 4};
  try {
    LazySchedule(Strategy::ZbH1, shape, chain_links(4));
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("simulate it in memory"));
  }
  ScheduleShape shared = shape;
  shared.worker_of_replica = {0, 1, 1, 0};
  EXPECT_FALSE(LazySchedule::can_make(Strategy::GPipe, shared));
  EXPECT_THROW(LazySchedule(Strategy::GPipe, shared, chain_links(4)), ConfigError);
}

TEST(LazySchedule, NeverHasMoreMicroBatchesInFlightThanItReports) {
  for (const Strategy kind : {Strategy::GPipe, Strategy::OneFOneB, Strategy::OneFOneBFlush,
                              Strategy::EagerOneFOneB, Strategy::ModelParallel}) {
    const ScheduleShape shape{.replicas = {2, 1, 3},
                              .micro_batches = 40,
                              .accumulate = 10,
                              .policy = default_policy(kind),
                              .slack = kind == Strategy::EagerOneFOneB};
    const LazySchedule lazy(kind, shape, chain_links(3));
    int64_t most = 0;
    for (int32_t w = 0; w < shape.num_workers(); ++w) {
      int64_t ahead = 0;
      for (const Action& action : lazy.list(WorkerId{w})) {
        if (action.op == Op::Forward) most = std::max(most, ++ahead);
        if (action.op == Op::Backward) --ahead;
      }
    }
    EXPECT_LE(most, lazy.most_in_flight()) << to_string(kind);
    EXPECT_EQ(kind == Strategy::GPipe ? 10 : most, lazy.most_in_flight()) << to_string(kind);
  }
}

TEST(LazySchedule, EnormousNumbersOfAccumulatedMicroBatchesDoNotOverflow) {
  const ScheduleShape shape{.replicas = {2, 1},
                            .micro_batches = 5,
                            .accumulate = INT64_MAX,
                            .policy = WeightPolicy::Stash};
  expect_same(Strategy::OneFOneB, shape, chain_links(2));
  ScheduleShape flush = shape;
  flush.policy = WeightPolicy::Flush;
  expect_same(Strategy::OneFOneBFlush, flush, chain_links(2));
}

}  // namespace penstock::schedule

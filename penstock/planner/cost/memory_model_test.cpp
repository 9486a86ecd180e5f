#include "penstock/planner/cost/memory_model.h"

#include <gtest/gtest.h>

#include <climits>

#include "penstock/util/numbers/rng.h"

namespace penstock::planner {
namespace {

using plan::Strategy;
using plan::WeightPolicy;

StageMemory stage(int64_t weights, int64_t stash, int64_t input = 0, int64_t output = 0,
                  bool recompute = false) {
  StageMemory memory;
  memory.sums.weight_bytes = weights;
  memory.sums.stash_bytes = stash;
  memory.input_bytes = input;
  memory.output_bytes = output;
  memory.recompute = recompute;
  return memory;
}

TEST(MemoryModel, CountsVersionsGradientStateStashesAndMessages) {
  MemoryModel model;
  // 2 replicas, 6 workers from here: 3 in flight, 3 versions.
  EXPECT_EQ(model.stage_bytes(stage(100, 10, 3, 4), 2, 6),
            (3 + 1 + 1) * 100 + 3 * 10 + 2 * (3 + 4));
  model.optimizer_state_per_weight = 2.5;
  EXPECT_EQ(model.stage_bytes(stage(100, 10), 2, 6), (3 + 1) * 100 + 250 + 3 * 10);
}

TEST(MemoryModel, CountsConstantsOnceWhateverTheVersions) {
  MemoryModel model;
  StageMemory frozen = stage(100, 10, 3, 4);
  const int64_t trained = model.stage_bytes(frozen, 2, 6);
  frozen.sums.constant_bytes = 7000;
  EXPECT_EQ(model.stage_bytes(frozen, 2, 6), trained + 7000);
  model.short_weight_share = 0.5;
  const int64_t mixed = model.stage_bytes(frozen, 2, 6);
  frozen.sums.constant_bytes = 0;
  EXPECT_EQ(mixed, model.stage_bytes(frozen, 2, 6) + 7000);
}

TEST(MemoryModel, CountsASetOfGradientsForEachGroupThatFillsUpBesideOthers) {
  MemoryModel model{.strategy = Strategy::OneFOneBFlush,
                    .policy = WeightPolicy::Flush,
                    .micro_batches = 30,
                    .gradient_groups = 15};
  const auto sets = [&](int replicas) { return model.gradient_sets(replicas); };
  EXPECT_EQ(sets(1), 15);
  EXPECT_EQ(sets(3), 5);
  EXPECT_EQ(sets(15), 1);
  EXPECT_EQ(model.stage_bytes(stage(100, 0), 3, 3), (1 + 5 + 1) * 100);
  model.micro_batches = 15;  // one micro-batch per group
  EXPECT_EQ(sets(1), 1);
  EXPECT_EQ(sets(3), 5);
  model.micro_batches = 6;
  EXPECT_EQ(sets(3), 2);
  model.micro_batches = 0;  // a round of the stage's replicas
  EXPECT_EQ(sets(3), 1);
  model = {.micro_batches = 30, .gradient_groups = 15};  // stash has no groups but the replicas
  EXPECT_EQ(sets(1), 1);
}

TEST(MemoryModel, RecomputationKeepsInputsAndOneMicroBatch) {
  const MemoryModel model;
  EXPECT_EQ(model.stage_bytes(stage(0, 50, 3, 0, true), 1, 4), 4 * 3 + 50 + 2 * 3);
  EXPECT_EQ(model.stage_bytes(stage(0, 50, 0, 0, true), 1, 4), 50);
  const MemoryModel forward{.strategy = Strategy::ForwardOnly, .policy = WeightPolicy::Flush};
  EXPECT_EQ(forward.stage_bytes(stage(0, 50, 0, 0, true), 1, 4), 0);
}

TEST(MemoryModel, ReplicasThatShareOutTheStateKeepAPartOfIt) {
  const MemoryModel model{
      .policy = WeightPolicy::Flush, .optimizer_state_per_weight = 2, .shard_optimizer = true};
  EXPECT_EQ(model.stage_bytes(stage(100, 0), 1, 1), (1 + 1 + 2) * 100);
  EXPECT_EQ(model.stage_bytes(stage(100, 0), 2, 2), (1 + 1) * 100 + 100);
  EXPECT_EQ(model.stage_bytes(stage(100, 0), 3, 3), (1 + 1) * 100 + 67);
}

TEST(MemoryModel, EveryKindHoldsWhatItsScheduleDoes) {
  const auto in_flight = [](Strategy kind, int64_t micro_batches) {
    return MemoryModel{
        .strategy = kind, .policy = default_policy(kind), .micro_batches = micro_batches}
        .in_flight(2, 7);
  };
  EXPECT_EQ(in_flight(Strategy::Serial, 9), 1);
  EXPECT_EQ(in_flight(Strategy::DataParallel, 9), 1);
  EXPECT_EQ(in_flight(Strategy::ModelParallel, 9), 1);
  EXPECT_EQ(in_flight(Strategy::GPipe, 9), 5);
  EXPECT_EQ(in_flight(Strategy::OneFOneB, 9), 4);
  EXPECT_EQ(in_flight(Strategy::OneFOneBFlush, 9), 4);
  EXPECT_EQ(in_flight(Strategy::OneFOneBFlush, 4), 2);
  EXPECT_EQ(in_flight(Strategy::TwoBuffered, 9), 4);
}

TEST(MemoryModel, SaturatesInsteadOfOverflowing) {
  MemoryModel model;
  EXPECT_EQ(model.stage_bytes(stage(INT64_MAX, 1), 1, 2), INT64_MAX);
  EXPECT_EQ(model.stage_bytes(stage(1, INT64_MAX), 1, 2), INT64_MAX);
  EXPECT_EQ(model.stage_bytes(stage(1, 1, INT64_MAX, INT64_MAX), 1, 2), INT64_MAX);
  EXPECT_EQ(model.stage_bytes(stage(1, 1, INT64_MAX, 1, true), 1, INT32_MAX), INT64_MAX);
  model.optimizer_state_per_weight = 1e300;
  EXPECT_EQ(model.stage_bytes(stage(1, 1), 1, 2), INT64_MAX);
}

// The search skips counts that cannot matter; trying each is the definition.
TEST(MemoryModel, FewestReplicasIsTheFirstThatFits) {
  int found = 0;
  for (uint64_t seed = 0; seed < 20'000; ++seed) {
    Rng rng(seed);
    const auto amount = [&](uint64_t most) { return static_cast<int64_t>(rng.below(most + 1)); };
    MemoryModel model;
    const Strategy kinds[] = {Strategy::OneFOneB, Strategy::OneFOneB, Strategy::OneFOneBFlush,
                              Strategy::GPipe, Strategy::TwoBuffered};
    model.strategy = kinds[rng.below(5)];
    model.policy = default_policy(model.strategy);
    model.micro_batches = rng.below(3) == 0 ? 0 : amount(60) + 1;
    model.shard_optimizer = rng.below(2) == 0;
    model.optimizer_state_per_weight = static_cast<double>(rng.below(9));
    const StageMemory memory =
        stage(amount(20), amount(20), amount(5), amount(5), rng.below(2) == 0);
    const int64_t after = amount(30);
    const int least = 1 + static_cast<int>(rng.below(5));
    const int most = static_cast<int>(rng.below(40));
    const int64_t limit = rng.below(10) == 0 ? 0 : amount(600);
    int expected = 0;
    for (int replicas = least; replicas <= most && expected == 0; ++replicas) {
      if (model.fits(memory, replicas, replicas + after, limit)) expected = replicas;
    }
    ASSERT_EQ(model.fewest_replicas(memory, after, least, most, limit), expected)
        << "seed " << seed;
    found += expected > least ? 1 : 0;
  }
  EXPECT_GT(found, 500);
}

TEST(MemoryModel, CountsVersionsOf16BitsAndTheWeightsBehindThem) {
  MemoryModel model{.policy = plan::WeightPolicy::Stash, .optimizer_state_per_weight = 0};
  const StageMemory memory = stage(1000, 0);
  const Held held{.in_flight = 0, .versions = 3, .gradient_sets = 1};
  EXPECT_EQ(model.stage_bytes(memory, held), 3 * 1000 + 1000);
  model.short_weight_share = 1;
  EXPECT_EQ(model.stage_bytes(memory, held), 3 * 500 + 1000 + 1000);
  model.short_weight_share = 0.5;
  EXPECT_EQ(model.stage_bytes(memory, held), 3 * 750 + 500 + 1000);
}

TEST(MemoryModel, FewestReplicasIsQuickForAMillionWorkers) {
  const MemoryModel model{.limit_bytes = 1, .micro_batches = 1'000'000};
  for (int i = 0; i < 100; ++i)
    EXPECT_EQ(model.fewest_replicas(stage(1'000, 1'000), 500'000, 1, 500'000, 10), 0);
}

TEST(MemoryModel, NeverRisesWhenFewerWorkersFollow) {
  for (uint64_t seed = 0; seed < 2'000; ++seed) {
    Rng rng(seed);
    MemoryModel model;
    model.micro_batches = static_cast<int64_t>(rng.below(20));
    const StageMemory memory =
        stage(static_cast<int64_t>(rng.below(9)), static_cast<int64_t>(rng.below(9)),
              static_cast<int64_t>(rng.below(9)), 1, rng.below(2) == 0);
    const int replicas = 1 + static_cast<int>(rng.below(6));
    const auto from_here = static_cast<int64_t>(replicas) + static_cast<int64_t>(rng.below(20));
    EXPECT_LE(model.stage_bytes(memory, replicas, from_here),
              model.stage_bytes(memory, replicas, from_here + 1))
        << "seed " << seed;
  }
}

}  // namespace
}  // namespace penstock::planner

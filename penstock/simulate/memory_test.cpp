#include "penstock/simulate/memory.h"

#include <gtest/gtest.h>

#include <optional>
#include <set>

#include "penstock/schedule/generate.h"
#include "penstock/simulate/memory_by_kind.h"
#include "penstock/simulate/simulator.h"

namespace penstock::simulate {
namespace {

using schedule::Strategy;

std::vector<int64_t> peaks(Strategy kind, int64_t micro_batches, int64_t accumulate,
                           const std::vector<StageCost>& stages, bool recompute = false) {
  const schedule::ScheduleShape shape{.replicas = std::vector<int>(stages.size(), 1),
                                      .micro_batches = micro_batches,
                                      .accumulate = accumulate,
                                      .policy = default_policy(kind),
                                      .recompute = std::vector<bool>(stages.size(), recompute)};
  Costs costs;
  costs.stages = stages;
  return simulate(schedule::LazySchedule(kind, shape, schedule::chain_links(shape.num_stages())),
                  costs, {})
      .peak_memory_bytes;
}

/// How many micro-batches of a worker with one stage have their activations with it, at most: from
/// F to B, but not from the next OFFLOAD after their own to their LOAD.
int64_t most_stashes(const std::vector<schedule::Action>& list) {
  std::set<MicroBatchId> here;
  std::optional<MicroBatchId> leaving;
  size_t most = 0;
  for (const schedule::Action& action : list) {
    switch (action.op) {
      case schedule::Op::Forward:
      case schedule::Op::Load:
        here.insert(action.micro_batch);
        if (leaving == action.micro_batch) leaving.reset();
        break;
      case schedule::Op::Offload:
        if (leaving) here.erase(*leaving);
        leaving = action.micro_batch;
        break;
      case schedule::Op::Backward:
        here.erase(action.micro_batch);
        break;
      default:
        break;
    }
    most = std::max(most, here.size());
  }
  return static_cast<int64_t>(most);
}

}  // namespace

TEST(Memory, ABackwardPassNeedsItsOwnWhileItRuns) {
  const StageCost stage{.forward_ns = 1, .backward_ns = 2, .stash_bytes = 10, .weight_bytes = 100};
  StageCost working = stage;
  working.working_bytes = 7;
  for (const Strategy kind : {Strategy::GPipe, Strategy::OneFOneB, Strategy::OneFOneBFlush}) {
    const std::vector<int64_t> without = peaks(kind, 8, 4, {stage, stage});
    const std::vector<int64_t> with = peaks(kind, 8, 4, {working, stage});
    EXPECT_EQ(with[0], without[0] + 7);
    EXPECT_EQ(with[1], without[1]);
  }
}

// Chen et al., arXiv 1604.06174: the inputs of the micro-batches in flight, and the activations of
// the one whose backward runs.
TEST(Memory, RecomputingStagesKeepInputsAndOneStash) {
  const StageCost stage{.stash_bytes = 100, .weight_bytes = 1000, .input_bytes = 7};
  EXPECT_EQ(peaks(Strategy::GPipe, 16, 8, {stage, stage}, true),
            (std::vector<int64_t>{3000 + 8 * 7 + 100, 3000 + 8 * 7 + 100}));
  EXPECT_EQ(peaks(Strategy::OneFOneBFlush, 16, 8, {stage, stage}, true),
            (std::vector<int64_t>{3000 + 2 * 7 + 100, 3000 + 7 + 100}));
}

TEST(Memory, RecomputingNeverNeedsMoreWhereInputsAreSmallerThanStashes) {
  for (const Strategy kind :
       {Strategy::Serial, Strategy::GPipe, Strategy::OneFOneB, Strategy::OneFOneBFlush}) {
    const StageCost stage{.stash_bytes = 100, .weight_bytes = 1000, .input_bytes = 0};
    EXPECT_LE(peaks(kind, 12, 6, {stage}, true)[0], peaks(kind, 12, 6, {stage})[0]);
  }
}

TEST(Memory, OffloadingStagesKeepThreeStashesAtMost) {
  for (const Strategy kind : {Strategy::GPipe, Strategy::OneFOneBFlush, Strategy::OneFOneB}) {
    const schedule::ScheduleShape shape{.replicas = std::vector<int>(8, 1),
                                        .micro_batches = 32,
                                        .accumulate = 16,
                                        .policy = default_policy(kind),
                                        .offload = std::vector<bool>(8, true)};
    Costs costs;
    costs.stages.assign(8, {.stash_bytes = 100});
    const schedule::Schedule schedule =
        schedule::lower(schedule::generate(kind, shape), schedule::chain_links(8));
    const std::vector<int64_t> found = simulate(schedule, costs, {}).peak_memory_bytes;
    for (size_t w = 0; w < found.size(); ++w)
      EXPECT_EQ(found[w], 100 * most_stashes(schedule.workers[w])) << "worker " << w;
    EXPECT_EQ(found[0], 300);
  }
}

TEST(Memory, AReplicaKeepsItsPartOfAStateThatIsSharedOut) {
  const schedule::ScheduleShape shape{.replicas = {3}, .micro_batches = 3, .accumulate = 3};
  Costs costs;
  costs.optimizer_state_per_weight = 2;
  costs.stages = {{.weight_bytes = 1000, .state_parts = 3}};
  const Result result =
      simulate(schedule::LazySchedule(Strategy::DataParallel, shape, {}), costs, {});
  EXPECT_EQ(result.peak_memory_bytes, (std::vector<int64_t>{2667, 2667, 2667}));
}

TEST(Memory, VersionsOf16BitsAreHalfOfTheirWeightsWhichExistOnce) {
  // Stage 0 of 1F1B has two versions at a time; gradients and momentum are float32.
  const StageCost wide{.stash_bytes = 100, .weight_bytes = 1000};
  const StageCost narrow{.stash_bytes = 50, .weight_bytes = 1000, .short_weight_bytes = 1000};
  EXPECT_EQ(peaks(Strategy::OneFOneB, 16, 1, {wide, wide})[0], 2 * 1000 + 2000 + 2 * 100);
  EXPECT_EQ(peaks(Strategy::OneFOneB, 16, 1, {narrow, narrow})[0], 1000 + 2 * 500 + 2000 + 2 * 50);
  // A part of a stage: normalisation stays float32.
  const StageCost mixed{.stash_bytes = 50, .weight_bytes = 1000, .short_weight_bytes = 800};
  EXPECT_EQ(peaks(Strategy::Serial, 4, 1, {mixed})[0], 800 + 600 + 2000 + 50);
}

TEST(Memory, ConstantsAreThereOnceWhateverIsTrained) {
  const StageCost stage{.stash_bytes = 100, .weight_bytes = 10, .constant_bytes = 5000};
  // Two versions, gradients and momentum of what is trained; no more than one copy of the rest.
  EXPECT_EQ(peaks(Strategy::OneFOneB, 16, 1, {stage, stage})[0], 5000 + 4 * 10 + 2 * 100);
}

TEST(Memory, ByKindAddsUpToThePeak) {
  const StageCost stage{.stash_bytes = 100,
                        .weight_bytes = 1000,
                        .input_bytes = 7,
                        .constant_bytes = 50,
                        .working_bytes = 30};
  for (const Strategy kind : {Strategy::Serial, Strategy::GPipe, Strategy::OneFOneB,
                              Strategy::OneFOneBFlush, Strategy::ZbH1}) {
    const int stages = kind == Strategy::Serial ? 1 : 3;
    const schedule::ScheduleShape shape{.replicas = std::vector<int>(stages, 1),
                                        .micro_batches = 12,
                                        .accumulate = 6,
                                        .policy = default_policy(kind)};
    Costs costs;
    costs.stages.assign(static_cast<size_t>(stages), stage);
    const schedule::Schedule schedule =
        schedule::lower(schedule::generate(kind, shape), schedule::chain_links(stages));
    const std::vector<int64_t> peaks = simulate(schedule, costs, {}).peak_memory_bytes;
    const std::vector<MemoryBytes> kinds = memory_by_kind(schedule, costs);
    ASSERT_EQ(kinds.size(), peaks.size());
    for (size_t w = 0; w < peaks.size(); ++w)
      EXPECT_EQ(kinds[w].sum(), peaks[w]) << to_string(kind) << ", worker " << w;
  }
}

TEST(Memory, ByKindSaysWhatThePeakConsistsOf) {
  const schedule::ScheduleShape shape{
      .replicas = {1, 1}, .micro_batches = 16, .policy = default_policy(Strategy::OneFOneB)};
  Costs costs;
  costs.stages.assign(
      2, {.stash_bytes = 100, .weight_bytes = 1000, .constant_bytes = 50, .working_bytes = 30});
  const MemoryBytes first =
      memory_by_kind(
          schedule::lower(schedule::generate(Strategy::OneFOneB, shape), schedule::chain_links(2)),
          costs)
          .front();
  EXPECT_EQ(first[MemoryKind::Weights], 1000);
  EXPECT_EQ(first[MemoryKind::Versions], 1000);
  EXPECT_EQ(first[MemoryKind::Gradients], 1000);
  EXPECT_EQ(first[MemoryKind::OptimizerState], 1000);
  EXPECT_EQ(first[MemoryKind::Activations], 200);
  EXPECT_EQ(first[MemoryKind::Constants], 50);
  EXPECT_EQ(first[MemoryKind::Working], 30);
}

/// Gradients that come and go, with numbers of their own for each kind of pass.
StageCost stage_of_processor(bool steps) {
  return {.stash_bytes = 100,
          .weight_bytes = 1000,
          .working_bytes = 30,
          .passes = plan::PassMemory{
              .first_bytes = 900, .last_bytes = 1015, .only_bytes = 20, .steps = steps}};
}

TEST(Memory, GradientsAreThereFromTheFirstPassToTheStep) {
  const StageCost stage = stage_of_processor(false);
  // One micro-batch per step: weights, momentum, its activations, and gradients as they are made.
  EXPECT_EQ(peaks(Strategy::Serial, 4, 1, {stage})[0], 2000 + 100 + 900);
  // All activations are there in the first pass, those of one less when all gradients are.
  EXPECT_EQ(peaks(Strategy::GPipe, 4, 4, {stage})[0], 2000 + 1000 + 3 * 100 + 30);
  StageCost large = stage;
  large.stash_bytes = 300;
  EXPECT_EQ(peaks(Strategy::GPipe, 4, 4, {large})[0], 2000 + 4 * 300 + 900);
  // 1F1B takes the next micro-batch in behind the first pass.
  EXPECT_EQ(peaks(Strategy::OneFOneBFlush, 4, 4, {stage})[0], 2000 + 1000 + 100 + 30);
}

TEST(Memory, GradientsOfAPassThatStepsAreNeverWhole) {
  const StageCost stage = stage_of_processor(true);
  EXPECT_EQ(peaks(Strategy::Serial, 4, 1, {stage})[0], 2000 + 100 + 20);
  EXPECT_EQ(peaks(Strategy::OneFOneBFlush, 4, 2, {stage})[0], 2000 + 100 + 1015);
  // Two versions, and two micro-batches.
  EXPECT_EQ(peaks(Strategy::OneFOneB, 16, 1, {stage, stage})[0], 3000 + 2 * 100 + 20);
}

TEST(Memory, ANormAndReadsOfTheNewestWeightsNeedWholeGradients) {
  schedule::ScheduleShape shape{
      .replicas = {1}, .micro_batches = 4, .accumulate = 1, .global_norm = true};
  Costs costs;
  costs.stages = {stage_of_processor(true)};
  const auto peak = [&] {
    return simulate(schedule::LazySchedule(Strategy::Serial, shape, {}), costs, {})
        .peak_memory_bytes[0];
  };
  EXPECT_EQ(peak(), 2000 + 100 + 900);
  shape.global_norm = false;
  EXPECT_EQ(peak(), 2000 + 100 + 20);
}

TEST(Memory, AStepWithinItsPassMayNeedAVersionOfItsOwn) {
  // Two micro-batches in flight, and only one step behind a version that is still needed.
  const StageCost stage = stage_of_processor(true);
  EXPECT_EQ(peaks(Strategy::OneFOneB, 2, 1, {stage, stage})[0], 2000 + 2 * 100 + 20 + 1000);
}

TEST(Memory, OfReplicasThatShareWeightsTheFirstCountsThem) {
  const schedule::ScheduleShape shape{.replicas = {2}, .micro_batches = 4, .accumulate = 4};
  Costs costs;
  costs.stages = {stage_of_processor(true)};
  costs.stages[0].shares_weights = true;
  const schedule::Schedule schedule =
      schedule::lower(schedule::generate(Strategy::DataParallel, shape), {});
  // Half of the momentum; others may be behind with their gradients, so that none steps at once.
  const std::vector<int64_t> expected = {1000 + 500 + 1000 + 100 + 30, 500 + 1000 + 100 + 30};
  EXPECT_EQ(simulate(schedule, costs, {}).peak_memory_bytes, expected);
  const std::vector<MemoryBytes> kinds = memory_by_kind(schedule, costs);
  EXPECT_EQ(kinds[0].sum(), expected[0]);
  EXPECT_EQ(kinds[1].sum(), expected[1]);
  EXPECT_EQ(kinds[1][MemoryKind::Weights], 0);
  EXPECT_EQ(kinds[1][MemoryKind::Gradients], 1000);
}

TEST(Memory, Saturates) {
  const StageCost stage{.stash_bytes = INT64_MAX / 2, .weight_bytes = INT64_MAX / 2};
  EXPECT_EQ(peaks(Strategy::GPipe, 4, 4, {stage, stage}),
            (std::vector<int64_t>{INT64_MAX, INT64_MAX}));
}

TEST(Memory, WorkersWithoutABackwardKeepOnlyTheirWeights) {
  // Three micro-batches on four replicas: the last has only the step to do.
  const schedule::ScheduleShape shape{.replicas = {4}, .micro_batches = 3, .accumulate = 3};
  Costs costs;
  costs.stages = {{.stash_bytes = 10, .weight_bytes = 1000}};
  const Result result =
      simulate(schedule::LazySchedule(Strategy::DataParallel, shape, {}), costs, {});
  EXPECT_EQ(result.peak_memory_bytes, (std::vector<int64_t>{3010, 3010, 3010, 1000}));
  // Threads that share their weights, with passes that are known.
  costs.stages = {stage_of_processor(false)};
  costs.stages[0].shares_weights = true;
  const Result shared =
      simulate(schedule::LazySchedule(Strategy::DataParallel, shape, {}), costs, {});
  EXPECT_EQ(shared.peak_memory_bytes[3], 0);
  EXPECT_EQ(shared.peak_memory_bytes[1], shared.peak_memory_bytes[2]);
  EXPECT_GT(shared.peak_memory_bytes[2], 900);
}

}  // namespace penstock::simulate

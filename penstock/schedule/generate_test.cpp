#include "penstock/schedule/generate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/schedule/formats/text_format.h"
#include "penstock/util/error.h"

namespace penstock::schedule {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Le;

/// The workers' lists as text, without stage numbers: "F0 B0".
std::vector<std::string> lists_of(const Schedule& schedule) {
  std::vector<std::string> lists;
  for (const auto& actions : schedule.workers) {
    std::string text;
    for (const Action& action : actions) {
      text += (text.empty() ? "" : " ") + std::string(to_string(action.op)) +
              std::to_string(action.micro_batch.value);
    }
    lists.push_back(text);
  }
  return lists;
}

/// With stage numbers: "0F0 3B0".
std::vector<std::string> staged_lists_of(const Schedule& schedule) {
  std::vector<std::string> lists;
  for (const auto& actions : schedule.workers) {
    std::string text;
    for (const Action& action : actions) text += (text.empty() ? "" : " ") + to_text(action);
    lists.push_back(text);
  }
  return lists;
}

std::string placement_refusal(Strategy kind, const ScheduleShape& shape, int chunks) {
  try {
    generate(kind, with_placement(kind, shape, chunks));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

std::string refusal_of(Strategy kind, const ScheduleShape& shape) {
  try {
    generate(kind, shape);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST(Serial, RunsForwardAndBackwardInTurn) {
  EXPECT_THAT(lists_of(generate(Strategy::Serial, {.replicas = {1}, .micro_batches = 3})),
              ElementsAre("F0 B0 F1 B1 F2 B2"));
}

TEST(DataParallel, AssignsMicroBatchesRoundRobin) {
  EXPECT_THAT(lists_of(generate(Strategy::DataParallel,
                                {.replicas = {3}, .micro_batches = 5, .accumulate = 5})),
              ElementsAre("F0 B0 F3 B3", "F1 B1 F4 B4", "F2 B2"));
}

TEST(ModelParallel, HasOneMicroBatchInFlight) {
  EXPECT_THAT(lists_of(generate(Strategy::ModelParallel,
                                {.replicas = {1, 1}, .micro_batches = 2, .accumulate = 2})),
              ElementsAre("F0 B0 F1 B1", "F0 B0 F1 B1"));
}

TEST(GPipe, RunsAllForwardsOfAMiniBatchFirst) {
  EXPECT_THAT(
      lists_of(
          generate(Strategy::GPipe, {.replicas = {1, 2}, .micro_batches = 6, .accumulate = 4})),
      ElementsAre("F0 F1 F2 F3 B0 B1 B2 B3 F4 F5 B4 B5", "F0 F2 B0 B2 F4 B4", "F1 F3 B1 B3 F5 B5"));
}

TEST(OneFOneB, WarmsUpThenAlternatesThenDrains) {
  EXPECT_THAT(lists_of(generate(Strategy::OneFOneB, {.replicas = {1, 1, 1},
                                                     .micro_batches = 5,
                                                     .accumulate = 1,
                                                     .policy = WeightPolicy::Stash})),
              ElementsAre("F0 F1 F2 B0 F3 B1 F4 B2 B3 B4", "F0 F1 B0 F2 B1 F3 B2 F4 B3 B4",
                          "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4"));
}

TEST(OneFOneB, ReplicasTakeTurns) {
  EXPECT_THAT(
      lists_of(generate(Strategy::OneFOneB, {.replicas = {2, 1},
                                             .micro_batches = 6,
                                             .accumulate = 2,
                                             .policy = WeightPolicy::Stash})),
      ElementsAre("F0 F2 B0 F4 B2 B4", "F1 F3 B1 F5 B3 B5", "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5"));
}

TEST(OneFOneB, HasFewerMicroBatchesThanStagesOrReplicas) {
  EXPECT_THAT(lists_of(generate(Strategy::OneFOneB, {.replicas = {3, 1, 1},
                                                     .micro_batches = 2,
                                                     .accumulate = 1,
                                                     .policy = WeightPolicy::Stash})),
              ElementsAre("F0 B0", "F1 B1", "", "F0 F1 B0 B1", "F0 B0 F1 B1"));
}

TEST(OneFOneBFlush, DrainsBeforeEachStep) {
  EXPECT_THAT(lists_of(generate(Strategy::OneFOneBFlush,
                                {.replicas = {1, 1}, .micro_batches = 5, .accumulate = 3})),
              ElementsAre("F0 F1 B0 F2 B1 B2 F3 F4 B3 B4", "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4"));
}

TEST(TwoBuffered, HasTheOrderOfOneFOneB) {
  const std::vector<int> replicas = {1, 1, 1};
  EXPECT_EQ(generate(Strategy::TwoBuffered, {.replicas = replicas,
                                             .micro_batches = 9,
                                             .accumulate = 3,
                                             .policy = WeightPolicy::TwoBuffered})
                .workers,
            generate(Strategy::OneFOneB, {.replicas = replicas,
                                          .micro_batches = 9,
                                          .accumulate = 3,
                                          .policy = WeightPolicy::Stash})
                .workers);
}

TEST(EagerOneFOneB, WarmsUpDeeper) {
  EXPECT_THAT(
      lists_of(generate(Strategy::EagerOneFOneB,
                        {.replicas = {1, 1, 1}, .micro_batches = 6, .accumulate = 6, .slack = 1})),
      ElementsAre("F0 F1 F2 F3 F4 B0 F5 B1 B2 B3 B4 B5", "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 B4 B5",
                  "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5"));
  const ScheduleShape shape{.replicas = {2, 1, 3}, .micro_batches = 24, .accumulate = 12};
  EXPECT_EQ(generate(Strategy::EagerOneFOneB, shape).workers,
            generate(Strategy::OneFOneBFlush, shape).workers);
}

TEST(ZbH1, DelaysWByTheStage) {
  EXPECT_THAT(
      lists_of(
          generate(Strategy::ZbH1, {.replicas = {1, 1, 1}, .micro_batches = 4, .accumulate = 4})),
      ElementsAre("F0 F1 F2 I0 W0 F3 I1 W1 I2 W2 I3 W3", "F0 F1 I0 F2 I1 W0 F3 I2 W1 I3 W2 W3",
                  "F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3"));
}

TEST(ZbH2, FillsThePipelineTwice) {
  EXPECT_THAT(lists_of(generate(Strategy::ZbH2,
                                {.replicas = {1, 1, 1}, .micro_batches = 6, .accumulate = 6})),
              ElementsAre("F0 F1 F2 F3 F4 I0 W0 F5 I1 W1 I2 W2 I3 W3 I4 W4 I5 W5",
                          "F0 F1 F2 I0 F3 I1 F4 I2 W0 F5 I3 W1 I4 W2 I5 W3 W4 W5",
                          "F0 I0 F1 I1 F2 I2 F3 I3 F4 I4 W0 F5 I5 W1 W2 W3 W4 W5"));
}

TEST(ZbH2, IsZbH1WhenTheMicroBatchesDoNotFillThePipeline) {
  const ScheduleShape shape{.replicas = {1, 1, 1, 1}, .micro_batches = 10, .accumulate = 4};
  EXPECT_EQ(generate(Strategy::ZbH2, shape).workers, generate(Strategy::ZbH1, shape).workers);
}

TEST(Interleaved, GoesThroughTheChunksGroupByGroup) {
  const ScheduleShape shape = with_placement(
      Strategy::Interleaved, {.replicas = {1, 1, 1, 1}, .micro_batches = 4, .accumulate = 4}, 2);
  EXPECT_THAT(staged_lists_of(generate(Strategy::Interleaved, shape)),
              ElementsAre("0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3",
                          "1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3"));
}

TEST(Interleaved, WithOneChunkIsOneFOneBFlush) {
  const ScheduleShape shape{.replicas = {1, 1, 1}, .micro_batches = 7, .accumulate = 5};
  EXPECT_EQ(
      generate(Strategy::Interleaved, with_placement(Strategy::Interleaved, shape, 1)).workers,
      generate(Strategy::OneFOneBFlush, shape).workers);
}

TEST(InterleavedZb, DelaysTheWeightsGradientsByTheWorkersIndex) {
  const ScheduleShape shape = with_placement(
      Strategy::InterleavedZb, {.replicas = {1, 1, 1, 1}, .micro_batches = 2, .accumulate = 2}, 2);
  EXPECT_THAT(staged_lists_of(generate(Strategy::InterleavedZb, shape)),
              ElementsAre("0F0 0F1 2F0 2F1 2I0 2W0 2I1 2W1 0I0 0W0 0I1 0W1",
                          "1F0 1F1 3F0 3I0 3F1 3I1 3W0 1I0 3W1 1I1 1W0 1W1"));
}

TEST(InterleavedZb, WithOneChunkIsZbH1) {
  const ScheduleShape shape{.replicas = {1, 1, 1}, .micro_batches = 7, .accumulate = 5};
  EXPECT_EQ(
      generate(Strategy::InterleavedZb, with_placement(Strategy::InterleavedZb, shape, 1)).workers,
      generate(Strategy::ZbH1, shape).workers);
}

TEST(ZbV, HoldsTheFirstAndTheLastStageOnTheFirstWorker) {
  const ScheduleShape shape = with_placement(
      Strategy::ZbV, {.replicas = {1, 1, 1, 1}, .micro_batches = 3, .accumulate = 3}, 2);
  EXPECT_THAT(
      staged_lists_of(generate(Strategy::ZbV, shape)),
      ElementsAre("0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0I0 0W0 3F2 3I2 3W2 0I1 0W1 0I2 0W2",
                  "1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 2W1 1I1 2I2 1I2 1W1 2W2 1W2"));
}

TEST(DualPipeV, PairsForwardsWithBackwardsOfTheOtherStage) {
  const ScheduleShape shape = with_placement(
      Strategy::DualPipeV, {.replicas = {1, 1}, .micro_batches = 4, .accumulate = 4}, 2);
  EXPECT_THAT(staged_lists_of(generate(Strategy::DualPipeV, shape)),
              ElementsAre("0F0 1F0 0F1 1B0 1F1 0B0 0F2 1B1 1F2 0B1 0F3 1B2 1F3 0B2 1B3 0I3 0W3"));
  const ScheduleShape small = with_placement(
      Strategy::DualPipeV, {.replicas = {1, 1, 1, 1}, .micro_batches = 3, .accumulate = 3}, 2);
  EXPECT_EQ(generate(Strategy::DualPipeV, small).workers, generate(Strategy::ZbV, small).workers)
      << "too few micro-batches to pair";
}

TEST(DualPipe, RunsAForwardOfOneDirectionTogetherWithABackwardOfTheOther) {
  const ScheduleShape shape = with_placement(
      Strategy::DualPipe, {.replicas = {2, 2}, .micro_batches = 6, .accumulate = 6}, 1);
  const Schedule schedule = generate(Strategy::DualPipe, shape);
  EXPECT_THAT(staged_lists_of(schedule),
              ElementsAre("0F0 1F1 0F2 1B1 1F3 0B0 0F4 1B3 1F5 0B2 1B5 0I4 0W4",
                          "0F1 1F0 0F3 1B0 1F2 0B1 0F5 1B2 1F4 0B3 1B4 0I5 0W5"));
  std::string together;
  for (const Action& action : schedule.workers[0]) {
    if (action.with_next) together += to_text(action) + " ";
  }
  EXPECT_EQ(together, "1F3 0F4 1F5 ");
}

TEST(DualPipe, LeavesOutWhatIsMissing) {
  for (const int64_t micro_batches : {1, 2, 3, 5, 7, 13}) {
    const ScheduleShape shape = with_placement(
        Strategy::DualPipe,
        {.replicas = {2, 2, 2, 2}, .micro_batches = micro_batches, .accumulate = 13}, 1);
    for (const auto& list : generate(Strategy::DualPipe, shape).workers) {
      int64_t kept = 0;
      for (const Action& action : list)
        kept += action.op == Op::Forward ? 1 : makes_weight_gradients(action.op) ? -1 : 0;
      EXPECT_EQ(kept, 0);
    }
  }
}

TEST(Chimera, RunsEvenMicroBatchesDownAndOddOnesUp) {
  const ScheduleShape shape = with_placement(
      Strategy::Chimera, {.replicas = {2, 2, 2, 2}, .micro_batches = 4, .accumulate = 4}, 1);
  EXPECT_THAT(staged_lists_of(generate(Strategy::Chimera, shape)),
              ElementsAre("0F0 0F2 3F1 3B1 3F3 3B3 0B0 0B2", "1F0 2F1 1F2 2F3 2B1 1B0 2B3 1B2",
                          "1F1 2F0 1F3 2F2 2B0 1B1 2B2 1B3", "0F1 0F3 3F0 3B0 3F2 3B2 0B1 0B3"));
}

TEST(Chimera, MayBeginAMiniBatchUpwards) {
  const ScheduleShape shape = with_placement(
      Strategy::Chimera, {.replicas = {2, 2}, .micro_batches = 6, .accumulate = 3}, 1);
  EXPECT_THAT(staged_lists_of(generate(Strategy::Chimera, shape)),
              ElementsAre("0F0 1F1 1B1 0B0 0F2 0B2 0F4 1F3 1B3 0B4 1F5 1B5",
                          "0F1 1F0 1B0 0B1 1F2 1B2 0F3 1F4 1B4 0B3 0F5 0B5"));
}

TEST(Chunked, CopiesTakeTurns) {
  const ScheduleShape shape =
      with_placement(Strategy::ZbV, {.replicas = {2, 2}, .micro_batches = 3, .accumulate = 3}, 2);
  EXPECT_THAT(
      staged_lists_of(generate(Strategy::ZbV, shape)),
      ElementsAre("0F0 1F0 1I0 1W0 0F2 0I0 0W0 1F2 1I2 1W2 0I2 0W2", "0F1 1F1 1I1 1W1 0I1 0W1"));
}

TEST(ForwardOnly, HasNoBackward) {
  EXPECT_THAT(lists_of(generate(Strategy::ForwardOnly, {.replicas = {1, 2}, .micro_batches = 3})),
              ElementsAre("F0 F1 F2", "F0 F2", "F1"));
}

TEST(Generate, RefusesWhatAKindCannotRun) {
  EXPECT_THAT(refusal_of(Strategy::Serial, {.replicas = {2}}), HasSubstr("runs on 1 worker"));
  EXPECT_THAT(refusal_of(Strategy::DataParallel, {.replicas = {1, 1}}),
              HasSubstr("found 2 stages"));
  EXPECT_THAT(refusal_of(Strategy::OneFOneB, {.replicas = {1, 1}}),
              HasSubstr("cannot run with weight policy flush; its own is stash"));
  EXPECT_THAT(refusal_of(Strategy::GPipe, {.replicas = {1, 1}, .policy = WeightPolicy::Stash}),
              HasSubstr("cannot run with weight policy stash"));
  EXPECT_THAT(refusal_of(Strategy::GPipe, {.replicas = {1, 1}, .micro_batches = INT64_MAX}),
              HasSubstr("more than"));
}

TEST(ZbAuto, KeepsOnEachWorkerWhatItsStagesSay) {
  const auto most_kept = [](const Schedule& schedule) {
    std::vector<int64_t> most(schedule.workers.size());
    for (size_t w = 0; w < most.size(); ++w) {
      int64_t kept = 0;
      for (const Action& action : schedule.workers[w]) {
        if (action.op == Op::Forward) most[w] = std::max(most[w], ++kept);
        if (action.op == Op::BackwardWeight) --kept;
      }
    }
    return most;
  };
  ScheduleShape shape{.replicas = {1, 1, 1, 1}, .micro_batches = 12, .accumulate = 12};
  shape.keep = {4, 3, 2, 1};
  EXPECT_THAT(most_kept(generate(Strategy::ZbAuto, shape)), ElementsAre(4, 3, 2, 1));
  shape.keep = {5, 4, 0, 2};
  EXPECT_THAT(most_kept(generate(Strategy::ZbAuto, shape)),
              ElementsAre(Le(5), Le(4), Le(7), Le(2)));
  // The least of a worker's two stages counts.
  ScheduleShape v = with_placement(Strategy::ZbAutoV, shape);
  v.keep = {6, 3, 5, 0};
  EXPECT_THAT(most_kept(generate(Strategy::ZbAutoV, v)), ElementsAre(Le(6), 3));
  v.keep = {6, 1, 5, 0};
  EXPECT_THAT(refusal_of(Strategy::ZbAutoV, v), HasSubstr("keeps at least 2 micro-batches"));
  shape.keep = {4, 2, 1};
  EXPECT_THAT(refusal_of(Strategy::ZbAuto, shape), HasSubstr("keep has 3 entries"));
  shape.keep = {4, 3, 2, 1};
  EXPECT_THAT(refusal_of(Strategy::ZbH1, shape),
              HasSubstr("only these schedules keep what is asked for: zb-auto"));
}

TEST(Generate, RefusesPlacementsThatAKindCannotUse) {
  EXPECT_THAT(placement_refusal(Strategy::Interleaved, {.replicas = {1, 1, 1}}, 2),
              HasSubstr("divisible by the 2 chunks per worker, found 3"));
  EXPECT_THAT(placement_refusal(Strategy::Interleaved, {.replicas = {1, 1}}, 0),
              HasSubstr("at least 1 chunk"));
  EXPECT_THAT(placement_refusal(Strategy::Interleaved, {.replicas = {2, 1}}, 2),
              HasSubstr("found 2 of stage 0 and 1 of stage 1"));
  EXPECT_THAT(placement_refusal(Strategy::ZbV, {.replicas = {1, 1, 1}}, 2),
              HasSubstr("even number of stages, found 3"));
  EXPECT_THAT(placement_refusal(Strategy::DualPipeV, {.replicas = {1, 1}}, 3),
              HasSubstr("has 2 stages per worker, found 3 chunks"));
  EXPECT_THAT(placement_refusal(Strategy::GPipe, {.replicas = {1, 1}}, 2),
              HasSubstr("has 1 stages per worker, found 2 chunks"));
  EXPECT_THAT(placement_refusal(Strategy::Chimera, {.replicas = {1, 1}}, 1),
              HasSubstr("even number of replicas of each, found 1"));
  EXPECT_THAT(placement_refusal(Strategy::Chimera, {.replicas = {2, 2, 2}}, 1),
              HasSubstr("even number of stages, found 3"));
  EXPECT_THAT(placement_refusal(Strategy::Interleaved, {}, 2), HasSubstr("at least 1 stage"));
  EXPECT_THAT(refusal_of(Strategy::ZbV, {.replicas = {1, 1, 1, 1}}),
              HasSubstr("worker 0 holds 1 stages from stage 0 on"));
  EXPECT_THAT(
      refusal_of(Strategy::ZbV, {.replicas = {1, 1, 1, 1}, .worker_of_replica = {0, 1, 0, 1}}),
      HasSubstr("cannot run with this placement"));
  EXPECT_THAT(refusal_of(Strategy::Interleaved,
                         {.replicas = {1, 1, 1, 1}, .worker_of_replica = {0, 1, 1, 0}}),
              HasSubstr("cannot run with this placement"));
  EXPECT_THAT(
      refusal_of(Strategy::Interleaved, {.replicas = {1, 1, 1}, .worker_of_replica = {0, 1, 0}}),
      HasSubstr("cannot run with this placement"));
  EXPECT_THAT(
      refusal_of(Strategy::Interleaved, {.replicas = {2, 2}, .worker_of_replica = {0, 1, 1, 0}}),
      HasSubstr("cannot run with this placement"));
  EXPECT_THAT(
      refusal_of(Strategy::Chimera, {.replicas = {2, 2}, .worker_of_replica = {0, 1, 0, 1}}),
      HasSubstr("cannot run with this placement"));
  EXPECT_THAT(refusal_of(Strategy::GPipe, {.replicas = {1, 1}, .worker_of_replica = {0, 0}}),
              HasSubstr("runs one stage per worker"));
  EXPECT_THAT(refusal_of(Strategy::OneFOneBFlush, {.replicas = {1, 1}, .slack = 1}),
              HasSubstr("only schedule eager-1f1b has slack"));
}

TEST(Generate, CostsNoMoreThanItsActions) {
  // With work in proportion to stages times stages, or to stages times the length of a full
  // pipeline, this would not end.
  for (const Strategy kind :
       {Strategy::Interleaved, Strategy::InterleavedZb, Strategy::ZbV, Strategy::VHalf,
        Strategy::VMin, Strategy::DualPipeV, Strategy::DualPipe, Strategy::Chimera, Strategy::ZbH1,
        Strategy::ZbH2}) {
    const ScheduleShape shape{
        .replicas = std::vector<int>(200'000, traits(kind).replicas_per_copy()),
        .micro_batches = 3,
        .accumulate = 2};
    const Schedule schedule = generate(kind, with_placement(kind, shape));
    const int64_t computed = 3 * int64_t{200'000};
    // DualPipe splits the backwards at the ends alone.
    const bool splits = traits(kind).splits_backward;
    EXPECT_LE(schedule.num_actions(), (splits ? 3 : 2) * computed) << to_string(kind);
    EXPECT_GE(schedule.num_actions(), (splits && kind != Strategy::DualPipe ? 3 : 2) * computed)
        << to_string(kind);
  }
}

TEST(Generate, ManyIdleReplicasCostNothing) {
  // A loop over mini-batches for every worker would take 10^10 steps here.
  const ScheduleShape shape{.replicas = {100'000}, .micro_batches = 100'000, .accumulate = 1};
  EXPECT_EQ(generate(Strategy::GPipe, shape).num_actions(), 200'000);
  EXPECT_THROW(lower(generate(Strategy::GPipe, shape), {}), ConfigError);
}

TEST(Kinds, HaveNamesThatParseBack) {
  for (const Strategy kind : plan::scheduled_strategies()) {
    EXPECT_EQ(plan::parse_scheduled_strategy(to_string(kind)), kind);
    EXPECT_TRUE(supports(kind, default_policy(kind)));
    EXPECT_NE(traits(kind).summary, "");
  }
  EXPECT_THROW(plan::parse_scheduled_strategy("1F1B"), ConfigError);
  for (const auto policy : {WeightPolicy::Flush, WeightPolicy::Stash, WeightPolicy::VerticalSync,
                            WeightPolicy::TwoBuffered, WeightPolicy::Latest}) {
    EXPECT_EQ(plan::parse_weight_policy(to_string(policy)), policy);
  }
  EXPECT_THROW(plan::parse_weight_policy("none"), ConfigError);
}

TEST(DefaultAccumulate, SuitsTheReplicasAndTheDepth) {
  EXPECT_EQ(default_accumulate(Strategy::GPipe, {.replicas = {1, 1}, .micro_batches = 12}), 12);
  EXPECT_EQ(default_accumulate(Strategy::GPipe, {.replicas = {1, 1}, .micro_batches = 0}), 1);
  EXPECT_EQ(default_accumulate(Strategy::OneFOneB, {.replicas = {2, 3, 1}}), 6);
  EXPECT_EQ(default_accumulate(Strategy::TwoBuffered, {.replicas = {1, 1, 1, 1}}), 4);
  EXPECT_EQ(default_accumulate(Strategy::TwoBuffered, {.replicas = {2, 1, 1}}), 4);
  EXPECT_THROW(default_accumulate(Strategy::OneFOneB, {.replicas = {9999991, 9999973, 9999971}}),
               ConfigError);
}

}  // namespace penstock::schedule

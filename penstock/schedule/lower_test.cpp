#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/schedule/formats/text_format.h"
#include "penstock/schedule/generate.h"
#include "penstock/util/error.h"

namespace penstock::schedule {
namespace {

using ::testing::ElementsAre;

/// The lists as text, one string per worker.
std::vector<std::string> joined_lists_of(const Schedule& schedule) {
  std::vector<std::string> lists;
  for (const auto& actions : schedule.workers) {
    std::string text;
    for (const Action& action : actions) text += (text.empty() ? "" : ",") + to_text(action);
    lists.push_back(text);
  }
  return lists;
}

std::vector<std::string> lowered(Strategy kind, const ScheduleShape& shape) {
  return joined_lists_of(lower(generate(kind, shape), chain_links(shape.num_stages())));
}

}  // namespace

TEST(Lower, SerialUpdatesInPlace) {
  EXPECT_THAT(
      lowered(Strategy::Serial, {.replicas = {1}, .micro_batches = 3, .accumulate = 2}),
      ElementsAre("0F0@0,0B0@0,0F1@0,0B1@0,0FREE0@0,0STEP0@0,0F2@1,0B2@1,0FREE1@1,0STEP1@1"));
}

TEST(Lower, ReceivesComeBeforeAndSendsAfterTheCompute) {
  EXPECT_THAT(lowered(Strategy::GPipe, {.replicas = {1, 1}, .micro_batches = 1, .accumulate = 1}),
              ElementsAre("0F0@0,0SEND_F0,0RECV_B0,0B0@0,0FREE0@0,0STEP0@0",
                          "1RECV_F0,1F0@0,1B0@0,1SEND_B0,1FREE0@0,1STEP0@0"));
}

TEST(Lower, StashFreesAVersionAfterTheLastBackwardThatUsesIt) {
  EXPECT_THAT(
      lowered(
          Strategy::OneFOneB,
          {.replicas = {1, 1}, .micro_batches = 3, .accumulate = 1, .policy = WeightPolicy::Stash}),
      ElementsAre("0F0@0,0SEND_F0,0F1@0,0SEND_F1,0RECV_B0,0B0@0,0STEP0@0,0F2@1,0SEND_F2,0RECV_B1,"
                  "0B1@0,0FREE1@0,0STEP1@1,"
                  "0RECV_B2,0B2@1,0FREE2@1,0FREE2@2,0STEP2@2",
                  "1RECV_F0,1F0@0,1B0@0,1SEND_B0,1FREE0@0,1STEP0@0,1RECV_F1,1F1@1,1B1@1,1SEND_B1,"
                  "1FREE1@1,1STEP1@1,"
                  "1RECV_F2,1F2@2,1B2@2,1SEND_B2,1FREE2@2,1STEP2@2"));
}

TEST(Lower, NothingComesBetweenActionsThatRunTogether) {
  // The mini-batch ends in the pair's B, stage 0 recomputes, and version 0 is used last in it.
  const Schedule compute = parse_schedule(
      "# penstock schedule 1\n# kind: custom\n# replicas: 1 1\n# micro-batches: 2  accumulate: 1  "
      "weights: stash\n# recompute: 0\n# lowered: no\n"
      "0F0,(0F1;0B0)OVERLAP_F_B,0B1\n1F0,1B0,1F1,1B1\n",
      "s.txt");
  const Schedule full = lower(compute, chain_links(2));
  const std::string text = to_text(full);
  EXPECT_NE(text.find("\n0F0@0,0SEND_F0,0R0@0,0RECV_B0,(0F1@0;0B0@0)OVERLAP_F_B,0SEND_F1,0STEP0@0,"
                      "0R1@0,0RECV_B1,0B1@0,0FREE1@0,0FREE1@1,0STEP1@1\n"),
            std::string::npos)
      << text;
  EXPECT_EQ(parse_schedule(text, "s.txt"), full);
}

TEST(Lower, RefusesWhatCannotRunTogether) {
  for (const std::string list : {"(0F0;0F1)OVERLAP_F_B,0B0,0B1", "0F0,(0B0;0F1)OVERLAP_F_B,0B1",
                                 "(0F0;0B0)OVERLAP_F_B,0F1,0B1", "0F0,0B0,0F1,(0B1)OVERLAP_F_B"}) {
    const Schedule compute = parse_schedule(
        "# penstock schedule 1\n# replicas: 1\n# micro-batches: 2  accumulate: 2  weights: "
        "flush\n# lowered: no\n" +
            list + "\n",
        "s.txt");
    EXPECT_THROW(lower(compute, {}), ConfigError) << list;
  }
}

/// A compute-only schedule of one mini-batch, from actions such as {Op::Forward, stage,
/// micro-batch}.
struct Step {
  Op op;
  int32_t stage;
  int64_t micro_batch;
};
Schedule by_hand(const ScheduleShape& shape, const std::vector<std::vector<Step>>& lists) {
  Schedule schedule{.kind = "custom", .shape = shape, .workers = {}};
  for (const auto& list : lists) {
    auto& actions = schedule.workers.emplace_back();
    for (const Step& step : list) {
      const MicroBatchId b{step.micro_batch};
      actions.push_back({.op = step.op,
                         .stage = StageId{step.stage},
                         .micro_batch = b,
                         .mini_batch = shape.mini_batch_of(b),
                         .peer = StageId{step.stage}});
    }
  }
  return schedule;
}

TEST(Lower, StagesOfOneWorkerExchangeNoMessagesAndStepTogether) {
  // A V on two workers: stages 1 and 2 are neighbours on worker 1.
  const ScheduleShape shape{.replicas = {1, 1, 1, 1},
                            .micro_batches = 1,
                            .accumulate = 1,
                            .worker_of_replica = {0, 1, 1, 0}};
  const Schedule compute = by_hand(
      shape,
      {{{Op::Forward, 0, 0},
        {Op::Forward, 3, 0},
        {Op::Backward, 3, 0},
        {Op::BackwardInput, 0, 0},
        {Op::BackwardWeight, 0, 0}},
       {{Op::Forward, 1, 0}, {Op::Forward, 2, 0}, {Op::Backward, 2, 0}, {Op::Backward, 1, 0}}});
  EXPECT_THAT(joined_lists_of(lower(compute, chain_links(4))),
              ElementsAre("0F0@0,0SEND_F0,3RECV_F0,3F0@0,3B0@0,3SEND_B0,0RECV_B0,0I0@0,0W0@0,"
                          "0FREE0@0,0STEP0@0,3FREE0@0,3STEP0@0",
                          "1RECV_F0,1F0@0,2F0@0,2SEND_F0,2RECV_B0,2B0@0,1B0@0,1SEND_B0,1FREE0@0,"
                          "1STEP0@0,2FREE0@0,2STEP0@0"));
}

TEST(Lower, SyncsAndNormsOfSharedWorkersHaveOneOrder) {
  // Two stages in both directions.
  const ScheduleShape shape{.replicas = {2, 2},
                            .micro_batches = 2,
                            .accumulate = 2,
                            .worker_of_replica = {0, 1, 1, 0},
                            .recompute = {false, true},
                            .global_norm = true};
  const Schedule compute = by_hand(
      shape,
      {{{Op::Forward, 0, 0}, {Op::Forward, 1, 1}, {Op::Backward, 1, 1}, {Op::Backward, 0, 0}},
       {{Op::Forward, 0, 1}, {Op::Forward, 1, 0}, {Op::Backward, 1, 0}, {Op::Backward, 0, 1}}});
  EXPECT_THAT(joined_lists_of(lower(compute, chain_links(2))),
              ElementsAre("0F0@0,0SEND_F0,1RECV_F1,1F1@0,1R1@0,1B1@0,1SEND_B1,0RECV_B0,0B0@0,"
                          "0SYNC0,1SYNC0,0NORM0,0FREE0@0,0STEP0@0,1FREE0@0,1STEP0@0",
                          "0F1@0,0SEND_F1,1RECV_F0,1F0@0,1R0@0,1B0@0,1SEND_B0,0RECV_B1,0B1@0,"
                          "0SYNC0,1SYNC0,0NORM0,0FREE0@0,0STEP0@0,1FREE0@0,1STEP0@0"));
}

TEST(Lower, MovesActivationsWhereTwoOtherActionsComeBetween) {
  const ScheduleShape shape{
      .replicas = {1, 1}, .micro_batches = 4, .accumulate = 4, .offload = {true, false}};
  EXPECT_EQ(lowered(Strategy::GPipe, shape)[0],
            "0F0@0,0SEND_F0,0OFFLOAD0,0F1@0,0SEND_F1,0OFFLOAD1,0F2@0,0SEND_F2,0OFFLOAD2,0LOAD0,"
            "0F3@0,0SEND_F3,0OFFLOAD3,0LOAD1,0RECV_B0,0B0@0,0LOAD2,0RECV_B1,0B1@0,0LOAD3,0RECV_B2,"
            "0B2@0,0RECV_B3,0B3@0,0FREE0@0,0STEP0@0");
  // The last stage has its backward directly behind the forward.
  const ScheduleShape last{
      .replicas = {1, 1}, .micro_batches = 3, .accumulate = 3, .offload = {false, true}};
  EXPECT_EQ(lowered(Strategy::OneFOneBFlush, last)[1],
            lowered(Strategy::OneFOneBFlush,
                    {.replicas = {1, 1}, .micro_batches = 3, .accumulate = 3})[1]);
}

TEST(Lower, RecomputesWhileTheGradientsTravelUnlessTheListHasRAlready) {
  const ScheduleShape shape{
      .replicas = {1, 1}, .micro_batches = 1, .accumulate = 1, .recompute = {true, false}};
  const std::vector<Step> last = {{Op::Forward, 1, 0}, {Op::Backward, 1, 0}};
  const std::string expected = "0F0@0,0SEND_F0,0R0@0,0RECV_B0,0B0@0,0FREE0@0,0STEP0@0";
  EXPECT_EQ(
      joined_lists_of(lower(by_hand(shape, {{{Op::Forward, 0, 0}, {Op::Backward, 0, 0}}, last}),
                            chain_links(2)))[0],
      expected);
  EXPECT_EQ(joined_lists_of(lower(
                by_hand(shape,
                        {{{Op::Forward, 0, 0}, {Op::Recompute, 0, 0}, {Op::Backward, 0, 0}}, last}),
                chain_links(2)))[0],
            expected);
}

TEST(Lower, VerticalSyncUsesTheInputStagesVersionEverywhere) {
  const Schedule full = lower(generate(Strategy::OneFOneB, {.replicas = {1, 1},
                                                            .micro_batches = 4,
                                                            .accumulate = 1,
                                                            .policy = WeightPolicy::VerticalSync}),
                              chain_links(2));
  std::vector<std::vector<int64_t>> versions(2, std::vector<int64_t>(4));
  for (size_t w = 0; w < 2; ++w) {
    for (const Action& action : full.workers[w]) {
      if (is_compute(action.op)) versions[w][action.micro_batch.index()] = action.version.value;
    }
  }
  EXPECT_THAT(versions[0], ElementsAre(0, 0, 1, 2));
  EXPECT_EQ(versions[1], versions[0]);
}

TEST(Lower, LatestMixesVersionsOfForwardAndBackward) {
  EXPECT_THAT(lowered(Strategy::OneFOneB, {.replicas = {1, 1},
                                           .micro_batches = 2,
                                           .accumulate = 1,
                                           .policy = WeightPolicy::Latest})[0],
              "0F0@0,0SEND_F0,0F1@0,0SEND_F1,0RECV_B0,0B0@0,0FREE0@0,0STEP0@0,0RECV_B1,0B1@1,"
              "0FREE1@1,0STEP1@1");
}

TEST(Lower, ReplicasSyncBeforeTheStepEvenWithoutAMicroBatchOfTheMiniBatch) {
  EXPECT_THAT(
      lowered(Strategy::DataParallel, {.replicas = {2}, .micro_batches = 3, .accumulate = 1}),
      ElementsAre("0F0@0,0B0@0,0SYNC0,0FREE0@0,0STEP0@0,0SYNC1,0FREE1@1,0STEP1@1,0F2@2,0B2@"
                  "2,0SYNC2,0FREE2@2,0STEP2@2",
                  "0SYNC0,0FREE0@0,0STEP0@0,0F1@1,0B1@1,0SYNC1,0FREE1@1,0STEP1@1,0SYNC2,"
                  "0FREE2@2,0STEP2@2"));
}

TEST(Lower, StepsBeforeTheFirstBackwardComeBeforeTheForwardThatLeadsToIt) {
  // Replica 1 of stage 0 has no micro-batch of mini-batch 0: its step comes before F3, which B1
  // follows directly.
  EXPECT_THAT(lowered(Strategy::OneFOneB, {.replicas = {2, 1},
                                           .micro_batches = 4,
                                           .accumulate = 1,
                                           .policy = WeightPolicy::Stash})[1],
              "0F1@0,0SEND_F1,0SYNC0,0STEP0@0,0F3@1,0SEND_F3,0RECV_B1,0B1@0,0FREE1@0,0SYNC1,0STEP1@"
              "1,0SYNC2,0FREE2@2,0STEP2@2,"
              "0RECV_B3,0B3@1,0FREE3@1,0SYNC3,0FREE3@3,0STEP3@3");
}

TEST(Lower, SkipLinksNameTheOtherStage) {
  const Schedule full =
      lower(generate(Strategy::ForwardOnly, {.replicas = {1, 1, 1}, .micro_batches = 1}),
            {{StageId{0}, StageId{2}},
             {StageId{0}, StageId{1}},
             {StageId{1}, StageId{2}},
             {StageId{0}, StageId{1}}});
  EXPECT_THAT(joined_lists_of(full),
              ElementsAre("0F0@0,0SEND_F0,0SEND_F0>2", "1RECV_F0,1F0@0,1SEND_F0",
                          "2RECV_F0<0,2RECV_F0,2F0@0"));
}

TEST(Lower, ForwardOnlyHasNoStep) {
  EXPECT_THAT(
      lowered(Strategy::ForwardOnly, {.replicas = {1}, .micro_batches = 3, .accumulate = 1}),
      ElementsAre("0F0@0,0F1@0,0F2@0"));
}

TEST(Lower, AnEmptyScheduleStaysEmpty) {
  EXPECT_THAT(lowered(Strategy::GPipe, {.replicas = {1, 2}, .micro_batches = 0}),
              ElementsAre("", "", ""));
}

TEST(Lower, RefusesWhatItCannotComplete) {
  const Schedule compute =
      generate(Strategy::GPipe, {.replicas = {1, 1}, .micro_batches = 2, .accumulate = 2});
  EXPECT_THROW(lower(lower(compute, chain_links(2)), chain_links(2)), ConfigError);
  EXPECT_THROW(lower(compute, {{StageId{1}, StageId{0}}}), ConfigError);
  EXPECT_THROW(lower(compute, {{StageId{1}, StageId{1}}}), ConfigError);
  EXPECT_THROW(lower(compute, {{StageId{0}, StageId{2}}}), ConfigError);
  EXPECT_THROW(lower(compute, {{StageId{-1}, StageId{1}}}), ConfigError);
  Schedule misplaced = compute;
  misplaced.workers[0][0].stage = StageId{1};
  EXPECT_THROW(lower(misplaced, chain_links(2)), ConfigError);
  Schedule beyond = compute;
  beyond.workers[0][0].micro_batch = MicroBatchId{2};
  EXPECT_THROW(lower(beyond, chain_links(2)), ConfigError);
  Schedule missing = compute;
  missing.workers.pop_back();
  EXPECT_THROW(lower(missing, chain_links(2)), ConfigError);
}

}  // namespace penstock::schedule

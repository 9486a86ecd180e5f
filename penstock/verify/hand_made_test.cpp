// Hand-made schedules with several stages per worker, split backward, recomputation and norms:
// sound ones pass, and each kind of damage is reported with its cause.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "penstock/verify/testing_schedules.h"
#include "penstock/verify/verify.h"

namespace penstock::verify::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

Schedule parse_lowered(const std::string& header, const std::string& lists) {
  return schedule::parse_schedule(
      "# penstock schedule 1\n# weights: flush\n# lowered: yes\n" + header + lists, "s.txt");
}

/// The rules' names and messages, one per line.
std::string report(const Schedule& schedule, const Options& options = {}) {
  std::string text;
  for (const Violation& violation : verify(schedule, options))
    text += violation.rule + ": " + violation.message + "\n";
  return text;
}

// Stages 0 and 1 on one worker, one micro-batch.
constexpr const char* kTwoOnOne =
    "# replicas: 1 1\n# hosts: 0 0\n# micro-batches: 1  accumulate: 1\n";
constexpr const char* kUpdates = "0FREE0@0,0STEP0@0,1FREE0@0,1STEP0@0\n";
// A V on two workers: stages 0 and 3, stages 1 and 2.
constexpr const char* kV =
    "# replicas: 1 1 1 1\n# hosts: 0 1 1 0\n# micro-batches: 1  accumulate: 1\n";
constexpr const char* kVUpdates0 = "0FREE0@0,0STEP0@0,3FREE0@0,3STEP0@0\n";
constexpr const char* kVUpdates1 = "1FREE0@0,1STEP0@0,2FREE0@0,2STEP0@0\n";

Schedule v_schedule() {
  return parse_lowered(
      kV, std::string("0F0@0,0SEND_F0,3RECV_F0,3F0@0,3I0@0,3SEND_B0,3W0@0,0RECV_B0,0B0@0,") +
              kVUpdates0 +
              "1RECV_F0,1F0@0,2F0@0,2SEND_F0,2RECV_B0,2I0@0,1I0@0,1SEND_B0,1W0@0,2W0@0," +
              kVUpdates1);
}

}  // namespace

TEST(HandMade, TwoStagesOfOneWorkerExchangeNoMessage) {
  EXPECT_EQ(report(parse_lowered(kTwoOnOne, std::string("0F0@0,1F0@0,1B0@0,0B0@0,") + kUpdates)),
            "");
}

// Two branches, each a pair of stages: 0 passes its outputs to 3 and 1 to 2 on the same worker, 2
// sends to 3.
TEST(HandMade, AStageMayBeLinkedOnlyToStagesOfItsWorker) {
  EXPECT_EQ(report(schedule::lower(
                schedule::parse_schedule("# penstock schedule 1\n# weights: flush\n" +
                                             std::string(kV) + "0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0\n",
                                         "s.txt"),
                {{StageId{0}, StageId{3}}, {StageId{1}, StageId{2}}, {StageId{2}, StageId{3}}})),
            "");
}

TEST(HandMade, AStageWithoutALinkToAnyOtherIsIsolated) {
  // Stage 0's micro-batch 0 runs on worker 0, stage 1's on worker 1; with the second micro-batch
  // they are exchanged.
  const std::string updates = "0SYNC0,1SYNC0,0FREE0@0,0STEP0@0,1FREE0@0,1STEP0@0\n";
  EXPECT_EQ(
      report(parse_lowered(
          "# replicas: 2 2\n# hosts: 0 1 1 0\n# micro-batches: 2  accumulate: 2\n",
          "0F0@0,0B0@0,1F1@0,1B1@0," + updates + "1F0@0,1B0@0,0F1@0,0B1@0," + updates)),
      "pairing: stage 0 exchanges no message with any other\npairing: stage 1 exchanges no message "
      "with any other\n");
}

TEST(HandMade, AMessageToTheSameWorkerIsRefused) {
  EXPECT_EQ(report(parse_lowered(
                kTwoOnOne, std::string("0F0@0,0SEND_F0,1RECV_F0,1F0@0,1B0@0,0B0@0,") + kUpdates)),
            "pairing: worker 0, 0SEND_F0: both stages run micro-batch 0 on this worker, so nothing "
            "is sent\n"
            "pairing: worker 0, 1RECV_F0: both stages run micro-batch 0 on this worker, so nothing "
            "is sent\n");
}

TEST(HandMade, StagesOfOneWorkerRunInTheOrderOfTheirData) {
  EXPECT_EQ(report(parse_lowered(kTwoOnOne, std::string("1F0@0,0F0@0,1B0@0,0B0@0,") + kUpdates)),
            "order: worker 0, 0F0@0: comes after the forward of stage 1 on the same worker, which "
            "needs its data\n");
  EXPECT_EQ(report(parse_lowered(kTwoOnOne, std::string("0F0@0,1F0@0,0B0@0,1B0@0,") + kUpdates)),
            "order: worker 0, 1B0@0: comes after the backward of stage 0 on the same worker, "
            "which needs its data\n");
}

TEST(HandMade, AVWithSplitBackwardIsSound) { EXPECT_EQ(report(v_schedule()), ""); }

TEST(HandMade, ASplitBackwardSendsAfterI) {
  EXPECT_EQ(
      report(parse_lowered(
          kV, std::string("0F0@0,0SEND_F0,3RECV_F0,3F0@0,3SEND_B0,3I0@0,3W0@0,0RECV_B0,0B0@0,") +
                  kVUpdates0 +
                  "1RECV_F0,1F0@0,2F0@0,2SEND_F0,2RECV_B0,2I0@0,1I0@0,1SEND_B0,1W0@0,2W0@0," +
                  kVUpdates1)),
      "order: worker 0, 3SEND_B0: comes before the backward that makes the data\n");
}

TEST(HandMade, StepsWaitForTheLastW) {
  EXPECT_EQ(report(parse_lowered("# replicas: 1\n# micro-batches: 1  accumulate: 1\n",
                                 "0F0@0,0I0@0,0STEP0@0,0W0@0,0FREE0@0\n")),
            "order: worker 0, 0W0@0: comes after the step of its mini-batch 0\n");
}

TEST(HandMade, AnIWithoutItsWIsIncomplete) {
  EXPECT_EQ(report(parse_lowered("# replicas: 1\n# micro-batches: 1  accumulate: 1\n",
                                 "0F0@0,0I0@0,0FREE0@0,0STEP0@0\n")),
            "complete: worker 0, 0W0: is missing\n");
}

TEST(HandMade, RecomputationComesBetweenTheForwardAndTheGradients) {
  const std::string header = "# replicas: 1 1\n# micro-batches: 1  accumulate: 1\n# recompute: 0\n";
  const std::string last = "1RECV_F0,1F0@0,1B0@0,1SEND_B0,1FREE0@0,1STEP0@0\n";
  EXPECT_EQ(report(parse_lowered(header,
                                 "0F0@0,0SEND_F0,0R0@0,0RECV_B0,0B0@0,0FREE0@0,0STEP0@0\n" + last)),
            "");
  EXPECT_EQ(report(parse_lowered(header,
                                 "0F0@0,0SEND_F0,0RECV_B0,0R0@0,0B0@0,0FREE0@0,0STEP0@0\n" + last)),
            "order: worker 0, 0R0@0: comes after a receive of its gradients\n");
  EXPECT_EQ(
      report(parse_lowered(header, "0F0@0,0SEND_F0,0RECV_B0,0B0@0,0FREE0@0,0STEP0@0\n" + last)),
      "complete: worker 0, 0R0: is missing\n");
  EXPECT_EQ(report(parse_lowered(
                header, "0F0@0,0SEND_F0,0R0@0,0R0@0,0RECV_B0,0B0@0,0FREE0@0,0STEP0@0\n" + last)),
            "complete: worker 0, 0R0@0: occurs more than once\n");
}

TEST(HandMade, NormsWaitForAllWorkers) {
  const std::string header = "# replicas: 1 1\n# micro-batches: 1  accumulate: 1\n# norm: yes\n";
  const std::string first = "0F0@0,0SEND_F0,0RECV_B0,0B0@0,0NORM0,0FREE0@0,0STEP0@0\n";
  EXPECT_EQ(report(parse_lowered(
                header, first + "1RECV_F0,1F0@0,1B0@0,1SEND_B0,1NORM0,1FREE0@0,1STEP0@0\n")),
            "");
  EXPECT_EQ(
      report(parse_lowered(header, first + "1RECV_F0,1F0@0,1B0@0,1SEND_B0,1FREE0@0,1STEP0@0\n")),
      "complete: worker 1, 1NORM0: is missing\n"
      "order: worker 1, 1STEP0@0: the norm of its mini-batch does not come before it\n"
      "deadlock: worker 0, 0NORM0: worker 0 at 0NORM0 waits for worker 1 to join, whose list "
      "has ended\n");
  // Worker 1 joins before it has sent the gradients that worker 0 needs to join.
  EXPECT_THAT(
      report(parse_lowered(header,
                           first + "1RECV_F0,1F0@0,1B0@0,1NORM0,1SEND_B0,1FREE0@0,1STEP0@0\n")),
      HasSubstr("deadlock: worker 0, 0RECV_B0: with 1 credit per channel, 2 workers wait in a "
                "cycle: worker 0 at 0RECV_B0 waits for "
                "worker 1 to send; worker 1 at 1NORM0 waits for worker 0 to join"));
}

TEST(HandMade, NormsAreMarkedWithTheWorkersFirstStage) {
  EXPECT_EQ(report(parse_lowered(std::string(kTwoOnOne) + "# norm: yes\n",
                                 std::string("0F0@0,1F0@0,1B0@0,0B0@0,1NORM0,") + kUpdates)),
            "complete: worker 0, 1NORM0: must be marked with the worker's first stage, 0\n");
}

TEST(HandMade, ComputeListsHoldOnlyComputeActions) {
  EXPECT_EQ(report(schedule::parse_schedule(
                "# penstock schedule 1\n# replicas: 1\n# micro-batches: 1  accumulate: 1  weights: "
                "flush\n# lowered: no\n0F0,0B0,0STEP0\n",
                "s.txt")),
            "complete: worker 0, 0STEP0: occurs in a schedule that is not lowered\n");
}

TEST(HandMade, SyncsOfTwoStagesInDifferentOrdersDeadlock) {
  Schedule bad = full_schedule(
      Strategy::Chimera,
      shape_for(Strategy::Chimera, {.replicas = {2, 2}, .micro_batches = 2, .accumulate = 2})
          .value());
  auto& list = bad.workers[1];
  const auto first = std::find_if(
      list.begin(), list.end(), [](const auto& a) { return a.op == schedule::Op::SyncGradients; });
  std::swap(first[0], first[1]);
  EXPECT_EQ(report(bad),
            "deadlock: worker 0, 0SYNC0: with 1 credit per channel, 2 workers wait in a cycle: "
            "worker 0 at 0SYNC0 waits for worker 1 to join; "
            "worker 1 at 1SYNC0 waits for worker 0 to join\n");
}

TEST(HandMade, GradientsComeBackAlongEveryLink) {
  EXPECT_THAT(
      report(parse_lowered(
          "# replicas: 1 1\n# micro-batches: 1  accumulate: 1\n",
          "0F0@0,0SEND_F0,0B0@0,0FREE0@0,0STEP0@0\n1RECV_F0,1F0@0,1B0@0,1FREE0@0,1STEP0@0\n")),
      HasSubstr("pairing: stage 0 sends outputs to stage 1, which sends no gradients back"));
}

TEST(HandMade, AMessageThatBothEndsLeaveOutIsReported) {
  EXPECT_EQ(
      report(
          parse_lowered("# replicas: 1 1\n# micro-batches: 2  accumulate: 2\n",
                        "0F0@0,0SEND_F0,0F1@0,0RECV_B0,0B0@0,0RECV_B1,0B1@0,0FREE0@0,0STEP0@0\n"
                        "1RECV_F0,1F0@0,1B0@0,1SEND_B0,1F1@0,1B1@0,1SEND_B1,1FREE0@0,1STEP0@0\n")),
      "pairing: worker 1, 1RECV_F1: is missing and not sent; other micro-batches use the link\n");
}

TEST(HandMade, SeveralLinksBetweenTwoWorkersShareTheirChannel) {
  // Stages 0 and 2 on worker 0, 1 and 3 on worker 1; worker 0 sends for both before worker 1
  // receives in the other order.
  const std::string header =
      "# replicas: 1 1 1 1\n# hosts: 0 1 0 1\n# micro-batches: 2  accumulate: 2\n";
  const Schedule schedule =
      lower(schedule::parse_schedule(
                "# penstock schedule 1\n# weights: flush\n# lowered: no\n" + header +
                    "0F0,2F0,0F1,2F1,2B0,0B0,2B1,0B1\n1F0,3F0,3B0,1F1,3F1,1B0,3B1,1B1\n",
                "s.txt"),
            schedule::chain_links(4));
  EXPECT_EQ(min_credits(schedule), 1);
  Schedule late = schedule;
  auto& list = late.workers[1];
  // Worker 1 takes 0SEND_F1 before 2SEND_F0, which worker 0 sends first.
  const auto later = std::find_if(list.begin(), list.end(), [](const auto& a) {
    return a.op == schedule::Op::RecvForward && a.stage == StageId{1} &&
           a.micro_batch == MicroBatchId{1};
  });
  const auto earlier = std::find_if(list.begin(), list.end(), [](const auto& a) {
    return a.op == schedule::Op::RecvForward && a.stage == StageId{3};
  });
  std::rotate(earlier, later, later + 1);
  EXPECT_EQ(min_credits(late), 2);
}

TEST(Counterexample, SaysWhereEveryWorkerIsAndWhatItWaitsFor) {
  Schedule bad = v_schedule();
  auto& list = bad.workers[0];
  std::rotate(list.begin(), list.begin() + 7, list.begin() + 8);  // 0RECV_B0
  const std::optional<Counterexample> found = find_deadlock(bad);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->blocked,
            (std::vector<Counterexample::Stop>{{WorkerId{0}, 0}, {WorkerId{1}, 0}}));
  EXPECT_EQ(found->cycle,
            (std::vector<Counterexample::Wait>{{WorkerId{0}, 0, WorkerId{1}, "to send"},
                                               {WorkerId{1}, 0, WorkerId{0}, "to send"}}));
  EXPECT_THAT(found->abandoned, IsEmpty());
  EXPECT_FALSE(find_deadlock(v_schedule()).has_value());
}

TEST(Counterexample, IsAWorkersWaitForItselfWhenItsListIsInTheWrongOrder) {
  Schedule bad =
      schedule::generate(Strategy::ZbH1, {.replicas = {1, 1}, .micro_batches = 2, .accumulate = 2});
  auto& list = bad.workers[1];
  const auto weights = std::find_if(
      list.begin(), list.end(), [](const auto& a) { return a.op == schedule::Op::BackwardWeight; });
  std::rotate(list.begin(), weights, weights + 1);
  const std::optional<Counterexample> found = find_deadlock(bad);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->cycle,
            (std::vector<Counterexample::Wait>{{WorkerId{1}, 0, WorkerId{1}, "for its data"}}));
}

TEST(Memory, CountsEachThingWhileItIsHeld) {
  // Stage 1 recomputes. At its R the worker holds both versions, both gradients, the whole stashes
  // of both stages, and stage 1's inputs, which the recomputation needs.
  const Schedule schedule = parse_lowered(
      "# replicas: 1 1\n# hosts: 0 0\n# micro-batches: 1  accumulate: 1\n# recompute: 1\n",
      std::string("0F0@0,1F0@0,1R0@0,1I0@0,0I0@0,0W0@0,1W0@0,") + kUpdates);
  const Options options{.memory_limit_bytes = 11'110'166,
                        .stash_bytes = {10, 50},
                        .weight_bytes = {1'000'000, 10'000'000},
                        .input_bytes = {7, 3},
                        .gradient_bytes = {100, 110'003}};
  ASSERT_EQ(report(schedule, options), "");
  EXPECT_EQ(peaks(schedule, options), (std::vector<WorkerPeaks>{{2, 2, 11'110'166}}));
  Options less = options;
  --*less.memory_limit_bytes;
  EXPECT_EQ(report(schedule, less),
            "memory: worker 0, 1R0@0: needs 11110166 bytes (2 weight versions, 2 stashed "
            "micro-batches), the limit is 11110165\n");
}

TEST(Memory, IsFreedByWNotByI) {
  const std::string header = "# replicas: 1\n# micro-batches: 2  accumulate: 2\n";
  const Options options{.stash_bytes = {10}};
  EXPECT_EQ(peaks(parse_lowered(header, "0F0@0,0I0@0,0F1@0,0I1@0,0W0@0,0W1@0,0FREE0@0,0STEP0@0\n"),
                  options)[0]
                .bytes,
            20);
  EXPECT_EQ(peaks(parse_lowered(header, "0F0@0,0I0@0,0W0@0,0F1@0,0I1@0,0W1@0,0FREE0@0,0STEP0@0\n"),
                  options)[0]
                .bytes,
            10);
}

// The same case as in simulate/memory_test.cpp: 8 inputs, and the one stash whose backward runs.
TEST(Memory, NeedsOnlyInputsUntilTheRecomputation) {
  ScheduleShape shape{.replicas = {1, 1, 1, 1},
                      .micro_batches = 8,
                      .accumulate = 8,
                      .recompute = {true, true, true, true}};
  const Schedule schedule = full_schedule(Strategy::GPipe, shape);
  const Options options{.stash_bytes = {100, 100, 100, 100}, .input_bytes = {1, 1, 1, 1}};
  for (const WorkerPeaks& peak : peaks(schedule, options)) EXPECT_EQ(peak.bytes, 108);
}

TEST(Memory, SaturatesAndKeepsCountingBeyondTheRange) {
  const Schedule schedule =
      parse_lowered(kTwoOnOne, std::string("0F0@0,1F0@0,1B0@0,0B0@0,") + kUpdates);
  EXPECT_EQ(
      peaks(schedule, {.stash_bytes = {INT64_MAX, INT64_MAX}, .weight_bytes = {INT64_MAX, -5}})[0]
          .bytes,
      INT64_MAX);
}

}  // namespace penstock::verify::testing

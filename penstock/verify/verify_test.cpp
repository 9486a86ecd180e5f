#include "penstock/verify/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "penstock/util/error.h"
#include "penstock/verify/testing_schedules.h"

namespace penstock::verify::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

Schedule parse(const std::string& header, const std::string& lists) {
  return schedule::parse_schedule("# penstock schedule 1\n" + header + lists, "s.txt");
}

constexpr const char* kOneWorker =
    "# replicas: 1\n# micro-batches: 1  accumulate: 1  weights: flush\n# lowered: yes\n";
constexpr const char* kTwoWorkers =
    "# replicas: 1 1\n# micro-batches: 1  accumulate: 1  weights: flush\n# lowered: yes\n";

std::vector<std::string> rules_of(const std::vector<Violation>& violations) {
  std::vector<std::string> rules;
  for (const Violation& violation : violations) {
    if (rules.empty() || rules.back() != violation.rule) rules.push_back(violation.rule);
  }
  return rules;
}

}  // namespace

// The smallest schedule that breaks each rule, as in the rules' files.

TEST(Verify, ASoundScheduleHasNoViolation) {
  EXPECT_THAT(verify(parse(kOneWorker, "0F0@0,0B0@0,0FREE0@0,0STEP0@0\n")), IsEmpty());
}

TEST(CompleteRule, ReportsAMissingBackward) {
  const auto violations = verify(parse(kOneWorker, "0F0@0,0FREE0@0,0STEP0@0\n"));
  ASSERT_EQ(rules_of(violations), std::vector<std::string>{"complete"});
  EXPECT_EQ(violations[0].worker, WorkerId{0});
  EXPECT_EQ(violations[0].action, "0B0");
  EXPECT_EQ(violations[0].message, "worker 0, 0B0: is missing");
}

TEST(OrderRule, RequiresTheForwardFirst) {
  EXPECT_EQ(rules_of(verify(parse(kOneWorker, "0B0@0,0F0@0,0FREE0@0,0STEP0@0\n"))),
            std::vector<std::string>{"order"});
}

TEST(OrderRule, RequiresAForwardAndABackwardOfAnotherMicroBatchToRunTogether) {
  const std::string header =
      "# replicas: 1\n# micro-batches: 2  accumulate: 2  weights: flush\n# lowered: yes\n";
  const std::string end = ",0FREE0@0,0STEP0@0\n";
  EXPECT_THAT(verify(parse(header, "0F0@0,(0F1@0;0B0@0)OVERLAP_F_B,0B1@0" + end)), IsEmpty());
  for (const std::string list :
       {"(0F0@0;0F1@0)OVERLAP_F_B,0B0@0,0B1@0", "0F0@0,0F1@0,(0B0@0;0B1@0)OVERLAP_F_B",
        "0F0@0,(0F1@0;0B1@0)OVERLAP_F_B,0B0@0", "0F0@0,0F1@0,0B0@0,(0B1@0)OVERLAP_F_B"}) {
    const auto violations = verify(parse(header, list + end));
    ASSERT_EQ(rules_of(violations), std::vector<std::string>{"order"}) << list;
    EXPECT_THAT(violations[0].message, HasSubstr("runs together with the next action")) << list;
  }
}

TEST(DeadlockRule, KnowsThatActionsWhichRunTogetherWaitForEachOthersData) {
  // The pair's B needs the gradient that stage 1 makes after the forward that the pair makes.
  const std::string header =
      "# replicas: 1 1\n# micro-batches: 2  accumulate: 2  weights: flush\n# lowered: no\n";
  const std::string second = "\n1F0,1F1,1B0,1B1\n";
  EXPECT_THAT(verify(parse(header, "0F0,0F1,0B0,0B1" + second)), IsEmpty());
  const Schedule waits = parse(header, "0F0,(0F1;0B0)OVERLAP_F_B,0B1" + second);
  const auto violations = verify(waits);
  ASSERT_EQ(rules_of(violations), std::vector<std::string>{"deadlock"});
  EXPECT_THAT(violations[0].message, HasSubstr("worker 0 at 0F1 waits for worker 1"));
  EXPECT_EQ(rules_of(verify(schedule::lower(waits, schedule::chain_links(2)))),
            std::vector<std::string>{"deadlock"});
}

TEST(PairingRule, RequiresAReceiveForEverySend) {
  const auto violations = verify(parse(
      kTwoWorkers,
      "0F0@0,0SEND_F0,0RECV_B0,0B0@0,0FREE0@0,0STEP0@0\n1F0@0,1B0@0,1SEND_B0,1FREE0@0,1STEP0@0\n"));
  ASSERT_EQ(rules_of(violations), std::vector<std::string>{"pairing"});
  EXPECT_EQ(violations[0].message, "worker 0, 0SEND_F0: worker 1 never receives it");
}

TEST(PairingRule, RequiresAMessageBetweenStages) {
  const auto violations =
      verify(parse(kTwoWorkers, "0F0@0,0B0@0,0FREE0@0,0STEP0@0\n1F0@0,1B0@0,1FREE0@0,1STEP0@0\n"));
  EXPECT_EQ(rules_of(violations), std::vector<std::string>{"pairing"});
}

TEST(DeadlockRule, NamesTheCycle) {
  const auto violations = verify(parse(kTwoWorkers,
                                       "0RECV_B0,0F0@0,0SEND_F0,0B0@0,0FREE0@0,0STEP0@0\n1RECV_F0,"
                                       "1F0@0,1B0@0,1SEND_B0,1FREE0@0,1STEP0@0\n"));
  ASSERT_EQ(rules_of(violations), std::vector<std::string>{"deadlock"});
  EXPECT_EQ(violations[0].message,
            "worker 0, 0RECV_B0: with 1 credit per channel, 2 workers wait in a cycle: worker 0 "
            "at 0RECV_B0 waits for worker 1 to send; "
            "worker 1 at "
            "1RECV_F0 waits for worker 0 to send");
}

TEST(DeadlockRule, NamesTheShortestCycle) {
  // All four workers are blocked, but only two of them block each other.
  Schedule schedule = full_schedule(
      Strategy::GPipe, {.replicas = {1, 1, 1, 1}, .micro_batches = 1, .accumulate = 1});
  auto& list = schedule.workers[2];
  const auto receive = std::find_if(
      list.begin(), list.end(), [](const auto& a) { return a.op == schedule::Op::RecvBackward; });
  std::rotate(list.begin(), receive, receive + 1);
  const auto violations = verify(schedule);
  ASSERT_EQ(violations.size(), 1U);
  EXPECT_THAT(violations[0].message, HasSubstr("2 workers wait in a cycle: worker 2 at 2RECV_B0 "
                                               "waits for worker 3 to send; worker 3 at 3RECV_F0"));
}

TEST(DeadlockRule, SyncWaitsForAllReplicas) {
  Schedule bad =
      full_schedule(Strategy::DataParallel, {.replicas = {2}, .micro_batches = 4, .accumulate = 2});
  auto& list = bad.workers[1];
  std::erase_if(list, [](const auto& a) {
    return a.op == schedule::Op::SyncGradients && a.mini_batch.value == 1;
  });
  const auto violations = verify(bad);
  const auto deadlock = std::find_if(violations.begin(), violations.end(),
                                     [](const Violation& v) { return v.rule == "deadlock"; });
  ASSERT_NE(deadlock, violations.end());
  EXPECT_THAT(deadlock->message,
              HasSubstr("worker 0 at 0SYNC1 waits for worker 1 to join, whose list has ended"));
}

TEST(DeadlockRule, RendezvousBlocksWhatOneCreditAllows) {
  const Schedule schedule = full_schedule(
      Strategy::OneFOneB,
      {.replicas = {1, 1, 1}, .micro_batches = 6, .accumulate = 1, .policy = WeightPolicy::Stash});
  EXPECT_THAT(verify(schedule, {.credits = 1}), IsEmpty());
  EXPECT_EQ(rules_of(verify(schedule, {.credits = 0})), std::vector<std::string>{"deadlock"});
  EXPECT_EQ(min_credits(schedule), 1);
  EXPECT_EQ(
      min_credits(full_schedule(Strategy::ModelParallel,
                                {.replicas = {1, 1, 1}, .micro_batches = 6, .accumulate = 6})),
      0);
}

TEST(DeadlockRule, SkipLinksMayNeedMoreCredits) {
  const Schedule schedule =
      lower(schedule::generate(Strategy::OneFOneB, {.replicas = {1, 1, 1, 1},
                                                    .micro_batches = 12,
                                                    .accumulate = 1,
                                                    .policy = WeightPolicy::Stash}),
            {{StageId{0}, StageId{1}},
             {StageId{1}, StageId{2}},
             {StageId{2}, StageId{3}},
             {StageId{0}, StageId{3}}});
  const int64_t credits = min_credits(schedule);
  EXPECT_EQ(credits, 2);
  EXPECT_EQ(rules_of(verify(schedule, {.credits = credits - 1})),
            std::vector<std::string>{"deadlock"});
  EXPECT_THAT(verify(schedule, {.credits = credits}), IsEmpty());
}

TEST(WeightsRule, RefusesAVersionThatHasBeenFreed) {
  const auto violations = verify(parse(kOneWorker, "0F0@0,0FREE0@0,0B0@0,0STEP0@0\n"));
  EXPECT_EQ(rules_of(violations), std::vector<std::string>{"weights"});
  EXPECT_THAT(violations.back().message, HasSubstr("version 0 has been freed"));
}

TEST(WeightsRule, NamesThePolicyAndBothVersions) {
  Schedule schedule = full_schedule(
      Strategy::OneFOneB,
      {.replicas = {1, 1}, .micro_batches = 4, .accumulate = 1, .policy = WeightPolicy::Stash});
  schedule.shape.policy = WeightPolicy::Latest;
  const auto violations = verify(schedule);
  EXPECT_EQ(rules_of(violations), std::vector<std::string>{"weights"});
  EXPECT_EQ(violations[0].message, "worker 0, 0B1@0: policy latest prescribes version 1, found 0");
}

TEST(MemoryRule, ComparesThePeakWithTheLimit) {
  const Schedule schedule = full_schedule(
      Strategy::OneFOneB,
      {.replicas = {1, 1}, .micro_batches = 8, .accumulate = 1, .policy = WeightPolicy::Stash});
  // Stage 0 keeps 2 micro-batches of 10 bytes and 2 versions of 100 bytes, stage 1 one of each, of
  // 50 and 7 bytes.
  Options options{.memory_limit_bytes = 220, .stash_bytes = {10, 50}, .weight_bytes = {100, 7}};
  EXPECT_THAT(verify(schedule, options), IsEmpty());
  options.memory_limit_bytes = 219;
  const auto violations = verify(schedule, options);
  ASSERT_EQ(violations.size(), 1U);
  EXPECT_EQ(violations[0].rule, "memory");
  EXPECT_EQ(violations[0].worker, WorkerId{0});
  EXPECT_THAT(
      violations[0].message,
      HasSubstr("needs 220 bytes (2 weight versions, 2 stashed micro-batches), the limit is 219"));
}

TEST(MemoryRule, DoesNotOverflow) {
  const Schedule schedule =
      full_schedule(Strategy::GPipe, {.replicas = {1}, .micro_batches = 8, .accumulate = 8});
  EXPECT_EQ(rules_of(verify(schedule, {.memory_limit_bytes = 1,
                                       .stash_bytes = {INT64_MAX},
                                       .weight_bytes = {INT64_MAX}})),
            std::vector<std::string>{"memory"});
}

TEST(Peaks, OneFOneBStashesDepthMicroBatchesAndVersions) {
  const Schedule schedule = full_schedule(Strategy::OneFOneB, {.replicas = {1, 1, 1, 1},
                                                               .micro_batches = 20,
                                                               .accumulate = 1,
                                                               .policy = WeightPolicy::Stash});
  EXPECT_EQ(peaks(schedule),
            (std::vector<WorkerPeaks>{{4, 4, 0}, {3, 3, 0}, {2, 2, 0}, {1, 1, 0}}));
}

TEST(Peaks, TwoBufferedKeepsTwoVersions) {
  const Schedule schedule =
      full_schedule(Strategy::TwoBuffered, {.replicas = {1, 1, 1},
                                            .micro_batches = 30,
                                            .accumulate = 3,
                                            .policy = WeightPolicy::TwoBuffered});
  EXPECT_EQ(peaks(schedule), (std::vector<WorkerPeaks>{{2, 3, 0}, {2, 2, 0}, {2, 1, 0}}));
}

TEST(Peaks, FlushUpdatesInPlace) {
  const Schedule schedule =
      full_schedule(Strategy::GPipe, {.replicas = {1, 1}, .micro_batches = 8, .accumulate = 4});
  EXPECT_EQ(peaks(schedule), (std::vector<WorkerPeaks>{{1, 4, 0}, {1, 4, 0}}));
}

TEST(Verify, ReturnsAtMostTheRequestedNumberOfViolations) {
  Schedule schedule =
      full_schedule(Strategy::GPipe, {.replicas = {1, 1}, .micro_batches = 50, .accumulate = 5});
  schedule.workers[0].clear();
  EXPECT_EQ(verify(schedule, {.max_violations = 7}).size(), 7U);
  EXPECT_EQ(verify(schedule).size(), 100U);
}

TEST(Verify, RefusesNegativeCredits) {
  EXPECT_THROW(verify(parse(kOneWorker, "\n"), {.credits = -1}), ConfigError);
}

// Every schedule that parse_schedule() can return is checked quickly and without a crash.

TEST(HostileSchedules, FewActionsInAnEnormousShapeAreRefusedAtOnce) {
  const auto violations = verify(
      parse("# replicas: 1\n# micro-batches: 20000000  accumulate: 1  weights: stash\n", "0F0\n"));
  ASSERT_EQ(violations.size(), 1U);
  EXPECT_EQ(violations[0].message,
            "20000000 micro-batches on 1 stages need at least 20000000 actions, found 1");
}

TEST(HostileSchedules, NumbersBeyondTheShapeAreViolations) {
  for (const char* lists :
       {"9F0\n1F0\n", "0F7\n1F0\n", "0STEP9@0\n\n", "0FREE0@9223372036854775807\n\n",
        "0SEND_F0>2147483646\n\n", "1RECV_B0\n\n", "0SYNC9223372036854775807\n\n",
        "0F9223372036854775807@9223372036854775807\n\n", "\n\n", "0F0\n", "0F0\n0F0\n0F0\n"}) {
    const Schedule schedule = parse(kTwoWorkers, lists);
    EXPECT_FALSE(verify(schedule).empty()) << lists;
    EXPECT_EQ(peaks(schedule).size(), schedule.workers.size());
    EXPECT_LE(min_credits(schedule), 1) << lists;
  }
}

TEST(HostileSchedules, InvalidShapesAreViolations) {
  EXPECT_FALSE(verify(Schedule{}).empty());
  EXPECT_EQ(min_credits(Schedule{}), -1);
  EXPECT_FALSE(verify(Schedule{.kind = "x", .shape = {.replicas = {0}}, .workers = {}}).empty());
}

TEST(HostileSchedules, ManyReplicasThatAllWaitAreCheckedInTime) {
  // 20000 replicas at the sync; the missing one has ended.
  std::string lists;
  for (int w = 0; w < 20000; ++w) lists += w == 0 ? "\n" : "0SYNC0\n";
  const Schedule schedule = parse(
      "# replicas: 20000\n# micro-batches: 1  accumulate: 1  weights: flush\n# lowered: yes\n",
      lists);
  const auto violations = verify(schedule, {.max_violations = 1'000'000});
  EXPECT_TRUE(std::any_of(violations.begin(), violations.end(),
                          [](const Violation& v) { return v.rule == "deadlock"; }));
}

TEST(HostileSchedules, CyclesThroughManySyncsAreSearchedInTime) {
  // Stage i on the workers i, i + 1 and i + 2 of a ring, each waiting at its own stage's sync:
  // every cycle goes around the whole ring by steps of one or two.
  const auto ring = [](int workers) {
    Schedule schedule{
        .kind = "ring",
        .shape = {.replicas = std::vector<int>(static_cast<size_t>(workers), 3),
                  .micro_batches = 1,
                  .accumulate = 1},
        .lowered = true,
        .workers = std::vector<std::vector<schedule::Action>>(static_cast<size_t>(workers))};
    for (int s = 0; s < workers; ++s) {
      for (int k = 0; k < 3; ++k) schedule.shape.worker_of_replica.push_back((s + k) % workers);
      const StageId stage{s};
      schedule.workers[static_cast<size_t>(s)] = {{.op = schedule::Op::SyncGradients,
                                                   .stage = stage,
                                                   .micro_batch = {},
                                                   .mini_batch = {},
                                                   .peer = stage}};
    }
    return schedule;
  };
  const auto small = find_deadlock(ring(1001));
  ASSERT_TRUE(small.has_value());
  EXPECT_EQ(small->cycle.size(), 501U);
  EXPECT_TRUE(small->shortest);
  const auto large = find_deadlock(ring(100'000));
  ASSERT_TRUE(large.has_value());
  EXPECT_GE(large->cycle.size(), 50'000U);
  EXPECT_FALSE(large->shortest);
}

TEST(HostileSchedules, ADeadlockOfManyWorkersIsProvedInTime) {
  Schedule bad =
      full_schedule(Strategy::GPipe,
                    {.replicas = std::vector<int>(50'000, 1), .micro_batches = 2, .accumulate = 2});
  auto& list = bad.workers[30'000];
  const auto receive = std::find_if(
      list.begin(), list.end(), [](const auto& a) { return a.op == schedule::Op::RecvBackward; });
  std::rotate(list.begin(), receive, receive + 1);
  const auto found = find_deadlock(bad);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->blocked.size(), 50'000U);
  ASSERT_EQ(found->cycle.size(), 2U);
  EXPECT_EQ(found->cycle[0].worker, WorkerId{30'000});
}

TEST(HostileSchedules, MessagesOnManySparseLinksAreIndexedByHash) {
  // 150 stages, each of which sends one micro-batch to each stage that is not its neighbour: too
  // few messages for a table.
  const int stages = 150;
  Schedule schedule = full_schedule(
      Strategy::GPipe,
      {.replicas = std::vector<int>(stages, 1), .micro_batches = 40, .accumulate = 40});
  for (int from = 0; from < stages; ++from) {
    for (int to = from + 2; to < stages; ++to) {
      const schedule::Action send{.op = schedule::Op::SendForward,
                                  .stage = StageId{from},
                                  .micro_batch = {},
                                  .mini_batch = {},
                                  .peer = StageId{to}};
      schedule.workers[static_cast<size_t>(from)].push_back(send);
    }
  }
  const auto violations = verify(schedule, {.max_violations = 10'000'000});
  EXPECT_EQ(rules_of(violations), std::vector<std::string>{"pairing"});
  const auto unreceived =
      std::count_if(violations.begin(), violations.end(),
                    [](const Violation& v) { return v.message.ends_with("never receives it"); });
  EXPECT_EQ(unreceived, (stages - 2) * (stages - 1) / 2);
}

}  // namespace penstock::verify::testing

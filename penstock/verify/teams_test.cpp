// Schedules with teams: sound as they are made, and each change on one member alone is found.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "penstock/schedule/formats/text_format.h"
#include "penstock/schedule/teams.h"
#include "penstock/util/numbers/rng.h"
#include "penstock/verify/testing_schedules.h"
#include "penstock/verify/verify.h"

namespace penstock::verify::testing {
namespace {

using schedule::Action;
using ::testing::HasSubstr;

Schedule small() {
  return team_schedule(
      Strategy::OneFOneBFlush,
      {.replicas = {2, 1}, .micro_batches = 8, .accumulate = 4, .recompute = {true, false}},
      {2, 3});
}

/// Positions of compute actions in a list.
std::vector<size_t> computations(const std::vector<Action>& list) {
  std::vector<size_t> positions;
  for (size_t i = 0; i < list.size(); ++i) {
    if (is_compute(list[i].op)) positions.push_back(i);
  }
  return positions;
}

std::vector<std::string> rules_of(const Schedule& schedule) {
  std::vector<std::string> rules;
  for (const Violation& v : verify(schedule, {.credits = 8})) rules.push_back(v.rule);
  return rules;
}

bool breaks_team(const Schedule& schedule) {
  const std::vector<std::string> rules = rules_of(schedule);
  return std::find(rules.begin(), rules.end(), "team") != rules.end();
}

/// Member 0 sends F0 and waits for its gradient before F1; member 1 comes to F1 before it sends F0,
/// which the gradient needs. Both compute the same in the same order.
Schedule sends_behind_the_next_forward() {
  return schedule::parse_schedule(
      R"(# penstock schedule 1
# kind: 1f1b-flush
# replicas: 1 1 1
# hosts: 0 1 2
# teams: 2 1
# micro-batches: 2  accumulate: 2  weights: flush
# lowered: yes
0F0@0,0SEND_F0>2,0RECV_B0<2,0F1@0,0SEND_F1>2,0B0@0,0RECV_B1<2,0B1@0,0FREE0@0,0STEP0@0
1F0@0,1F1@0,1SEND_F0,1SEND_F1,1RECV_B0,1B0@0,1RECV_B1,1B1@0,1FREE0@0,1STEP0@0
2RECV_F0<0,2RECV_F0,2F0@0,2B0@0,2SEND_B0>0,2SEND_B0,)"
      R"(2RECV_F1<0,2RECV_F1,2F1@0,2B1@0,2SEND_B1>0,2SEND_B1,2FREE0@0,2STEP0@0
)",
      "test");
}

}  // namespace

TEST(TeamSchedules, OfEveryKindAreSound) {
  for (const auto& [kind, policy] : kinds_and_policies()) {
    for (const std::vector<int>& replicas : {std::vector<int>{2}, {1, 1}, {2, 1}, {2, 2, 2, 2}}) {
      const auto shape = shape_for(
          kind, {.replicas = replicas, .micro_batches = 12, .accumulate = 12, .policy = policy});
      if (!shape) continue;
      for (const std::vector<int>& sizes : {std::vector<int>{2, 2, 2, 2}, {3, 1, 2, 4}}) {
        const std::vector<int> teams(sizes.begin(),
                                     sizes.begin() + static_cast<int64_t>(replicas.size()));
        // Stages on one worker need teams of one size.
        if (traits(kind).is_chunked() && teams != std::vector<int>(teams.size(), 2)) continue;
        EXPECT_EQ(first_violation(team_schedule(kind, *shape, teams), 8), "")
            << describe(kind, *shape);
        EXPECT_EQ(first_violation(schedule::with_teams(schedule::generate(kind, *shape), teams), 8),
                  "")
            << describe(kind, *shape) << ", not lowered";
      }
    }
  }
}

TEST(TeamSchedules, AnActionThatIsMissingOnOneMemberNamesBothWorkers) {
  Schedule schedule = small();
  // Member 1 of replica 0 of stage 0 is on worker 1.
  std::vector<Action>& list = schedule.workers[1];
  list.erase(list.begin() + static_cast<int64_t>(computations(list).front()));
  const std::vector<Violation> violations = verify(schedule, {.credits = 8});
  const auto found = std::find_if(violations.begin(), violations.end(),
                                  [](const Violation& v) { return v.rule == "team"; });
  ASSERT_NE(found, violations.end());
  EXPECT_EQ(found->worker.value, 1);
  EXPECT_THAT(found->message,
              HasSubstr("worker 1, 1F2@0: is compute action 0 here, where member 0 of stage 0, on "
                        "worker 0, has 0F0@0"));
}

TEST(TeamSchedules, AListThatEndsEarlyLeavesTheOthersWaiting) {
  Schedule schedule =
      team_schedule(Strategy::GPipe, {.replicas = {1}, .micro_batches = 2, .accumulate = 2}, {2});
  schedule.lowered = false;
  for (auto& list : schedule.workers)
    std::erase_if(list, [](const Action& a) { return !is_compute(a.op); });
  for (auto& list : schedule.workers) {
    for (Action& action : list) action.version = WeightVersion{-1};
  }
  ASSERT_TRUE(verify(schedule).empty());
  schedule.workers[0].pop_back();
  const std::vector<Violation> violations = verify(schedule);
  EXPECT_TRUE(std::any_of(violations.begin(), violations.end(), [](const Violation& v) {
    return v.rule == "team" && v.worker.value == 1 &&
           v.message.find("worker 0, a member of the same team, ends before it") !=
               std::string::npos;
  }));
}

TEST(TeamSchedules, EveryActionThatOneMemberDropsOrSwapsIsFound) {
  const Schedule good = small();
  ASSERT_TRUE(verify(good, {.credits = 8}).empty());
  int changed = 0;
  for (size_t w = 0; w < good.workers.size(); ++w) {
    const std::vector<size_t> positions = computations(good.workers[w]);
    for (size_t i = 0; i < positions.size(); ++i) {
      Schedule dropped = good;
      dropped.workers[w].erase(dropped.workers[w].begin() + static_cast<int64_t>(positions[i]));
      EXPECT_TRUE(breaks_team(dropped)) << "worker " << w << ", dropped " << i;
      for (size_t j = i + 1; j < positions.size(); ++j) {
        Schedule swapped = good;
        std::swap(swapped.workers[w][positions[i]], swapped.workers[w][positions[j]]);
        EXPECT_TRUE(breaks_team(swapped)) << "worker " << w << ", swapped " << i << ", " << j;
        ++changed;
      }
    }
  }
  EXPECT_GT(changed, 300);
}

// Two forwards of a list that no rule of one worker orders.
TEST(TeamSchedules, ACrossOrderOfTwoForwardsIsFound) {
  Schedule schedule =
      team_schedule(Strategy::GPipe, {.replicas = {1}, .micro_batches = 4, .accumulate = 4}, {2});
  std::vector<Action>& list = schedule.workers[1];
  const std::vector<size_t> at = computations(list);
  std::swap(list[at[0]], list[at[1]]);
  EXPECT_THAT(rules_of(schedule), ::testing::ElementsAre("team", "deadlock"));
  // The same on both members is no other order.
  std::swap(schedule.workers[0][at[0]], schedule.workers[0][at[1]]);
  EXPECT_TRUE(verify(schedule, {.credits = 8}).empty());
}

TEST(TeamSchedules, MembersThatComputeAlikeAndWaitForEachOtherAreADeadlock) {
  const Schedule schedule = sends_behind_the_next_forward();
  const std::vector<Violation> violations = verify(schedule, {.credits = 8});
  ASSERT_EQ(violations.size(), 1);
  EXPECT_EQ(violations[0].rule, "deadlock");
  EXPECT_THAT(
      violations[0].message,
      HasSubstr("worker 0 (member 0 of stage 0) at 0RECV_B0<2 waits for worker 2 to send; worker 2 "
                "at 2RECV_F0 waits for worker 1 (member 1 of stage 0) to send; worker 1 (member 1 "
                "of stage 0) at 1F1@0 waits for worker 0 (member 0 of stage 0) to join"));
  EXPECT_EQ(min_credits(schedule), -1);
}

// The rules of one worker and of the order of computations see none of these.
TEST(TeamSchedules, AReceiveBeforeTheForwardOfOneMemberIsADeadlock) {
  const Schedule good = team_schedule(
      Strategy::GPipe, {.replicas = {1, 1}, .micro_batches = 3, .accumulate = 3}, {2, 1});
  ASSERT_EQ(first_violation(good, 8), "");
  int deadlocks = 0;
  for (const size_t w : {0, 1}) {
    const std::vector<Action>& list = good.workers[w];
    for (size_t i = 0; i < list.size(); ++i) {
      if (list[i].op != schedule::Op::RecvBackward) continue;
      for (size_t to = 0; to < i; ++to) {
        if (list[to].op != schedule::Op::Forward) continue;
        Schedule moved = good;
        std::vector<Action>& changed = moved.workers[w];
        std::rotate(changed.begin() + static_cast<int64_t>(to),
                    changed.begin() + static_cast<int64_t>(i),
                    changed.begin() + static_cast<int64_t>(i) + 1);
        // The last stage of gpipe sends no gradient before it has all outputs.
        const std::vector<std::string> rules = rules_of(moved);
        EXPECT_TRUE(std::find(rules.begin(), rules.end(), "deadlock") != rules.end())
            << "worker " << w << ", " << i << " to " << to;
        ++deadlocks;
      }
    }
  }
  EXPECT_EQ(deadlocks, 2 * 3 * 3);
}

TEST(TeamSchedules, WorkersWithTeamsOfTwoSizesAreRefused) {
  Schedule schedule = schedule::generate(
      Strategy::GPipe, {.replicas = {1, 1, 1}, .micro_batches = 2, .accumulate = 2});
  schedule.shape.teams = {1, 2};
  schedule.shape.worker_of_replica = {0, 1, 0};
  const std::vector<Violation> violations = verify(schedule);
  ASSERT_FALSE(violations.empty());
  EXPECT_THAT(violations[0].message,
              HasSubstr("worker 0 holds stages 0 and 2, whose teams have 1 and 2 members: expected "
                        "teams of one size on each worker"));
}

TEST(TeamSchedules, WorkersHoldTheSameMemberOfAllTheirStages) {
  const auto shape =
      shape_for(Strategy::ZbV, {.replicas = {1, 1, 1, 1}, .micro_batches = 4, .accumulate = 4});
  ASSERT_TRUE(shape);
  Schedule schedule = team_schedule(Strategy::ZbV, *shape, {2, 2, 2, 2});
  ASSERT_EQ(first_violation(schedule, 8), "");
  // The members of stage 0 change places, those of stage 3 on the same workers do not.
  std::swap(schedule.shape.worker_of_replica[0], schedule.shape.worker_of_replica[1]);
  for (const size_t w : {0, 1}) {
    for (Action& action : schedule.workers[w]) {
      if (action.stage.value > 1) continue;
      action.stage.value = 1 - action.stage.value;
      if (!is_message(action.op)) action.peer = action.stage;
    }
  }
  EXPECT_TRUE(breaks_team(schedule));
}

TEST(TeamSchedules, MutationsByChanceOnOneMemberAreRejected) {
  Rng rng(11);
  const auto pick = [&](int64_t below) {
    return static_cast<int64_t>(rng.below(static_cast<uint64_t>(below)));
  };
  int rejected = 0;
  for (int run = 0; run < 500; ++run) {
    const std::vector<int> teams{static_cast<int>(1 + pick(3)), static_cast<int>(2 + pick(3))};
    Schedule schedule = team_schedule(
        run % 2 == 0 ? Strategy::OneFOneBFlush : Strategy::ZbH1,
        {.replicas = {static_cast<int>(1 + pick(2)), 1}, .micro_batches = 6, .accumulate = 6},
        teams);
    // A worker of the last team.
    std::vector<Action>& list =
        schedule.workers[schedule.workers.size() - static_cast<size_t>(1 + pick(teams[1]))];
    const std::vector<size_t> at = computations(list);
    const auto i = static_cast<size_t>(pick(std::ssize(at)));
    const auto j = static_cast<size_t>(pick(std::ssize(at)));
    if (i == j) {
      list.erase(list.begin() + static_cast<int64_t>(at[i]));
    } else {
      std::swap(list[at[i]], list[at[j]]);
    }
    rejected += breaks_team(schedule) ? 1 : 0;
  }
  EXPECT_EQ(rejected, 500);
}

}  // namespace penstock::verify::testing

// Schedules with teams: sound as they are made, and each change on one member alone is found.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "penstock/schedule/teams.h"
#include "penstock/util/numbers/rng.h"
#include "penstock/verify/testing_schedules.h"
#include "penstock/verify/verify.h"

namespace penstock::verify::testing {
namespace {

using schedule::Action;
using ::testing::HasSubstr;

Schedule team_schedule(Strategy kind, const ScheduleShape& shape, const std::vector<int>& teams) {
  return schedule::lower(
      schedule::with_teams(schedule::generate(kind, shape), teams),
      schedule::links_of_members(schedule::chain_links(shape.num_stages()), teams));
}

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

// Two forwards of a list that no other rule orders: without this rule the schedule would pass.
TEST(TeamSchedules, ACrossOrderThatNoOtherRuleSeesIsFound) {
  Schedule schedule =
      team_schedule(Strategy::GPipe, {.replicas = {1}, .micro_batches = 4, .accumulate = 4}, {2});
  std::vector<Action>& list = schedule.workers[1];
  const std::vector<size_t> at = computations(list);
  std::swap(list[at[0]], list[at[1]]);
  EXPECT_THAT(rules_of(schedule), ::testing::ElementsAre("team"));
  // The same on both members is no other order.
  std::swap(schedule.workers[0][at[0]], schedule.workers[0][at[1]]);
  EXPECT_TRUE(verify(schedule, {.credits = 8}).empty());
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

// Damages good schedules in each known way; the rule that guards the damaged property must object by name.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "penstock/verify/sample_schedules.h"
#include "penstock/verify/verify.h"

namespace penstock::verify::testing {
namespace {

using schedule::Action;
using schedule::Op;

struct Mutation {
  std::string name;
  std::string rule;
  /// Damages the schedule; false when it has nothing to damage in this way.
  std::function<bool(Schedule&)> damage;
};

/// Position of the last action with the op on the first worker that has one.
struct Place {
  size_t worker = 0;
  size_t position = 0;
};
std::optional<Place> find_last(const Schedule& schedule, Op op) {
  for (size_t w = 0; w < schedule.workers.size(); ++w) {
    for (size_t i = schedule.workers[w].size(); i-- > 0;) {
      if (schedule.workers[w][i].op == op) return Place{w, i};
    }
  }
  return std::nullopt;
}

/// A mutation of the last action with the op: edit(list, position).
template <class Edit>
std::function<bool(Schedule&)> at_last(Op op, Edit edit) {
  return [op, edit](Schedule& schedule) {
    const std::optional<Place> place = find_last(schedule, op);
    if (!place) return false;
    edit(schedule.workers[place->worker], place->position);
    return true;
  };
}

auto drop() {
  return [](std::vector<Action>& list, size_t i) { list.erase(list.begin() + static_cast<int64_t>(i)); };
}
auto duplicate() {
  return [](std::vector<Action>& list, size_t i) { list.insert(list.begin() + static_cast<int64_t>(i), list[i]); };
}
auto move_to_front() {
  return [](std::vector<Action>& list, size_t i) {
    std::rotate(list.begin(), list.begin() + static_cast<int64_t>(i), list.begin() + static_cast<int64_t>(i) + 1);
  };
}
auto move_to_back() {
  return [](std::vector<Action>& list, size_t i) {
    std::rotate(list.begin() + static_cast<int64_t>(i), list.begin() + static_cast<int64_t>(i) + 1, list.end());
  };
}
auto change(std::function<void(Action&)> edit) {
  return [edit](std::vector<Action>& list, size_t i) { edit(list[i]); };
}

std::vector<Mutation> drops_and_duplicates() {
  const std::vector<std::pair<Op, std::string>> guarded = {
      {Op::Forward, "complete"},    {Op::Backward, "complete"},      {Op::SendForward, "pairing"},
      {Op::RecvForward, "pairing"}, {Op::SendBackward, "pairing"},   {Op::RecvBackward, "pairing"},
      {Op::Step, "complete"},       {Op::SyncGradients, "complete"}, {Op::FreeWeights, "weights"},
  };
  std::vector<Mutation> result;
  for (const auto& [op, rule] : guarded) {
    result.push_back({"drop " + std::string(to_string(op)), rule, at_last(op, drop())});
    result.push_back({"duplicate " + std::string(to_string(op)), rule, at_last(op, duplicate())});
  }
  result.push_back({"lose a message that nobody sends", "deadlock", at_last(Op::SendForward, drop())});
  return result;
}

std::vector<Mutation> disorders() {
  return {
      {"backward before everything", "order", at_last(Op::Backward, move_to_front())},
      {"receive after its forward", "order", at_last(Op::RecvForward, move_to_back())},
      {"send before its forward", "order", at_last(Op::SendForward, move_to_front())},
      {"receive of gradients after the backward", "order", at_last(Op::RecvBackward, move_to_back())},
      {"send of gradients before the backward", "order", at_last(Op::SendBackward, move_to_front())},
      {"step before the backwards", "order", at_last(Op::Step, move_to_front())},
      {"sync after its step", "order", at_last(Op::SyncGradients, move_to_back())},
      {"gradients awaited before the outputs are sent", "deadlock",
       [](Schedule& schedule) {
         // Worker 0's first receive of gradients moves to its very beginning.
         auto& list = schedule.workers[0];
         const auto receive = std::find_if(list.begin(), list.end(), [](const Action& a) { return a.op == Op::RecvBackward; });
         if (receive == list.end()) return false;
         std::rotate(list.begin(), receive, receive + 1);
         return true;
       }},
  };
}

std::vector<Mutation> wrong_fields() {
  return {
      {"forward on a later version", "weights", at_last(Op::Forward, change([](Action& a) { ++a.version.value; }))},
      {"backward on another version than its forward", "weights", at_last(Op::Backward, change([](Action& a) { ++a.version.value; }))},
      {"no version", "weights", at_last(Op::Forward, change([](Action& a) { a.version = WeightVersion{-1}; }))},
      {"step of another version", "weights", at_last(Op::Step, change([](Action& a) { ++a.version.value; }))},
      {"free before the first use", "weights", at_last(Op::FreeWeights, move_to_front())},
      {"free of the newest version at the end", "weights", at_last(Op::FreeWeights, change([](Action& a) { ++a.version.value; }))},
      {"send to a stage that does not exist", "pairing", at_last(Op::SendForward, change([](Action& a) { a.peer.value = 99; }))},
      {"outputs sent to the own stage", "pairing", at_last(Op::SendForward, change([](Action& a) { a.peer = a.stage; }))},
      {"another stage's action", "complete", at_last(Op::Forward, change([](Action& a) { ++a.stage.value; }))},
      {"micro-batch beyond the end", "complete", at_last(Op::Forward, change([](Action& a) { a.micro_batch.value = 1'000'000; }))},
      {"negative micro-batch", "complete", at_last(Op::Forward, change([](Action& a) { a.micro_batch.value = -1; }))},
      {"negative mini-batch", "complete", at_last(Op::Step, change([](Action& a) { a.mini_batch.value = -1; }))},
      {"wrong mini-batch", "complete", at_last(Op::Forward, change([](Action& a) { ++a.mini_batch.value; }))},
      {"a worker too few", "complete",
       [](Schedule& schedule) {
         schedule.workers.pop_back();
         return true;
       }},
      {"a worker too many", "complete",
       [](Schedule& schedule) {
         schedule.workers.emplace_back();
         return true;
       }},
      {"replicas swapped", "complete",
       [](Schedule& schedule) {
         if (schedule.shape.replicas[0] < 2) return false;
         std::swap(schedule.workers[0], schedule.workers[1]);
         return true;
       }},
  };
}

/// Good schedules with and without replication and overlap.
std::vector<Schedule> good_schedules() {
  const auto make = [](Kind kind, std::vector<int> replicas, WeightPolicy policy) {
    return full_schedule(kind, {.replicas = std::move(replicas), .micro_batches = 12, .accumulate = 4, .policy = policy});
  };
  return {
      make(Kind::Serial, {1}, WeightPolicy::Flush),
      make(Kind::DataParallel, {3}, WeightPolicy::Flush),
      make(Kind::GPipe, {1, 1, 1, 1}, WeightPolicy::Flush),
      make(Kind::OneFOneB, {1, 1, 1, 1}, WeightPolicy::Stash),
      make(Kind::OneFOneB, {2, 3, 1}, WeightPolicy::Stash),
      make(Kind::OneFOneB, {2, 1}, WeightPolicy::VerticalSync),
      make(Kind::OneFOneB, {1, 1, 1}, WeightPolicy::Latest),
      make(Kind::OneFOneBFlush, {2, 2}, WeightPolicy::Flush),
      make(Kind::TwoBuffered, {1, 1, 1, 1}, WeightPolicy::TwoBuffered),
  };
}

bool objects(const std::vector<Violation>& violations, const std::string& rule) {
  return std::any_of(violations.begin(), violations.end(), [&](const Violation& v) { return v.rule == rule; });
}

void check_mutations(const std::vector<Mutation>& mutations) {
  for (const Mutation& mutation : mutations) {
    int damaged = 0;
    for (const Schedule& good : good_schedules()) {
      ASSERT_TRUE(verify(good).empty());
      Schedule bad = good;
      if (!mutation.damage(bad)) continue;
      ++damaged;
      EXPECT_TRUE(objects(verify(bad), mutation.rule)) << mutation.name << " in " << describe(schedule::parse_kind(bad.kind), bad.shape);
    }
    EXPECT_GT(damaged, 0) << mutation.name;
  }
}

}  // namespace

TEST(Mutations, ActionsDroppedOrRepeatedAreFound) { check_mutations(drops_and_duplicates()); }
TEST(Mutations, ActionsOutOfOrderAreFound) { check_mutations(disorders()); }
TEST(Mutations, WrongFieldsAreFound) { check_mutations(wrong_fields()); }

TEST(Mutations, EveryDroppedActionIsFound) {
  for (const Schedule& good : good_schedules()) {
    for (size_t w = 0; w < good.workers.size(); ++w) {
      for (size_t i = 0; i < good.workers[w].size(); ++i) {
        Schedule bad = good;
        bad.workers[w].erase(bad.workers[w].begin() + static_cast<int64_t>(i));
        EXPECT_FALSE(verify(bad).empty()) << good.kind << ": " << to_text(good.workers[w][i]) << " on worker " << w;
      }
    }
  }
}

TEST(Mutations, EveryRepeatedActionIsFound) {
  for (const Schedule& good : good_schedules()) {
    for (size_t w = 0; w < good.workers.size(); ++w) {
      for (size_t i = 0; i < good.workers[w].size(); ++i) {
        Schedule bad = good;
        bad.workers[w].insert(bad.workers[w].begin() + static_cast<int64_t>(i), good.workers[w][i]);
        EXPECT_FALSE(verify(bad).empty()) << good.kind << ": " << to_text(good.workers[w][i]) << " on worker " << w;
      }
    }
  }
}

TEST(Mutations, StepsPlacedJustBeforeTheNextBackwardDeadlock) {
  // Why place_steps() does not wait until the last moment: with replicas 1 3 1 and a step per micro-batch the late place is a cycle of
  // waits.
  Schedule late =
      full_schedule(Kind::OneFOneB, {.replicas = {1, 3, 1}, .micro_batches = 12, .accumulate = 1, .policy = WeightPolicy::Stash});
  ASSERT_EQ(min_credits(late), 1);
  for (auto& list : late.workers) {
    std::vector<Action> moved;
    std::vector<Action> held;
    for (const Action& action : list) {
      if (action.op == Op::SyncGradients || action.op == Op::Step) {
        held.push_back(action);
        continue;
      }
      if (action.op == Op::Backward) {
        moved.insert(moved.end(), held.begin(), held.end());
        held.clear();
      }
      moved.push_back(action);
    }
    moved.insert(moved.end(), held.begin(), held.end());
    list = moved;
  }
  EXPECT_EQ(min_credits(late), -1);
}

}  // namespace penstock::verify::testing

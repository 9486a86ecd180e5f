// Damages good schedules in each known way; the rule for the damaged property must report it by
// name.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "penstock/schedule/worker_table.h"
#include "penstock/verify/testing_schedules.h"
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
  return [](std::vector<Action>& list, size_t i) {
    list.erase(list.begin() + static_cast<int64_t>(i));
  };
}
auto duplicate() {
  return [](std::vector<Action>& list, size_t i) {
    list.insert(list.begin() + static_cast<int64_t>(i), list[i]);
  };
}
auto move_to_front() {
  return [](std::vector<Action>& list, size_t i) {
    std::rotate(list.begin(), list.begin() + static_cast<int64_t>(i),
                list.begin() + static_cast<int64_t>(i) + 1);
  };
}
auto move_to_back() {
  return [](std::vector<Action>& list, size_t i) {
    std::rotate(list.begin() + static_cast<int64_t>(i), list.begin() + static_cast<int64_t>(i) + 1,
                list.end());
  };
}
auto change(std::function<void(Action&)> edit) {
  return [edit](std::vector<Action>& list, size_t i) { edit(list[i]); };
}

std::vector<Mutation> drops_and_duplicates() {
  const std::vector<std::pair<Op, std::string>> guarded = {
      {Op::Forward, "complete"},        {Op::Backward, "complete"},
      {Op::SendForward, "pairing"},     {Op::RecvForward, "pairing"},
      {Op::SendBackward, "pairing"},    {Op::RecvBackward, "pairing"},
      {Op::Step, "complete"},           {Op::SyncGradients, "complete"},
      {Op::FreeWeights, "weights"},     {Op::BackwardInput, "complete"},
      {Op::BackwardWeight, "complete"}, {Op::Recompute, "complete"},
      {Op::NormGradients, "complete"},
  };
  std::vector<Mutation> result;
  for (const auto& [op, rule] : guarded) {
    result.push_back({"drop " + std::string(to_string(op)), rule, at_last(op, drop())});
    result.push_back({"duplicate " + std::string(to_string(op)), rule, at_last(op, duplicate())});
  }
  result.push_back(
      {"lose a message that nobody sends", "deadlock", at_last(Op::SendForward, drop())});
  return result;
}

/// The action with op `later` that follows one with op `earlier` on the same stage and, if it has
/// one, micro-batch moves in front of it.
std::function<bool(Schedule&)> exchange(Op earlier, Op later) {
  return [earlier, later](Schedule& schedule) {
    for (auto& list : schedule.workers) {
      for (auto first = list.begin(); first != list.end(); ++first) {
        if (first->op != earlier) continue;
        const auto second = std::find_if(first, list.end(), [&](const Action& a) {
          return a.op == later && a.mini_batch == first->mini_batch &&
                 (!is_compute(earlier) ||
                  (a.stage == first->stage && a.micro_batch == first->micro_batch));
        });
        if (second == list.end()) continue;
        std::rotate(first, second, second + 1);
        return true;
      }
    }
    return false;
  };
}

/// On a worker with two stages of a micro-batch, the second's forward (or backward) moves in front
/// of the first's.
std::function<bool(Schedule&)> exchange_stages(Op op) {
  return [op](Schedule& schedule) {
    for (auto& list : schedule.workers) {
      for (auto first = list.begin(); first != list.end(); ++first) {
        const auto second = std::find_if(first, list.end(), [&](const Action& a) {
          return a.op == op && first->op == op && a.stage != first->stage &&
                 a.micro_batch == first->micro_batch;
        });
        if (second == list.end()) continue;
        std::rotate(first, second, second + 1);
        return true;
      }
    }
    return false;
  };
}

/// Mini-batches 0 and 1 exchange their actions with the op, on all workers.
std::function<bool(Schedule&)> exchange_mini_batches(Op op) {
  return [op](Schedule& schedule) {
    bool found = false;
    for (auto& list : schedule.workers) {
      for (Action& action : list) {
        if (action.op != op || action.mini_batch.value > 1) continue;
        action.mini_batch.value = 1 - action.mini_batch.value;
        found = true;
      }
    }
    return found;
  };
}

std::vector<Mutation> disorders() {
  return {
      {"steps out of turn on all workers", "order", exchange_mini_batches(Op::Step)},
      {"syncs out of turn on all workers", "order", exchange_mini_batches(Op::SyncGradients)},
      {"norms out of turn on all workers", "order", exchange_mini_batches(Op::NormGradients)},
      {"weights' gradients before the inputs'", "order",
       exchange(Op::BackwardInput, Op::BackwardWeight)},
      {"split backward before its forward", "order", at_last(Op::BackwardInput, move_to_front())},
      {"recomputation before its forward", "order", at_last(Op::Recompute, move_to_front())},
      {"recomputation after its backward", "order", exchange(Op::Recompute, Op::Backward)},
      {"recomputation after its split backward", "order",
       exchange(Op::Recompute, Op::BackwardInput)},
      {"recomputation after the gradients have come", "order",
       [](Schedule& schedule) {
         for (auto& list : schedule.workers) {
           for (size_t i = 0; i + 1 < list.size(); ++i) {
             if (list[i].op != Op::Recompute || list[i + 1].op != Op::RecvBackward) continue;
             std::swap(list[i], list[i + 1]);
             return true;
           }
         }
         return false;
       }},
      {"norm before the last gradients", "order", exchange(Op::BackwardWeight, Op::NormGradients)},
      {"norm before the last whole gradients", "order", exchange(Op::Backward, Op::NormGradients)},
      {"norm before the sync", "order", exchange(Op::SyncGradients, Op::NormGradients)},
      {"norm after the step", "order", exchange(Op::NormGradients, Op::Step)},
      {"norms out of turn", "order", at_last(Op::NormGradients, move_to_front())},
      {"a norm that one worker never joins", "deadlock", at_last(Op::NormGradients, drop())},
      {"step before the weights' gradients", "order", exchange(Op::BackwardWeight, Op::Step)},
      {"forwards of a worker's stages exchanged", "order", exchange_stages(Op::Forward)},
      {"backwards of a worker's stages exchanged", "order", exchange_stages(Op::Backward)},
      {"split backwards of a worker's stages exchanged", "order",
       exchange_stages(Op::BackwardInput)},
      {"backward before everything", "order", at_last(Op::Backward, move_to_front())},
      {"receive after its forward", "order", at_last(Op::RecvForward, move_to_back())},
      {"send before its forward", "order", at_last(Op::SendForward, move_to_front())},
      {"receive of gradients after the backward", "order",
       at_last(Op::RecvBackward, move_to_back())},
      {"send of gradients before the backward", "order",
       at_last(Op::SendBackward, move_to_front())},
      {"step before the backwards", "order", at_last(Op::Step, move_to_front())},
      {"sync after its step", "order", at_last(Op::SyncGradients, move_to_back())},
      {"gradients awaited before the outputs are sent", "deadlock",
       [](Schedule& schedule) {
         // Worker 0's first receive of gradients moves to the beginning of its list.
         auto& list = schedule.workers[0];
         const auto receive = std::find_if(
             list.begin(), list.end(), [](const Action& a) { return a.op == Op::RecvBackward; });
         if (receive == list.end()) return false;
         std::rotate(list.begin(), receive, receive + 1);
         return true;
       }},
  };
}

std::vector<Mutation> wrong_fields() {
  return {
      {"forward on a later version", "weights",
       at_last(Op::Forward, change([](Action& a) { ++a.version.value; }))},
      {"backward on another version than its forward", "weights",
       at_last(Op::Backward, change([](Action& a) { ++a.version.value; }))},
      {"inputs' gradients on another version", "weights",
       at_last(Op::BackwardInput, change([](Action& a) { --a.version.value; }))},
      {"weights' gradients on another version", "weights",
       at_last(Op::BackwardWeight, change([](Action& a) { --a.version.value; }))},
      {"recomputation on another version", "weights",
       at_last(Op::Recompute, change([](Action& a) { --a.version.value; }))},
      {"a free that stays when its step is left out", "weights",
       at_last(Op::FreeWeights,
               change([](Action& a) { a.mini_batch = MiniBatchId{a.version.value - 1}; }))},
      {"no version", "weights",
       at_last(Op::Forward, change([](Action& a) { a.version = WeightVersion{-1}; }))},
      {"step of another version", "weights",
       at_last(Op::Step, change([](Action& a) { ++a.version.value; }))},
      {"free before the first use", "weights", at_last(Op::FreeWeights, move_to_front())},
      {"free of the newest version at the end", "weights",
       at_last(Op::FreeWeights, change([](Action& a) { ++a.version.value; }))},
      {"free of the version that training ends with", "weights",
       at_last(Op::Step,
               [](std::vector<Action>& list, size_t i) {
                 Action free = list[i];
                 free.op = Op::FreeWeights;
                 ++free.version.value;
                 list.push_back(free);
               })},
      {"send to a stage that does not exist", "pairing",
       at_last(Op::SendForward, change([](Action& a) { a.peer.value = 99; }))},
      {"outputs sent to the own stage", "pairing",
       at_last(Op::SendForward, change([](Action& a) { a.peer = a.stage; }))},
      {"another stage's action", "complete",
       at_last(Op::Forward, change([](Action& a) { ++a.stage.value; }))},
      {"sent to the wrong stage", "pairing",
       at_last(Op::SendForward, change([](Action& a) { ++a.peer.value; }))},
      {"received from the wrong stage", "pairing",
       at_last(Op::RecvForward, change([](Action& a) { --a.peer.value; }))},
      {"gradients sent to the wrong stage", "pairing",
       at_last(Op::SendBackward, change([](Action& a) { --a.peer.value; }))},
      {"gradients received from the wrong stage", "pairing",
       at_last(Op::RecvBackward, change([](Action& a) { ++a.peer.value; }))},
      {"whole backward beside the split one", "complete",
       at_last(Op::BackwardWeight, change([](Action& a) { a.op = Op::Backward; }))},
      {"recomputation where activations are kept", "complete",
       [](Schedule& schedule) {
         if (schedule.shape.recompute.empty()) return false;
         schedule.shape.recompute.clear();
         return true;
       }},
      {"recomputation wanted and left out", "complete",
       [](Schedule& schedule) {
         if (!schedule.shape.recompute.empty()) return false;
         schedule.shape.recompute.assign(schedule.shape.replicas.size(), true);
         return true;
       }},
      {"norm that nobody wants", "complete",
       [](Schedule& schedule) { return std::exchange(schedule.shape.global_norm, false); }},
      {"norm wanted and left out", "complete",
       [](Schedule& schedule) { return !std::exchange(schedule.shape.global_norm, true); }},
      {"micro-batch beyond the end", "complete",
       at_last(Op::Forward, change([](Action& a) { a.micro_batch.value = 1'000'000; }))},
      {"negative micro-batch", "complete",
       at_last(Op::Forward, change([](Action& a) { a.micro_batch.value = -1; }))},
      {"negative mini-batch", "complete",
       at_last(Op::Step, change([](Action& a) { a.mini_batch.value = -1; }))},
      {"wrong mini-batch", "complete",
       at_last(Op::Forward, change([](Action& a) { ++a.mini_batch.value; }))},
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

/// Mutations of which worker holds which stages.
std::vector<Mutation> displacements() {
  const auto of_workers = [](std::function<void(std::vector<int>&)> edit) {
    return [edit](Schedule& schedule) {
      if (schedule.shape.worker_of_replica.empty()) return false;
      edit(schedule.shape.worker_of_replica);
      return true;
    };
  };
  return {
      {"two hosts exchanged", "complete", of_workers([](auto& worker_of_replica) {
         std::swap(worker_of_replica[0],
                   worker_of_replica[worker_of_replica[0] == worker_of_replica[1] ? 2 : 1]);
       })},
      {"a host too few", "complete", of_workers([](auto& workers) { workers.pop_back(); })},
      {"a host too many", "complete", of_workers([](auto& workers) { workers.push_back(0); })},
      {"a host that does not exist", "complete",
       of_workers([](auto& workers) { workers[1] = 1'000'000; })},
      {"a negative host", "complete", of_workers([](auto& workers) { workers[1] = -1; })},
      {"hosts forgotten", "complete", of_workers([](auto& workers) { workers.clear(); })},
      {"several stages under another policy than flush", "complete",
       [](Schedule& schedule) {
         if (schedule.shape.worker_of_replica.empty()) return false;
         schedule.shape.policy = WeightPolicy::Stash;
         return true;
       }},
      {"a worker's two stages exchanged", "pairing",
       [](Schedule& schedule) {
         if (schedule.shape.worker_of_replica.empty()) return false;
         const int worker = schedule.shape.worker_of_replica[0];
         const auto other = std::find_if(schedule.workers[static_cast<size_t>(worker)].begin(),
                                         schedule.workers[static_cast<size_t>(worker)].end(),
                                         [](const Action& a) { return a.stage.value != 0; })
                                ->stage;
         for (Action& action : schedule.workers[static_cast<size_t>(worker)]) {
           const bool exchanged = action.stage.value == 0 || action.stage == other;
           if (!exchanged || schedule.shape.replicas[0] > 1) continue;
           action.stage = action.stage.value == 0 ? other : StageId{0};
           if (!is_message(action.op)) action.peer = action.stage;
         }
         return schedule.shape.replicas[0] == 1;
       }},
      {"a message to the own worker", "pairing",
       [](Schedule& schedule) {
         const schedule::WorkerTable table(schedule.shape);
         for (int32_t w = 0; w < table.num_workers(); ++w) {
           auto& list = schedule.workers[static_cast<size_t>(w)];
           for (auto action = list.begin(); action != list.end(); ++action) {
             const StageId next{action->stage.value + 1};
             if (action->op != Op::Forward || table.replica_on(WorkerId{w}, next) < 0) continue;
             if (table.worker_of(next, action->micro_batch).value != w) continue;
             Action send = *action;
             send.op = Op::SendForward;
             send.peer = next;
             list.insert(action + 1, send);
             return true;
           }
         }
         return false;
       }},
      {"norm marked with another stage than the worker's first", "complete",
       [](Schedule& schedule) {
         const schedule::WorkerTable table(schedule.shape);
         for (int32_t w = 0; w < table.num_workers(); ++w) {
           if (table.held_by(WorkerId{w}).size() < 2) continue;
           for (Action& action : schedule.workers[static_cast<size_t>(w)]) {
             if (action.op != Op::NormGradients) continue;
             action.stage = table.held_by(WorkerId{w})[1].stage;
             return true;
           }
         }
         return false;
       }},
  };
}

/// Good schedules with and without replication, overlap, several stages per worker, split backward,
/// recomputation and norms.
std::vector<Schedule> good_schedules() {
  const auto make = [](Strategy kind, std::vector<int> replicas,
                       WeightPolicy policy = WeightPolicy::Flush, bool all = false) {
    ScheduleShape shape{
        .replicas = std::move(replicas), .micro_batches = 12, .accumulate = 4, .policy = policy};
    if (all) shape.recompute.assign(shape.replicas.size(), true);
    shape.global_norm = all;
    return full_schedule(kind, shape_for(kind, shape).value());
  };
  return {
      make(Strategy::Serial, {1}),
      make(Strategy::DataParallel, {3}),
      make(Strategy::GPipe, {1, 1, 1, 1}),
      make(Strategy::GPipe, {2, 1}, WeightPolicy::Flush, true),
      make(Strategy::OneFOneB, {1, 1, 1, 1}, WeightPolicy::Stash),
      make(Strategy::OneFOneB, {2, 3, 1}, WeightPolicy::Stash),
      make(Strategy::OneFOneB, {2, 1}, WeightPolicy::VerticalSync),
      make(Strategy::OneFOneB, {1, 1, 1}, WeightPolicy::Latest),
      make(Strategy::OneFOneBFlush, {2, 2}),
      make(Strategy::TwoBuffered, {1, 1, 1, 1}, WeightPolicy::TwoBuffered),
      make(Strategy::Interleaved, {1, 1, 1, 1, 1, 1}),
      make(Strategy::Interleaved, {2, 2, 2, 2}, WeightPolicy::Flush, true),
      make(Strategy::ZbH1, {1, 1, 1}),
      make(Strategy::ZbH1, {2, 1, 3}, WeightPolicy::Flush, true),
      make(Strategy::ZbH2, {1, 1, 1, 1}),
      make(Strategy::ZbV, {1, 1, 1, 1}),
      make(Strategy::ZbV, {1, 1, 1, 1}, WeightPolicy::Flush, true),
      make(Strategy::DualPipeV, {1, 1, 1, 1, 1, 1}, WeightPolicy::Flush, true),
      make(Strategy::VHalf, {1, 1, 1, 1, 1, 1}, WeightPolicy::Flush, true),
      make(Strategy::VMin, {1, 1, 1, 1, 1, 1, 1, 1}),
      make(Strategy::DualPipe, {2, 2, 2, 2}, WeightPolicy::Flush, true),
      make(Strategy::Chimera, {2, 2, 2, 2}),
      make(Strategy::Chimera, {2, 2}, WeightPolicy::Flush, true),
  };
}

bool objects(const std::vector<Violation>& violations, const std::string& rule) {
  return std::any_of(violations.begin(), violations.end(),
                     [&](const Violation& v) { return v.rule == rule; });
}

void check_mutations(const std::vector<Mutation>& mutations) {
  for (const Mutation& mutation : mutations) {
    int damaged = 0;
    for (const Schedule& good : good_schedules()) {
      ASSERT_TRUE(verify(good).empty());
      Schedule bad = good;
      if (!mutation.damage(bad)) continue;
      ++damaged;
      EXPECT_TRUE(objects(verify(bad), mutation.rule))
          << mutation.name << " in "
          << describe(plan::parse_scheduled_strategy(bad.kind), bad.shape);
    }
    EXPECT_GT(damaged, 0) << mutation.name;
  }
}

}  // namespace

TEST(Mutations, ActionsDroppedOrRepeatedAreFound) { check_mutations(drops_and_duplicates()); }
TEST(Mutations, ActionsOutOfOrderAreFound) { check_mutations(disorders()); }
TEST(Mutations, WrongFieldsAreFound) { check_mutations(wrong_fields()); }
TEST(Mutations, StagesOnTheWrongWorkersAreFound) { check_mutations(displacements()); }

TEST(Mutations, BackwardsInAForwardOnlyScheduleAreFound) {
  Schedule bad =
      full_schedule(Strategy::ForwardOnly, {.replicas = {1}, .micro_batches = 2, .accumulate = 2});
  Action backward = bad.workers[0].front();
  backward.op = Op::Backward;
  bad.workers[0].push_back(backward);
  EXPECT_TRUE(objects(verify(bad), "complete"));
}

TEST(Mutations, EveryDroppedActionIsFound) {
  for (const Schedule& good : good_schedules()) {
    for (size_t w = 0; w < good.workers.size(); ++w) {
      for (size_t i = 0; i < good.workers[w].size(); ++i) {
        Schedule bad = good;
        bad.workers[w].erase(bad.workers[w].begin() + static_cast<int64_t>(i));
        EXPECT_FALSE(verify(bad).empty())
            << good.kind << ": " << to_text(good.workers[w][i]) << " on worker " << w;
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
        EXPECT_FALSE(verify(bad).empty())
            << good.kind << ": " << to_text(good.workers[w][i]) << " on worker " << w;
      }
    }
  }
}

TEST(Mutations, StepsPlacedJustBeforeTheNextBackwardDeadlock) {
  // Why place_steps() does not put steps as late as possible: with replicas 1 3 1 and a step per
  // micro-batch the late place causes a cycle of waits.
  Schedule late = full_schedule(
      Strategy::OneFOneB,
      {.replicas = {1, 3, 1}, .micro_batches = 12, .accumulate = 1, .policy = WeightPolicy::Stash});
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

// A slow, independent check of schedules, for tests: it does what a careful reader would check by
// hand, with sets and maps, step by step.
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "penstock/schedule/schedule.h"
#include "penstock/schedule/worker_table.h"

namespace penstock::verify::testing {

using schedule::Action;
using schedule::Op;
using schedule::Schedule;

/// Which worker waits for which, once no worker can continue.
struct StuckWorkers {
  std::map<int, int64_t> position;         ///< of the workers that do not end
  std::map<int, std::set<int>> waits_for;  ///< of those
  bool empty() const { return position.empty(); }
};

/// Tries every worker again and again until nothing moves. Lowered schedules only.
class ReferenceTransport {
 public:
  ReferenceTransport(const Schedule& schedule, int64_t credits)
      : schedule_(schedule),
        table_(schedule.shape),
        team_of_stage_(teams_of(schedule.shape.teams)),
        credits_(credits) {
    position_.resize(schedule.workers.size());
  }

  StuckWorkers run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int w = 0; w < num_workers(); ++w) {
        while (at(w) != nullptr && step(w)) moved = true;
      }
    }
    StuckWorkers stuck;
    for (int w = 0; w < num_workers(); ++w) {
      if (at(w) == nullptr) continue;
      stuck.position[w] = static_cast<int64_t>(position_[static_cast<size_t>(w)]);
      stuck.waits_for[w] = waits_for(w);
    }
    return stuck;
  }

 private:
  using Message = std::tuple<int, int, int64_t>;  // from stage, to stage, micro-batch

  int num_workers() const { return static_cast<int>(position_.size()); }
  const Action* at(int w) const {
    const auto& list = schedule_.workers[static_cast<size_t>(w)];
    const size_t place = position_[static_cast<size_t>(w)];
    return place < list.size() ? &list[place] : nullptr;
  }
  static Message message(const Action& a) {
    return is_send(a.op) ? Message{a.stage.value, a.peer.value, a.micro_batch.value}
                         : Message{a.peer.value, a.stage.value, a.micro_batch.value};
  }
  int peer(const Action& a) const { return table_.worker_of(a.peer, a.micro_batch).value; }

  /// Of each stage a number of its team; empty without teams.
  static std::vector<int> teams_of(const std::vector<int>& teams) {
    std::vector<int> result;
    for (size_t t = 0; t < teams.size(); ++t)
      result.insert(result.end(), static_cast<size_t>(teams[t]), static_cast<int>(t));
    return result;
  }
  int team(const Action& a) const {
    return team_of_stage_.empty() ? a.stage.value : team_of_stage_[a.stage.index()];
  }
  /// Members of a SYNC, a NORM or a computation.
  std::set<int> members(const Action& a) const {
    std::set<int> result;
    if (is_compute(a.op)) {
      Action of_member = a;
      for (int32_t s = 0; s < schedule_.shape.num_stages(); ++s) {
        of_member.stage = StageId{s};
        if (team(of_member) == team(a))
          result.insert(table_.worker_of(of_member.stage, a.micro_batch).value);
      }
      return result;
    }
    for (int w = 0; w < num_workers(); ++w) {
      if (a.op == Op::NormGradients || table_.replica_on(WorkerId{w}, a.stage) >= 0)
        result.insert(w);
    }
    return result;
  }
  bool same_barrier(const Action* a, const Action& b) const {
    if (is_compute(b.op))
      return a != nullptr && a->op == b.op && a->micro_batch == b.micro_batch &&
             team(*a) == team(b);
    return a != nullptr && a->op == b.op && a->mini_batch == b.mini_batch &&
           (b.op == Op::NormGradients || a->stage == b.stage);
  }

  bool step(int w) {
    const Action& a = *at(w);
    if (is_message(a.op))
      return credits_ == 0 ? meet(w, a) : is_send(a.op) ? send(w, a) : receive(w, a);
    if (a.op == Op::SyncGradients || a.op == Op::NormGradients) return barrier(a) || passed(w, a);
    if (is_compute(a.op) && a.op != Op::BackwardWeight) return barrier(a);
    ++position_[static_cast<size_t>(w)];
    return true;
  }
  bool meet(int w, const Action& a) {
    const Action* other = at(peer(a));
    if (other == nullptr || !is_message(other->op) || message(*other) != message(a) ||
        is_send(other->op) == is_send(a.op))
      return false;
    ++position_[static_cast<size_t>(peer(a))];
    ++position_[static_cast<size_t>(w)];
    return true;
  }
  bool send(int w, const Action& a) {
    auto& channel = channels_[{w, peer(a), a.op == Op::SendBackward}];
    if (static_cast<int64_t>(channel.size()) >= credits_) return false;
    channel.push_back(message(a));
    ++position_[static_cast<size_t>(w)];
    return true;
  }
  bool receive(int w, const Action& a) {
    auto& channel = channels_[{peer(a), w, a.op == Op::RecvBackward}];
    const auto found = std::find(channel.begin(), channel.end(), message(a));
    if (found == channel.end()) return false;
    channel.erase(found);
    ++position_[static_cast<size_t>(w)];
    return true;
  }
  bool barrier(const Action& a) {
    const Action copy = a;
    const std::set<int> all = members(copy);
    for (const int w : all) {
      if (!same_barrier(at(w), copy)) return false;
    }
    for (const int w : all) ++position_[static_cast<size_t>(w)];
    if (is_compute(copy.op)) return true;
    passed_.insert({copy.op == Op::NormGradients ? -1 : copy.stage.value, copy.mini_batch.value});
    return true;
  }
  /// A barrier that all workers have passed blocks none of them again.
  bool passed(int w, const Action& a) {
    if (!passed_.contains({a.op == Op::NormGradients ? -1 : a.stage.value, a.mini_batch.value}))
      return false;
    ++position_[static_cast<size_t>(w)];
    return true;
  }

  std::set<int> waits_for(int w) const {
    const Action& a = *at(w);
    if (is_message(a.op)) return {peer(a)};
    std::set<int> others = members(a);
    std::erase_if(others, [&](int other) { return same_barrier(at(other), a); });
    return others;
  }

  const Schedule& schedule_;
  schedule::WorkerTable table_;
  std::vector<int> team_of_stage_;
  int64_t credits_;
  std::vector<size_t> position_;
  std::map<std::tuple<int, int, bool>, std::vector<Message>> channels_;
  std::set<std::pair<int, int64_t>> passed_;
};

/// Length of the shortest cycle of waits, 0 if there is none. O(workers^3).
inline size_t shortest_cycle_length(const StuckWorkers& stuck) {
  constexpr size_t kFar = 1'000'000;
  std::map<std::pair<int, int>, size_t> far;
  const auto distance = [&](int a, int b) {
    const auto found = far.find({a, b});
    return found == far.end() ? kFar : found->second;
  };
  for (const auto& [w, others] : stuck.waits_for) {
    for (const int other : others) far[{w, other}] = 1;
  }
  for (const auto& [via, p1] : stuck.position) {
    for (const auto& [a, p2] : stuck.position) {
      for (const auto& [b, p3] : stuck.position) {
        const size_t length = distance(a, via) + distance(via, b);
        if (length < distance(a, b)) far[{a, b}] = length;
      }
    }
  }
  size_t best = kFar;
  for (const auto& [w, place] : stuck.position) best = std::min(best, distance(w, w));
  return best == kFar ? 0 : best;
}

/// Whether a worker's list does everything in a valid order, if its messages carry the right data:
/// walks the list with sets of what exists at each point. For a chain of stages, lowered, with
/// training.
class ReferenceWorker {
 public:
  /// `mini_batches`: the list was cut after this many.
  ReferenceWorker(const Schedule& schedule, int worker, int64_t mini_batches)
      : schedule_(schedule),
        shape_(schedule.shape),
        table_(schedule.shape),
        worker_(worker),
        mini_batches_(mini_batches),
        list_(schedule.workers[static_cast<size_t>(worker)]) {}

  bool is_sound() {
    for (const auto& held : table_.held_by(WorkerId{worker_})) live_[held.stage.value] = {0};
    for (size_t i = 0; i < list_.size(); ++i) {
      if (!step(list_[i], i + 1 < list_.size() ? &list_[i + 1] : nullptr)) return false;
    }
    return ended_well();
  }

 private:
  using Cell = std::pair<int, int64_t>;

  bool runs(int stage, int64_t b) const {
    return stage >= 0 && stage < shape_.num_stages() &&
           table_.worker_of(StageId{stage}, MicroBatchId{b}).value == worker_;
  }
  bool step(const Action& a, const Action* next) {
    const int s = a.stage.value;
    if (a.with_next && (a.op != Op::Forward || next == nullptr ||
                        (next->op != Op::Backward && next->op != Op::BackwardInput) ||
                        next->micro_batch == a.micro_batch))
      return false;
    if (!live_.contains(s)) return false;
    if (has_micro_batch(a.op)) {
      if (a.micro_batch.value < 0 || a.micro_batch.value >= shape_.micro_batches ||
          !runs(s, a.micro_batch.value))
        return false;
      if (a.mini_batch.value != a.micro_batch.value / shape_.accumulate) return false;
    } else if (a.mini_batch.value < 0 || a.mini_batch.value >= shape_.num_mini_batches()) {
      return false;
    }
    if (is_move(a.op)) return move(a);
    return is_message(a.op) ? message(a) : is_compute(a.op) ? compute(a) : update(a, next);
  }

  bool move(const Action& a) {
    const int s = a.stage.value;
    const int64_t b = a.micro_batch.value;
    const auto is_new = done_.insert({a.op, s, b}).second;
    return is_new && shape_.offloads(a.stage) && !has_input_gradients(s, b) &&
           has(a.op == Op::Offload ? Op::Forward : Op::Offload, s, b);
  }

  bool message(const Action& a) {
    const int s = a.stage.value;
    const int64_t b = a.micro_batch.value;
    const bool up = a.op == Op::SendForward || a.op == Op::RecvBackward;
    const int peer = up ? s + 1 : s - 1;
    if (a.peer.value != peer || peer < 0 || peer >= shape_.num_stages() || runs(peer, b))
      return false;
    const auto is_new = done_.insert({a.op, s, b}).second;
    if (!is_new) return false;
    if (a.op == Op::SendForward) return has(Op::Forward, s, b);
    if (a.op == Op::SendBackward) return has_input_gradients(s, b);
    return a.op == Op::RecvForward ? !has(Op::Forward, s, b) : !has_input_gradients(s, b);
  }

  bool compute(const Action& a) {
    const int s = a.stage.value;
    const int64_t b = a.micro_batch.value;
    const int64_t v = a.version.value;
    const bool is_new = done_.insert({a.op, s, b}).second;
    if (!is_new || v != prescribed(a) || !live_[s].contains(v)) return false;
    if (a.op == Op::Forward) forward_version_[b] = v;
    switch (a.op) {
      case Op::Forward:
        return s == 0 || (runs(s - 1, b) ? has(Op::Forward, s - 1, b) : has(Op::RecvForward, s, b));
      case Op::Recompute:
        return shape_.recomputes(a.stage) && has(Op::Forward, s, b) &&
               !has(Op::RecvBackward, s, b) && !has_input_gradients(s, b);
      case Op::BackwardWeight:
        return has(Op::BackwardInput, s, b) && accumulate(a);
      default: {
        if (has(Op::Backward, s, b) && has(Op::BackwardInput, s, b)) return false;
        if (!has(Op::Forward, s, b) || (shape_.recomputes(a.stage) && !has(Op::Recompute, s, b)))
          return false;
        const bool is_last = s + 1 == shape_.num_stages();
        if (!is_last &&
            !(runs(s + 1, b) ? has_input_gradients(s + 1, b) : has(Op::RecvBackward, s, b)))
          return false;
        return a.op == Op::BackwardInput || accumulate(a);
      }
    }
  }
  /// docs/weights.md.
  int64_t prescribed(const Action& a) {
    const int64_t t = a.mini_batch.value;
    switch (shape_.policy) {
      case schedule::WeightPolicy::Flush:
        return t;
      case schedule::WeightPolicy::TwoBuffered:
        return t == 0 ? 0 : t - 1;
      case schedule::WeightPolicy::Latest:
      case schedule::WeightPolicy::Current:
        return steps_[a.stage.value];
      case schedule::WeightPolicy::Stash:
        return a.op == Op::Forward ? steps_[a.stage.value] : forward_version_[a.micro_batch.value];
      case schedule::WeightPolicy::VerticalSync:
        break;
    }
    int64_t steps_at_input = 0;
    const WorkerId input = table_.worker_of(StageId{0}, a.micro_batch);
    for (const Action& other : schedule_.workers[input.index()]) {
      if (other.op == Op::Forward && other.micro_batch == a.micro_batch) break;
      if (other.op == Op::Step) ++steps_at_input;
    }
    return steps_at_input;
  }

  bool accumulate(const Action& a) {
    const int s = a.stage.value;
    gradients_[s].insert(a.micro_batch.value);
    return a.mini_batch.value == steps_[s] && syncs_[s] == steps_[s] &&
           (!shape_.global_norm || norms_ == steps_[s]);
  }

  /// The gradients of the stage hold exactly the worker's micro-batches of mini-batch t.
  bool is_full(int s, int64_t t) {
    std::set<int64_t> expected;
    for (int64_t b = t * shape_.accumulate;
         b < std::min(shape_.micro_batches, (t + 1) * shape_.accumulate); ++b) {
      if (runs(s, b)) expected.insert(b);
    }
    return gradients_[s] == expected;
  }
  bool update(const Action& a, const Action* next) {
    const int s = a.stage.value;
    const int64_t t = a.mini_batch.value;
    const int64_t v = a.version.value;
    const bool replicated = table_.replicas(a.stage) > 1;
    if (a.op == Op::SyncGradients)
      return replicated && t == syncs_[s]++ && t == steps_[s] &&
             (!shape_.global_norm || norms_ == t) && is_full(s, t);
    if (a.op == Op::NormGradients) {
      if (!shape_.global_norm || s != table_.held_by(WorkerId{worker_})[0].stage.value ||
          t != norms_++)
        return false;
      return std::all_of(live_.begin(), live_.end(), [&](const auto& stage) {
        const bool synced =
            table_.replicas(StageId{stage.first}) == 1 || syncs_[stage.first] == t + 1;
        return synced && steps_[stage.first] == t && is_full(stage.first, t);
      });
    }
    if (a.op == Op::Step) {
      if (t != steps_[s] || v != t || !is_full(s, t)) return false;
      if ((replicated && syncs_[s] != t + 1) || (shape_.global_norm && norms_ != t + 1))
        return false;
      if (!replicated) syncs_[s] = t + 1;
      gradients_[s].clear();
      live_[s].insert(++steps_[s]);
      return true;
    }
    const bool in_place = next != nullptr && next->op == Op::Step && next->stage == a.stage;
    return live_[s].erase(v) == 1 && (v < steps_[s] || in_place);
  }

  bool has(Op op, int s, int64_t b) const { return done_.contains({op, s, b}); }
  bool has_input_gradients(int s, int64_t b) const {
    return has(Op::Backward, s, b) || has(Op::BackwardInput, s, b);
  }

  bool ended_well() {
    const bool is_cut = mini_batches_ < shape_.num_mini_batches();
    for (const auto& held : table_.held_by(WorkerId{worker_})) {
      const int s = held.stage.value;
      // A run that stops early has not freed all versions.
      if (steps_[s] != mini_batches_ || !live_[s].contains(mini_batches_) ||
          (!is_cut && live_[s].size() != 1))
        return false;
      for (int64_t b = 0; b < std::min(shape_.micro_batches, mini_batches_ * shape_.accumulate);
           ++b) {
        if (!runs(s, b)) continue;
        if (!has(Op::Forward, s, b) || !(has(Op::Backward, s, b) || has(Op::BackwardWeight, s, b)))
          return false;
        if (has(Op::Backward, s, b) && has(Op::BackwardWeight, s, b)) return false;
        if (has(Op::Offload, s, b) != has(Op::Load, s, b)) return false;
        if (s + 1 < shape_.num_stages() && !runs(s + 1, b) && !has(Op::SendForward, s, b))
          return false;
        if (s > 0 && !runs(s - 1, b) && !has(Op::SendBackward, s, b)) return false;
      }
    }
    return true;
  }

  const Schedule& schedule_;
  const schedule::ScheduleShape& shape_;
  schedule::WorkerTable table_;
  int worker_;
  int64_t mini_batches_;
  const std::vector<Action>& list_;
  std::set<std::tuple<Op, int, int64_t>> done_;
  std::map<int, std::set<int64_t>> live_;       // by stage: versions
  std::map<int, std::set<int64_t>> gradients_;  // by stage: micro-batches added since the last step
  std::map<int64_t, int64_t> forward_version_;  // by micro-batch
  std::map<int, int64_t> steps_;
  std::map<int, int64_t> syncs_;
  int64_t norms_ = 0;
};

/// Whether a lowered schedule over a chain of stages may be run, also when the run stops after any
/// mini-batch.
inline bool is_sound(const Schedule& schedule, int64_t credits) {
  const auto all_sound = [&](const Schedule& s, int64_t mini_batches) {
    for (size_t w = 0; w < s.workers.size(); ++w) {
      if (!ReferenceWorker(s, static_cast<int>(w), mini_batches).is_sound()) return false;
    }
    return ReferenceTransport(s, credits).run().empty();
  };
  const int64_t mini_batches = schedule.shape.num_mini_batches();
  if (!all_sound(schedule, mini_batches)) return false;
  for (int64_t kept = 0; kept < mini_batches; ++kept) {
    Schedule cut = schedule;
    for (auto& list : cut.workers)
      std::erase_if(list, [&](const Action& a) { return a.mini_batch.value >= kept; });
    if (!all_sound(cut, kept)) return false;
  }
  return true;
}

}  // namespace penstock::verify::testing

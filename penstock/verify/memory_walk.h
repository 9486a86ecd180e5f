// What a worker keeps in memory at each action of its list.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "penstock/verify/facts.h"
#include "penstock/verify/values.h"

namespace penstock::verify {

/// Walks the lists of a valid shape's workers one after another; the actions may be any.
class MemoryWalk {
 public:
  struct Held {
    int64_t versions = 0;
    int64_t stashed = 0;  ///< micro-batches, of all stages
    __int128 bytes = 0;
  };

  /// `facts`, its schedule and `bytes` must outlive the walk.
  MemoryWalk(const Facts& facts, const Options& bytes)
      : facts_(facts),
        bytes_(bytes),
        copies_(schedule::compensation_copies(facts.schedule.shape)),
        held_by_(static_cast<size_t>(facts.num_stages), -1),
        stages_(facts) {}

  /// Calls visit(action, held) for each action that takes memory, with the sum that is held during
  /// and after it; first with a null action and what is held at the start. A forward-only schedule
  /// stashes nothing and has no gradients.
  template <class Visit>
  void walk(WorkerId worker, Visit visit) {
    begin(worker);
    visit(static_cast<const Action*>(nullptr), now_);
    const std::vector<Action>& list = facts_.workers()[worker.index()];
    for (size_t i = 0; i < list.size(); ++i) {
      const Action& action = list[i];
      if (action.stage.value < 0 || action.stage.value >= facts_.num_stages ||
          held_by_[action.stage.index()] != worker.value)
        continue;
      const bool in_place = action.op == Op::FreeWeights && i + 1 < list.size() &&
                            list[i + 1].op == Op::Step && list[i + 1].stage == action.stage &&
                            list[i + 1].version == action.version;
      if (in_place) {
        ++i;  // the step writes into the freed version
      } else if (take(action)) {
        visit(&action, now_);
      }
    }
  }

 private:
  struct Stage {
    int64_t versions = 1;
    int64_t kept = 0;    ///< micro-batches from F on: stashes, or inputs where the stage recomputes
    int64_t remade = 0;  ///< those whose stash R has made as well
    int64_t away = 0;    ///< those whose stash is in the memory of the host alone
  };

  static constexpr std::pair<StageId, MicroBatchId> kNone{StageId{-1}, MicroBatchId{-1}};

  static int64_t of_stage(const std::vector<int64_t>& bytes, StageId stage) {
    return stage.index() < bytes.size() ? std::max<int64_t>(bytes[stage.index()], 0) : 0;
  }

  void begin(WorkerId worker) {
    stages_.move_to(worker);
    leaving_ = kNone;
    now_ = {};
    for (const auto& held : facts_.table.held_by(worker)) {
      held_by_[held.stage.index()] = worker.value;
      ++now_.versions;
      now_.bytes += of_stage(bytes_.weight_bytes, held.stage);
      if (!copies_.empty() && !facts_.forward_only) {
        now_.bytes += static_cast<__int128>(copies_[held.stage.index()]) *
                      of_stage(bytes_.weight_bytes, held.stage);
      }
      if (!facts_.forward_only) now_.bytes += of_stage(bytes_.gradient_bytes, held.stage);
    }
  }

  /// Whether the action takes memory.
  bool take(const Action& action) {
    Stage& stage = stages_[action.stage];
    switch (action.op) {
      case Op::Forward:
        if (facts_.forward_only) return false;
        if (keeps_newest() && stage.kept > 0) return false;
        keep(stage, 1, action.stage);
        return true;
      case Op::Recompute:
        if (!facts_.schedule.shape.recomputes(action.stage) || stage.remade == stage.kept)
          return false;
        remake(stage, 1, action.stage);
        return true;
      case Op::Offload:
        if (!facts_.schedule.shape.offloads(action.stage) || stage.away >= stage.kept) return false;
        drop_leaving();
        leaving_ = {action.stage, action.micro_batch};
        return false;
      case Op::Load:
        if (is_leaving(action)) {
          leaving_ = kNone;
          return false;
        }
        if (stage.away == 0) return false;
        move(stage, -1, action.stage);
        return true;
      case Op::Backward:
      case Op::BackwardWeight:
        if (is_leaving(action)) leaving_ = kNone;
        if (stage.kept > 0 && !keeps_newest()) keep(stage, -1, action.stage);
        if (stage.remade > 0) remake(stage, -1, action.stage);
        return false;
      case Op::Step:
      case Op::FreeWeights: {
        const int64_t by = action.op == Op::Step ? 1 : stage.versions > 0 ? -1 : 0;
        stage.versions += by;
        now_.versions += by;
        now_.bytes += static_cast<__int128>(by) * of_stage(bytes_.weight_bytes, action.stage);
        return by > 0;
      }
      default:
        return false;
    }
  }

  /// What is on its way to the host is still here until the next OFFLOAD, which waits for it.
  void drop_leaving() {
    if (leaving_.first.value < 0) return;
    Stage& stage = stages_[leaving_.first];
    if (stage.away < stage.kept) move(stage, 1, leaving_.first);
    leaving_ = kNone;
  }
  bool is_leaving(const Action& action) const {
    return leaving_ == std::pair(action.stage, action.micro_batch);
  }
  void move(Stage& stage, int64_t away, StageId id) {
    stage.away += away;
    now_.bytes -= static_cast<__int128>(away) * of_stage(bytes_.stash_bytes, id);
  }

  /// One micro-batch per stage, from its first F on.
  bool keeps_newest() const { return facts_.schedule.shape.policy == plan::WeightPolicy::Current; }

  void keep(Stage& stage, int64_t by, StageId id) {
    const bool inputs_alone = facts_.schedule.shape.recomputes(id);
    stage.kept += by;
    now_.stashed += by;
    now_.bytes += static_cast<__int128>(by) *
                  of_stage(inputs_alone ? bytes_.input_bytes : bytes_.stash_bytes, id);
  }

  void remake(Stage& stage, int64_t by, StageId id) {
    stage.remade += by;
    now_.bytes += static_cast<__int128>(by) * of_stage(bytes_.stash_bytes, id);
  }

  const Facts& facts_;
  const Options& bytes_;
  std::vector<int64_t> copies_;   ///< by stage, of the compensation; empty: none
  std::vector<int32_t> held_by_;  // by stage: the last worker visited that holds it
  HeldStages<Stage> stages_;
  std::pair<StageId, MicroBatchId> leaving_ = kNone;  // on its way to the host
  Held now_;
};

/// The walk's bytes, limited to the range of the type.
inline int64_t clamped(__int128 bytes) {
  return bytes > INT64_MAX ? INT64_MAX : static_cast<int64_t>(bytes);
}

}  // namespace penstock::verify

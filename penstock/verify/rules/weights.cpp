// weights: every F, B, I, W and R uses the version that the policy prescribes (docs/weights.md),
// moved by as many steps as the compensation prescribes; an earlier step of the stage on the worker
// has made that version and it has not been freed; every
// version except the newest at the end is freed exactly once, by a FREE whose mini-batch is not
// before the one whose step replaces the version; and a step reads the newest version.
//
// Smallest schedule that breaks it: one worker, one micro-batch, `0F0@0,0FREE0@0,0B0@0,0STEP0@0`.
#include <algorithm>
#include <vector>

#include "penstock/verify/rules/rules.h"

namespace penstock::verify {
namespace {

using schedule::Compensation;
using schedule::WeightPolicy;

/// Walks the workers' lists in order, stage 0's first where vertical-sync needs that, and keeps the
/// state of the current worker.
class VersionWalk {
 public:
  VersionWalk(const Facts& facts, Report& report)
      : facts_(facts),
        report_(report),
        held_(facts),
        versions_(static_cast<size_t>(facts.mini_batches)),
        freed_by_(static_cast<size_t>(facts.most_held) * versions_, -1) {
    const WeightPolicy policy = facts.schedule.shape.policy;
    if (policy == WeightPolicy::Stash || policy == WeightPolicy::VerticalSync)
      used_.resize(static_cast<size_t>(facts.micro_batches), 0);
    if (facts.schedule.shape.compensation != Compensation::None)
      forward_.resize(static_cast<size_t>(facts.micro_batches), 0);
  }

  void walk(WorkerId worker) {
    worker_ = worker;
    held_.move_to(worker);
    const std::vector<Action>& list = facts_.workers()[worker.index()];
    for (size_t i = 0; i < list.size(); ++i)
      visit(list[i], i + 1 < list.size() ? &list[i + 1] : nullptr);
    for (const auto& held : facts_.table.held_by(worker)) {
      const Counts& counts = held_[held.stage];
      if (counts.steps == facts_.mini_batches && counts.frees < counts.steps)
        report_leaks(held.stage);
    }
  }

 private:
  struct Counts {
    int64_t steps = 0;
    int64_t frees = 0;
  };

  void visit(const Action& action, const Action* next) {
    if (is_compute(action.op)) {
      use(action);
    } else if (action.op == Op::FreeWeights) {
      free(action, next);
    } else if (action.op == Op::Step) {
      int64_t& steps = held_[action.stage].steps;
      if (action.version.value != steps)
        report_.add("weights", worker_, action, "the newest version is {}", steps);
      ++steps;
    }
  }

  void use(const Action& action) {
    const int64_t version = action.version.value;
    const int64_t steps = held_[action.stage].steps;
    const int64_t expected = prescribed(action, steps);
    if (version != expected) {
      report_.add("weights", worker_, action, "policy {} prescribes version {}, found {}",
                  to_string(facts_.schedule.shape.policy), expected, version);
    }
    if (const int64_t moved = prescribed_move(action); action.ahead != moved) {
      report_.add("weights", worker_, action,
                  "compensation {} moves version {} by {} steps here, found {}",
                  to_string(facts_.schedule.shape.compensation), version, moved, action.ahead);
    }
    if (version < 0) return;
    if (version > steps) {
      report_.add("weights", worker_, action, "version {} has not been made; the newest is {}",
                  version, steps);
    } else if (is_freed(action.stage, version)) {
      report_.add("weights", worker_, action, "version {} has been freed", version);
    }
  }

  /// The version by the policy's formula; also notes what later actions need. A copy on purpose of
  /// the rule in schedule/weight_versions.cpp: a mistake there must not hide itself here.
  int64_t prescribed(const Action& action, int64_t steps) {
    if (facts_.forward_only) return 0;
    switch (facts_.schedule.shape.policy) {
      case WeightPolicy::Flush:
        return action.mini_batch.value;
      case WeightPolicy::TwoBuffered:
        return std::max<int64_t>(action.mini_batch.value - 1, 0);
      case WeightPolicy::Latest:
      case WeightPolicy::Current:
        return steps;
      case WeightPolicy::Stash:
      case WeightPolicy::VerticalSync:
        break;
    }
    const bool notes =
        facts_.schedule.shape.policy == WeightPolicy::Stash || action.stage.value == 0;
    int64_t& used = used_[action.micro_batch.index()];
    if (action.op == Op::Forward && notes) used = steps;
    return used;
  }

  /// By how many steps the weights of an action are moved; also notes what later actions need. A
  /// copy on purpose of plan::steps_ahead(), by what each compensation aims at.
  int64_t prescribed_move(const Action& action) {
    if (forward_.empty() || facts_.forward_only) return 0;
    int64_t& forward = forward_[action.micro_batch.index()];
    if (action.op == Op::Forward) forward = action.version.value;
    switch (facts_.schedule.shape.compensation) {
      // All passes see the weights that the step of their mini-batch is expected to find.
      case Compensation::Predict:
        return action.mini_batch.value - action.version.value;
      // Those that make gradients see the weights of their forward pass.
      case Compensation::Correct:
        return makes_input_gradients(action.op) || makes_weight_gradients(action.op)
                   ? forward - action.version.value
                   : 0;
      case Compensation::None:
      case Compensation::Rate:
      case Compensation::Nesterov:
        break;
    }
    return 0;
  }

  void free(const Action& action, const Action* next) {
    const int64_t version = action.version.value;
    Counts& counts = held_[action.stage];
    if (version < 0 || version > counts.steps || version >= facts_.mini_batches) {
      report_.add("weights", worker_, action, "version {} {}", version,
                  version > counts.steps ? "has not been made" : "must not be freed");
      return;
    }
    if (is_freed(action.stage, version)) {
      report_.add("weights", worker_, action, "version {} has been freed before", version);
      return;
    }
    const bool before_its_step =
        next != nullptr && next->op == Op::Step && next->stage == action.stage;
    if (version == counts.steps && !before_its_step) {
      report_.add(
          "weights", worker_, action,
          "version {} is the newest; it may only be freed right before the step that replaces it",
          version);
    }
    if (action.mini_batch.value < version) {
      report_.add(
          "weights", worker_, action,
          "belongs to mini-batch {}, but version {} is the newest until the step of mini-batch {}",
          action.mini_batch.value, version, version);
    }
    freed_by_[place(action.stage, version)] = worker_.value;
    ++counts.frees;
  }

  void report_leaks(StageId stage) {
    for (int64_t v = 0; v < facts_.mini_batches && !report_.full(); ++v) {
      if (!is_freed(stage, v))
        report_.add("weights", worker_, "version {} of stage {} is never freed", v, stage.value);
    }
  }

  size_t place(StageId stage, int64_t version) const {
    return held_.place(stage) * versions_ + static_cast<size_t>(version);
  }
  bool is_freed(StageId stage, int64_t version) const {
    return version < facts_.mini_batches && freed_by_[place(stage, version)] == worker_.value;
  }

  const Facts& facts_;
  Report& report_;
  HeldStages<Counts> held_;
  size_t versions_;
  // by the stage's place and the version: the last worker that freed it
  std::vector<int32_t> freed_by_;
  // by micro-batch: the version its forward used (vertical-sync: at stage 0)
  std::vector<int64_t> used_;
  // by micro-batch: the version its forward on the stage used; only with a compensation
  std::vector<int64_t> forward_;
  WorkerId worker_{-1};
};

}  // namespace

void check_weights(const Facts& facts, Report& report) {
  if (!facts.schedule.lowered) return;
  VersionWalk walk(facts, report);
  const auto visit = [&](WorkerId worker) {
    if (!report.full()) walk.walk(worker);
  };
  // Vertical-sync takes the versions from stage 0, whose workers may have any numbers.
  const bool two_rounds = facts.schedule.shape.policy == WeightPolicy::VerticalSync;
  for (int k = 0; two_rounds && k < facts.table.replicas(StageId{0}); ++k)
    visit(facts.table.worker_of_replica(StageId{0}, k));
  for (int32_t w = 0; w < facts.table.num_workers(); ++w) {
    if (!two_rounds || facts.table.first_stage_of(WorkerId{w}).value != 0) visit(WorkerId{w});
  }
}

}  // namespace penstock::verify

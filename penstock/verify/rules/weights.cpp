// weights: every forward and backward uses the version that the policy prescribes (docs/weights.md), that version has been made by an
// earlier step of the worker and not been freed, every version but the newest at the end is freed exactly once, and a step reads the
// newest.
//
// Smallest schedule that breaks it: one worker, one micro-batch, `0F0@0,0FREE0@0,0B0@0,0STEP0@0`.
#include <algorithm>
#include <vector>

#include "penstock/verify/rules/rules.h"

namespace penstock::verify {
namespace {

using schedule::WeightPolicy;

/// Walks the workers' lists in order, stage 0's first, and keeps the state of the worker at hand.
class VersionWalk {
 public:
  VersionWalk(const Facts& facts, Report& report)
      : facts_(facts), report_(report), freed_by_(static_cast<size_t>(facts.mini_batches) + 1, -1) {
    const WeightPolicy policy = facts.schedule.shape.policy;
    if (policy == WeightPolicy::Stash || policy == WeightPolicy::VerticalSync) used_.resize(static_cast<size_t>(facts.micro_batches), 0);
  }

  void walk(WorkerId worker) {
    worker_ = worker;
    steps_ = 0;
    frees_ = 0;
    const std::vector<Action>& list = facts_.workers()[worker.index()];
    for (size_t i = 0; i < list.size(); ++i) visit(list[i], i + 1 < list.size() ? &list[i + 1] : nullptr);
    if (steps_ == facts_.mini_batches && frees_ < steps_) report_leaks();
  }

 private:
  void visit(const Action& action, const Action* next) {
    if (is_compute(action.op)) {
      use(action);
    } else if (action.op == Op::FreeWeights) {
      free(action, next);
    } else if (action.op == Op::Step) {
      if (action.version.value != steps_) report_.add("weights", worker_, action, "the newest version is {}", steps_);
      ++steps_;
    }
  }

  void use(const Action& action) {
    const int64_t version = action.version.value;
    const int64_t expected = prescribed(action);
    if (version != expected) {
      report_.add("weights", worker_, action, "policy {} prescribes version {}, found {}", to_string(facts_.schedule.shape.policy),
                  expected, version);
    }
    if (version < 0) return;
    if (version > steps_) {
      report_.add("weights", worker_, action, "version {} has not been made; the newest is {}", version, steps_);
    } else if (is_freed(version)) {
      report_.add("weights", worker_, action, "version {} has been freed", version);
    }
  }

  /// The version by the policy's formula; also notes what later actions need.
  int64_t prescribed(const Action& action) {
    if (facts_.forward_only) return 0;
    switch (facts_.schedule.shape.policy) {
      case WeightPolicy::Flush:
        return action.mini_batch.value;
      case WeightPolicy::TwoBuffered:
        return std::max<int64_t>(action.mini_batch.value - 1, 0);
      case WeightPolicy::Latest:
        return steps_;
      case WeightPolicy::Stash:
      case WeightPolicy::VerticalSync:
        break;
    }
    const bool notes = facts_.schedule.shape.policy == WeightPolicy::Stash || action.stage.value == 0;
    int64_t& used = used_[action.micro_batch.index()];
    if (action.op == Op::Forward && notes) used = steps_;
    return used;
  }

  void free(const Action& action, const Action* next) {
    const int64_t version = action.version.value;
    if (version < 0 || version > steps_ || version >= facts_.mini_batches) {
      report_.add("weights", worker_, action, "version {} {}", version, version > steps_ ? "has not been made" : "must not be freed");
      return;
    }
    if (is_freed(version)) {
      report_.add("weights", worker_, action, "version {} has been freed before", version);
      return;
    }
    if (version == steps_ && (next == nullptr || next->op != Op::Step)) {
      report_.add("weights", worker_, action, "version {} is the newest; it may only be freed right before the step that replaces it",
                  version);
    }
    freed_by_[static_cast<size_t>(version)] = worker_.value;
    ++frees_;
  }

  void report_leaks() {
    for (int64_t v = 0; v < facts_.mini_batches && !report_.full(); ++v) {
      if (!is_freed(v)) report_.add("weights", worker_, "version {} is never freed", v);
    }
  }

  bool is_freed(int64_t version) const {
    return version >= 0 && version < static_cast<int64_t>(freed_by_.size()) && freed_by_[static_cast<size_t>(version)] == worker_.value;
  }

  const Facts& facts_;
  Report& report_;
  std::vector<int32_t> freed_by_;  // by version: the last worker that freed it
  std::vector<int64_t> used_;      // by micro-batch: the version its forward used (vertical-sync: at stage 0)
  WorkerId worker_{-1};
  int64_t steps_ = 0;
  int64_t frees_ = 0;
};

}  // namespace

void check_weights(const Facts& facts, Report& report) {
  if (!facts.schedule.lowered) return;
  VersionWalk walk(facts, report);
  for (int32_t w = 0; w < facts.table.num_workers() && !report.full(); ++w) walk.walk(WorkerId{w});
}

}  // namespace penstock::verify

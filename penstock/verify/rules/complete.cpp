// complete: every stage runs the forward of every micro-batch exactly once on the worker that owns
// it, and, unless the schedule is forward-only, its backward exactly once: whole (B) or split (I
// and W), after exactly one R where a stage of a lowered schedule recomputes. Where a stage
// offloads, a micro-batch has one OFFLOAD and one LOAD or neither. Every worker makes the step of
// every mini-batch exactly once for each of its stages, with one sync where the stage is replicated
// and one NORM for all of them where the shape requires a global norm.
//
// Smallest schedule that breaks it: one worker, one micro-batch, `0F0` without `0B0`.
#include <optional>
#include <vector>

#include "penstock/verify/rules/rules.h"

namespace penstock::verify {
namespace {

constexpr uint8_t kDoneForward = 1;
constexpr uint8_t kDoneBackward = 2;
constexpr uint8_t kDoneInput = 4;
constexpr uint8_t kDoneWeight = 8;
constexpr uint8_t kDoneRecompute = 16;
constexpr uint8_t kDoneOffload = 32;
constexpr uint8_t kDoneLoad = 64;

uint8_t bit_of(Op op) {
  switch (op) {
    case Op::Forward:
      return kDoneForward;
    case Op::Backward:
      return kDoneBackward;
    case Op::BackwardInput:
      return kDoneInput;
    case Op::BackwardWeight:
      return kDoneWeight;
    case Op::Offload:
      return kDoneOffload;
    case Op::Load:
      return kDoneLoad;
    default:
      return kDoneRecompute;
  }
}

/// The compute actions and moves of every (stage, micro-batch).
class ComputeCheck {
 public:
  ComputeCheck(const Facts& facts, Report& report)
      : facts_(facts), report_(report), seen_(facts.num_cells(), 0) {}

  /// Reports the second and later ones, and those that must not be there.
  void visit(WorkerId worker, const Action& action) {
    uint8_t& seen = seen_[facts_.cell(action.stage, action.micro_batch)];
    const uint8_t bit = bit_of(action.op);
    if ((seen & bit) != 0) report_.add("complete", worker, action, "occurs more than once");
    seen |= bit;
    if (bit == kDoneForward) return;
    if (facts_.forward_only) {
      report_.add("complete", worker, action, "occurs in a forward-only schedule");
    } else if (bit == kDoneRecompute) {
      if (!facts_.schedule.shape.recomputes(action.stage))
        report_.add("complete", worker, action, "the stage keeps its activations");
    } else if (bit == kDoneOffload || bit == kDoneLoad) {
      if (!facts_.schedule.shape.offloads(action.stage))
        report_.add("complete", worker, action, "the stage keeps its activations where they are");
    } else if ((seen & kDoneBackward) != 0 && (seen & (kDoneInput | kDoneWeight)) != 0) {
      report_.add("complete", worker, action, "the backward occurs whole (B) and split (I, W)");
    }
  }

  void find_missing() {
    size_t cell = 0;
    for (int32_t s = 0; s < facts_.num_stages && !report_.full(); ++s) {
      const uint8_t recompute =
          facts_.schedule.lowered && facts_.schedule.shape.recomputes(StageId{s}) ? kDoneRecompute
                                                                                  : 0;
      for (int64_t b = 0; b < facts_.micro_batches && !report_.full(); ++b, ++cell) {
        const uint8_t missing = missing_in(seen_[cell], recompute);
        if (missing != 0) report_missing(StageId{s}, MicroBatchId{b}, missing);
      }
    }
  }

 private:
  uint8_t missing_in(uint8_t seen, uint8_t recompute) const {
    if (facts_.forward_only) return static_cast<uint8_t>(kDoneForward & ~seen);
    const bool split = (seen & (kDoneInput | kDoneWeight)) != 0;
    uint8_t expected = kDoneForward | recompute;
    if ((seen & (kDoneOffload | kDoneLoad)) != 0) expected |= kDoneOffload | kDoneLoad;
    // visit() reports a backward in both forms; then no part of it is missing.
    if (!split) expected |= kDoneBackward;
    if (split && (seen & kDoneBackward) == 0) expected |= kDoneInput | kDoneWeight;
    return static_cast<uint8_t>(expected & ~seen);
  }

  void report_missing(StageId stage, MicroBatchId b, uint8_t missing) {
    for (const Op op : {Op::Forward, Op::Recompute, Op::Offload, Op::Load, Op::Backward,
                        Op::BackwardInput, Op::BackwardWeight}) {
      if ((missing & bit_of(op)) == 0) continue;
      const Action action{
          .op = op, .stage = stage, .micro_batch = b, .mini_batch = {}, .peer = stage};
      report_.add("complete", facts_.owner(stage, b), action, "is missing");
    }
  }

  const Facts& facts_;
  Report& report_;
  std::vector<uint8_t> seen_;  // by cell: a bit per compute action found
};

/// STEP, SYNC or NORM: once for each mini-batch on each stage of a worker (NORM: on the worker).
class MiniBatchCheck {
 public:
  MiniBatchCheck(const Facts& facts, Op op, Report& report)
      : facts_(facts), report_(report), op_(op) {
    bool somewhere = false;
    for (int32_t s = 0; s < facts.num_stages && !somewhere; ++s)
      somewhere = expected_on(StageId{s});
    if (!somewhere) return;
    found_.emplace(facts);
    seen_by_.resize(
        static_cast<size_t>((op == Op::NormGradients ? 1 : facts.most_held) * facts.mini_batches),
        -1);
  }

  void begin(WorkerId worker) {
    worker_ = worker;
    if (found_) found_->move_to(worker);
  }

  void visit(const Action& action) {
    if (!expected_on(action.stage)) {
      report_.add("complete", worker_, action, "{}", why_not());
      return;
    }
    // NORM is marked with the first stage, whose place is 0.
    int32_t& seen_by =
        seen_by_[found_->place(action.stage) * static_cast<size_t>(facts_.mini_batches) +
                 action.mini_batch.index()];
    if (seen_by == worker_.value) {
      report_.add("complete", worker_, action, "occurs more than once");
    } else {
      ++(*found_)[action.stage];
    }
    seen_by = worker_.value;
  }

  void end() {
    if (!found_) return;
    const auto held = facts_.table.held_by(worker_);
    const size_t places = op_ == Op::NormGradients ? 1 : held.size();
    for (size_t i = 0; i < places && !report_.full(); ++i) {
      if (expected_on(held[i].stage) && found_->at(i) != facts_.mini_batches)
        report_missing(i, held[i].stage);
    }
  }

 private:
  bool expected_on(StageId stage) const {
    if (facts_.forward_only || !facts_.schedule.lowered) return false;
    if (op_ == Op::SyncGradients) return facts_.table.replicas(stage) > 1;
    return op_ == Op::Step || facts_.schedule.shape.global_norm;
  }

  const char* why_not() const {
    if (facts_.forward_only) return "occurs in a forward-only schedule";
    return op_ == Op::SyncGradients ? "the stage is not replicated"
                                    : "the schedule has no global norm";
  }

  void report_missing(size_t place, StageId stage) {
    for (int64_t t = 0; t < facts_.mini_batches && !report_.full(); ++t) {
      if (seen_by_[place * static_cast<size_t>(facts_.mini_batches) + static_cast<size_t>(t)] ==
          worker_.value)
        continue;
      report_.add("complete", worker_,
                  Action{.op = op_,
                         .stage = stage,
                         .micro_batch = {},
                         .mini_batch = MiniBatchId{t},
                         .peer = stage},
                  "is missing");
    }
  }

  const Facts& facts_;
  Report& report_;
  Op op_;
  WorkerId worker_{-1};
  std::optional<HeldStages<int64_t>> found_;  // nothing when no stage makes any
  // by place and mini-batch: the last worker that made it
  std::vector<int32_t> seen_by_;
};

}  // namespace

void check_complete(const Facts& facts, Report& report) {
  ComputeCheck compute(facts, report);
  MiniBatchCheck steps(facts, Op::Step, report);
  MiniBatchCheck syncs(facts, Op::SyncGradients, report);
  MiniBatchCheck norms(facts, Op::NormGradients, report);
  for (int32_t w = 0; w < facts.table.num_workers() && !report.full(); ++w) {
    const WorkerId worker{w};
    for (MiniBatchCheck* check : {&steps, &syncs, &norms}) check->begin(worker);
    for (const Action& action : facts.workers()[worker.index()]) {
      if (is_compute(action.op) || is_move(action.op)) compute.visit(worker, action);
      if (action.op == Op::Step) steps.visit(action);
      if (action.op == Op::SyncGradients) syncs.visit(action);
      if (action.op == Op::NormGradients) norms.visit(action);
    }
    for (MiniBatchCheck* check : {&steps, &syncs, &norms}) check->end();
  }
  compute.find_missing();
}

}  // namespace penstock::verify

// complete: every stage runs the forward, and unless the schedule only evaluates the backward, of every micro-batch exactly once on the
// worker that owns it, and every worker makes the step of every mini-batch exactly once, with a sync where its stage is replicated.
//
// Smallest schedule that breaks it: one worker, one micro-batch, `0F0` without `0B0`.
#include <vector>

#include "penstock/verify/rules/rules.h"

namespace penstock::verify {
namespace {

constexpr uint8_t kForward = 1;
constexpr uint8_t kBackward = 2;

/// Reports the second and later ones; `seen` ends with a bit per compute action found.
void find_duplicates(const Facts& facts, std::vector<uint8_t>& seen, Report& report) {
  for (size_t w = 0; w < facts.workers().size(); ++w) {
    for (const Action& action : facts.workers()[w]) {
      if (!is_compute(action.op)) continue;
      uint8_t& cell = seen[facts.cell(action.stage, action.micro_batch)];
      const uint8_t bit = action.op == Op::Forward ? kForward : kBackward;
      const WorkerId worker{static_cast<int32_t>(w)};
      if ((cell & bit) != 0) report.add("complete", worker, action, "occurs more than once");
      if (bit == kBackward && facts.forward_only) report.add("complete", worker, action, "occurs in a forward-only schedule");
      cell |= bit;
    }
  }
}

void find_missing(const Facts& facts, const std::vector<uint8_t>& seen, Report& report) {
  const uint8_t expected = facts.forward_only ? kForward : kForward | kBackward;
  for (size_t i = 0; i < seen.size() && !report.full(); ++i) {
    if ((seen[i] & expected) == expected) continue;
    const StageId stage{static_cast<int32_t>(i / static_cast<size_t>(facts.micro_batches))};
    const MicroBatchId b{static_cast<int64_t>(i % static_cast<size_t>(facts.micro_batches))};
    const WorkerId worker = facts.table.worker_of(stage, b);
    for (const Op op : {Op::Forward, Op::Backward}) {
      const uint8_t bit = op == Op::Forward ? kForward : kBackward;
      if ((expected & bit) == 0 || (seen[i] & bit) != 0) continue;
      const Action action{.op = op, .stage = stage, .micro_batch = b, .mini_batch = {}, .peer = stage};
      report.add("complete", worker, action, "is missing");
    }
  }
}

/// Counts STEP (or SYNC) actions of each worker by mini-batch.
class MiniBatchCounter {
 public:
  MiniBatchCounter(const Facts& facts, Op op) : facts_(facts), op_(op), seen_by_(static_cast<size_t>(facts.mini_batches), -1) {}

  void check(WorkerId worker, bool expected, Report& report) {
    int64_t found = 0;
    for (const Action& action : facts_.workers()[worker.index()]) {
      if (action.op != op_) continue;
      int32_t& seen_by = seen_by_[action.mini_batch.index()];
      if (!expected) {
        report.add("complete", worker, action, "{}",
                   op_ == Op::Step ? "occurs in a forward-only schedule" : "the stage is not replicated or makes no step");
      } else if (seen_by == worker.value) {
        report.add("complete", worker, action, "occurs more than once");
      } else {
        ++found;
      }
      seen_by = worker.value;
    }
    if (!expected || found == facts_.mini_batches) return;
    for (int64_t t = 0; t < facts_.mini_batches && !report.full(); ++t) {
      if (seen_by_[static_cast<size_t>(t)] == worker.value) continue;
      const StageId stage = facts_.table.stage_of(worker);
      report.add("complete", worker, Action{.op = op_, .stage = stage, .micro_batch = {}, .mini_batch = MiniBatchId{t}, .peer = stage},
                 "is missing");
    }
  }

 private:
  const Facts& facts_;
  Op op_;
  std::vector<int32_t> seen_by_;  // by mini-batch: the last worker that made it
};

}  // namespace

void check_complete(const Facts& facts, Report& report) {
  std::vector<uint8_t> seen(facts.num_cells(), 0);
  find_duplicates(facts, seen, report);
  find_missing(facts, seen, report);
  if (!facts.schedule.lowered) return;
  MiniBatchCounter steps(facts, Op::Step);
  MiniBatchCounter syncs(facts, Op::SyncGradients);
  for (int32_t w = 0; w < facts.table.num_workers() && !report.full(); ++w) {
    const WorkerId worker{w};
    steps.check(worker, !facts.forward_only, report);
    syncs.check(worker, !facts.forward_only && facts.table.replicas(facts.table.stage_of(worker)) > 1, report);
  }
}

}  // namespace penstock::verify

// memory: at no moment do a worker's stashed micro-batches and weight versions need more bytes than the limit.
//
// Smallest schedule that breaks it: `0F0@0` on one worker, with a limit below stash_bytes[0] + weight_bytes[0].
#include "penstock/util/arithmetic.h"
#include "penstock/verify/list_walk.h"
#include "penstock/verify/rules/rules.h"

namespace penstock::verify {
namespace {

int64_t bytes_of_stage(const std::vector<int64_t>& bytes, StageId stage) { return stage.index() < bytes.size() ? bytes[stage.index()] : 0; }

}  // namespace

void check_memory(const Facts& facts, const Options& options, Report& report) {
  if (options.memory_limit_bytes <= 0) return;
  for (int32_t w = 0; w < facts.table.num_workers() && !report.full(); ++w) {
    const WorkerId worker{w};
    const StageId stage = facts.table.stage_of(worker);
    const int64_t stash_bytes = bytes_of_stage(options.stash_bytes, stage);
    const int64_t weight_bytes = bytes_of_stage(options.weight_bytes, stage);
    bool reported = false;
    walk_memory(facts.workers()[worker.index()], facts.forward_only, [&](const Action* action, int64_t versions, int64_t stashed) {
      const int64_t bytes = saturating_add(saturating_mul(versions, weight_bytes), saturating_mul(stashed, stash_bytes));
      if (bytes <= options.memory_limit_bytes || reported) return;
      reported = true;
      const Action none{.op = Op::Forward, .stage = stage, .micro_batch = {}, .mini_batch = {}, .peer = stage};
      report.add("memory", worker, action != nullptr ? *action : none,
                 "needs {} bytes ({} weight versions, {} stashed micro-batches), the limit is {}", bytes, versions, stashed,
                 options.memory_limit_bytes);
    });
  }
}

}  // namespace penstock::verify

// memory: a worker's stashed micro-batches, weight versions and gradients never need more bytes
// than the limit.
//
// Smallest schedule that breaks it: `0F0@0` on one worker, with a limit below stash_bytes[0] +
// weight_bytes[0].
#include "penstock/verify/memory_walk.h"
#include "penstock/verify/rules/rules.h"

namespace penstock::verify {

void check_memory(const Facts& facts, const Options& options, Report& report) {
  if (!options.memory_limit_bytes) return;
  const int64_t limit_bytes = *options.memory_limit_bytes;
  MemoryWalk walk(facts, options);
  for (int32_t w = 0; w < facts.table.num_workers() && !report.full(); ++w) {
    const WorkerId worker{w};
    bool reported = false;
    walk.walk(worker, [&](const Action* action, const MemoryWalk::Held& held) {
      if (held.bytes <= limit_bytes || reported) return;
      reported = true;
      const auto text = [&] {
        return fmt::format(
            "needs {} bytes ({} weight versions, {} stashed micro-batches), the limit is {}",
            clamped(held.bytes), held.versions, held.stashed, limit_bytes);
      };
      if (action == nullptr) {
        report.add("memory", worker, "{}", text());
      } else {
        report.add("memory", worker, *action, "{}", text());
      }
    });
  }
}

}  // namespace penstock::verify

#include "penstock/verify/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "penstock/util/error.h"
#include "penstock/verify/counterexample.h"
#include "penstock/verify/execution.h"
#include "penstock/verify/memory_walk.h"
#include "penstock/verify/rules/rules.h"

namespace penstock::verify {
namespace {

void require_credits(int64_t credits) {
  if (credits < 0) throw ConfigError(fmt::format("credits must be at least 0, found {}", credits));
}

bool is_well_placed(const schedule::Schedule& schedule) {
  Report report(1);
  return check_placement(schedule, report);
}

bool has_valid_lists(const schedule::Schedule& schedule) {
  try {
    validate(schedule.shape);
  } catch (const ConfigError&) {
    return false;
  }
  return schedule.workers.size() == static_cast<size_t>(schedule.shape.num_workers());
}

}  // namespace

std::vector<Violation> verify(const schedule::Schedule& schedule, const Options& options) {
  require_credits(options.credits);
  Report report(std::max<int64_t>(options.max_violations, 1));
  if (!check_placement(schedule, report)) return report.take();
  const Facts facts(schedule);
  check_complete(facts, report);
  check_order(facts, report);
  check_pairing(facts, report);
  check_team(facts, report);
  if (!report.full()) check_deadlock(facts, options.credits, report);
  check_weights(facts, report);
  check_memory(facts, options, report);
  return report.take();
}

std::optional<Counterexample> find_deadlock(const schedule::Schedule& schedule, int64_t credits) {
  require_credits(credits);
  if (!is_well_placed(schedule)) return std::nullopt;
  return find_deadlock(Facts(schedule), credits);
}

int64_t min_credits(const schedule::Schedule& schedule) {
  if (!is_well_placed(schedule)) return -1;
  const Facts facts(schedule);
  const MessageIndex index(facts);
  const auto runs_with = [&](int64_t credits) { return Execution(facts, index, credits).run(); };

  int64_t enough = 0;
  {
    Execution unlimited(facts, index, std::numeric_limits<int64_t>::max());
    if (!unlimited.run()) return -1;
    // The run without a limit is also a run with as many credits as it used, so that many are
    // enough. More credits never cause a deadlock.
    enough = unlimited.most_in_flight();
  }
  int64_t too_few = -1;
  while (enough - too_few > 1) {
    const int64_t middle = too_few + (enough - too_few) / 2;
    (runs_with(middle) ? enough : too_few) = middle;
  }
  return enough;
}

std::vector<WorkerPeaks> peaks(const schedule::Schedule& schedule, const Options& bytes) {
  std::vector<WorkerPeaks> result(schedule.workers.size());
  if (!has_valid_lists(schedule)) return result;
  const Facts facts(schedule);
  MemoryWalk walk(facts, bytes);
  for (size_t w = 0; w < result.size(); ++w) {
    WorkerPeaks& peak = result[w];
    walk.walk(WorkerId{static_cast<int32_t>(w)}, [&](const Action*, const MemoryWalk::Held& held) {
      peak.versions = std::max(peak.versions, held.versions);
      peak.stashed_micro_batches = std::max(peak.stashed_micro_batches, held.stashed);
      peak.bytes = std::max(peak.bytes, clamped(held.bytes));
    });
  }
  return result;
}

}  // namespace penstock::verify

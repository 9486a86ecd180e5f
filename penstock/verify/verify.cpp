#include "penstock/verify/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "penstock/util/error.h"
#include "penstock/verify/execution.h"
#include "penstock/verify/list_walk.h"
#include "penstock/verify/rules/rules.h"

namespace penstock::verify {

std::vector<Violation> verify(const schedule::Schedule& schedule, const Options& options) {
  if (options.credits < 0) throw ConfigError(fmt::format("credits must be at least 0, found {}", options.credits));
  Report report(std::max<int64_t>(options.max_violations, 1));
  if (!check_placement(schedule, report)) return report.take();
  const Facts facts(schedule);
  check_complete(facts, report);
  check_order(facts, report);
  check_pairing(facts, report);
  if (!report.full()) check_deadlock(facts, options.credits, report);
  check_weights(facts, report);
  check_memory(facts, options, report);
  return report.take();
}

int64_t min_credits(const schedule::Schedule& schedule) {
  Report report(1);
  if (!check_placement(schedule, report)) return -1;
  const Facts facts(schedule);
  const MessageIndex index(facts);
  const auto runs_with = [&](int64_t credits) { return Execution(facts, index, credits).run(); };

  Execution unlimited(facts, index, std::numeric_limits<int64_t>::max());
  if (!unlimited.run()) return -1;
  // The unlimited run is also one with as many credits as it used, so those suffice; more never hurt.
  int64_t too_few = -1;
  int64_t enough = unlimited.most_in_flight();
  while (enough - too_few > 1) {
    const int64_t middle = too_few + (enough - too_few) / 2;
    (runs_with(middle) ? enough : too_few) = middle;
  }
  return enough;
}

std::vector<WorkerPeaks> peaks(const schedule::Schedule& schedule) {
  const bool trains = std::any_of(schedule.workers.begin(), schedule.workers.end(), [](const auto& list) {
    return std::any_of(list.begin(), list.end(), [](const schedule::Action& a) { return a.op == schedule::Op::Backward; });
  });
  std::vector<WorkerPeaks> result;
  result.reserve(schedule.workers.size());
  for (const auto& list : schedule.workers) {
    WorkerPeaks peak;
    walk_memory(list, !trains, [&](const schedule::Action*, int64_t versions, int64_t stashed) {
      peak.versions = std::max(peak.versions, versions);
      peak.stashed_micro_batches = std::max(peak.stashed_micro_batches, stashed);
    });
    result.push_back(peak);
  }
  return result;
}

}  // namespace penstock::verify

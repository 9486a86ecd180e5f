// Proves a schedule sound before it runs, against a model of the transport.
//
//   for (const Violation& v : verify(schedule, {.credits = 1})) std::cerr << v.message << '\n';
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "penstock/schedule/schedule.h"

namespace penstock::verify {

/// One broken rule. `rule` is one of complete, order, pairing, deadlock, weights, memory.
struct Violation {
  std::string rule;
  WorkerId worker{-1};  ///< -1 when no single worker is at fault
  std::string action;   ///< text form of the action at fault, empty when none
  std::string message;  ///< for people: what was found, what was expected

  bool operator==(const Violation&) const = default;
};

struct Options {
  /// Messages that fit into a channel (one per ordered pair of workers and direction) before a send waits; 0 is rendezvous.
  int64_t credits = 1;
  /// Limit for `stash_bytes` per worker; 0: none.
  int64_t memory_limit_bytes = 0;
  /// Bytes that one micro-batch keeps between forward and backward, per stage (empty: the memory rule counts nothing).
  std::vector<int64_t> stash_bytes = {};
  /// Bytes of one version of the stage's weights (empty likewise).
  std::vector<int64_t> weight_bytes = {};
  /// At most this many violations are returned (the first ones).
  int64_t max_violations = 100;
};

/// Empty when the schedule is sound. A schedule that is not lowered is judged by the rules that apply to compute actions
/// (complete, order, deadlock through data dependencies). Linear in the number of actions, except that a deadlock report
/// searches the shortest cycle of waits among the blocked workers. Pure; thread-safe.
std::vector<Violation> verify(const schedule::Schedule& schedule, const Options& options = {});

/// The least number of credits per channel without a deadlock, or -1 when no number helps. Binary search over verify's deadlock rule.
int64_t min_credits(const schedule::Schedule& schedule);

/// Largest number of weight versions / stashed micro-batches that any moment of a worker's list holds.
struct WorkerPeaks {
  int64_t versions = 0;
  int64_t stashed_micro_batches = 0;
  bool operator==(const WorkerPeaks&) const = default;
};
std::vector<WorkerPeaks> peaks(const schedule::Schedule& schedule);

}  // namespace penstock::verify

// What the verifier is asked and what it answers, as values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "penstock/util/ids.h"

namespace penstock::verify {

/// One broken rule. `rule` is one of complete, order, pairing, team, deadlock,
/// weights, memory.
struct Violation {
  std::string rule;
  WorkerId worker{-1};  ///< -1 when no single worker is at fault
  std::string action;   ///< text form of the action at fault, empty when none
  std::string message;  ///< for the user: what was found, what was expected

  bool operator==(const Violation&) const = default;
};

struct Options {
  /// Messages that fit into a channel before a send waits; 0 is rendezvous. There is one channel
  /// per ordered pair of workers and direction (activations or gradients).
  int64_t credits = 1;
  /// Limit for the sum of the bytes below on each worker; nothing: none.
  std::optional<int64_t> memory_limit_bytes = {};
  /// Bytes of one micro-batch from F (where the stage recomputes: from R) to B or W, per stage.
  /// Here and below an empty list counts nothing.
  std::vector<int64_t> stash_bytes = {};
  /// Bytes of one version of the stage's weights.
  std::vector<int64_t> weight_bytes = {};
  /// Bytes of one micro-batch from F to B or W where the stage recomputes: R needs them, and its
  /// results need more memory besides.
  std::vector<int64_t> input_bytes = {};
  /// Bytes of the stage's gradients, which a schedule that trains holds all the time.
  std::vector<int64_t> gradient_bytes = {};
  /// At most this many violations are returned (the first ones).
  int64_t max_violations = 100;
};

/// Where a schedule gets stuck, and why: the proof behind a violation of the rule deadlock.
struct Counterexample {
  struct Stop {
    WorkerId worker;
    int64_t position = 0;  ///< of the action that never ends, in the worker's list
    bool operator==(const Stop&) const = default;
  };
  struct Wait {
    WorkerId worker;
    int64_t position = 0;
    WorkerId waits_for;  ///< the worker itself when its own list is in the wrong order
    /// "to send", "to receive", "to join", "for its data": the action that the other worker does
    /// not reach.
    std::string reason;
    bool operator==(const Wait&) const = default;
  };
  /// Every worker that does not reach the end of its list, ascending.
  std::vector<Stop> blocked;
  /// The shortest cycle of waits, from its lowest worker on: each waits for the next, the last for
  /// the first. Empty only when no cycle exists: then some worker waits for one whose list has
  /// ended.
  std::vector<Wait> cycle;
  /// Without a cycle: waits for workers whose lists have ended, 100 at most.
  std::vector<Wait> abandoned;
  /// False when so many replicated stages wait for each other that the search stopped early;
  /// `cycle` is then the shortest one found, or an arbitrary one.
  bool shortest = true;
};

/// Peaks of one worker over its list, of all its stages together; each is a separate maximum, so
/// they need not occur at the same action.
struct WorkerPeaks {
  int64_t versions = 0;               ///< of weights
  int64_t stashed_micro_batches = 0;  ///< per stage: its F has run, its B or W has not
  int64_t bytes = 0;                  ///< counted with the bytes of the options; saturates
  bool operator==(const WorkerPeaks&) const = default;
};

}  // namespace penstock::verify

// What is left out of a corpus before models see it, and how it is divided so that the test holds
// nothing that was learned.
//
//   const Divided divided = clean_and_split(corpus, {.min_words = 3, .max_words = 60}, {.seed =
//   1}); divided.recurrence.after == 0;
//
// Pure; thread-safe.
#pragma once

#include <cstdint>
#include <optional>

#include "penstock/text/corpus.h"

namespace penstock::text {

struct CleanRules {
  Task task = Task::Text;
  int64_t min_words = 1;                  ///< of both sides
  std::optional<int64_t> max_words = {};  ///< of both sides; nothing: any number
};

/// Sentences that were left out, by reason; the first that holds counts.
struct Removed {
  int64_t empty = 0;  ///< nothing on one side
  int64_t equal = 0;  ///< both sides are the same
  int64_t too_short = 0;
  int64_t too_long = 0;
  int64_t repeated = 0;   ///< the source was there before, but for case
  int64_t recurring = 0;  ///< the source is in valid or test, but for case

  bool operator==(const Removed&) const = default;
};

struct SplitShares {
  double valid = 0.02;
  double test = 0.02;
  uint64_t seed = 1;
};

/// Shares of the test's sources, 0 to 1.
struct Recurrence {
  double before = 0;   ///< also in train, had repeated and recurring ones stayed
  double after = 0;    ///< also in train as it is
  double letters = 0;  ///< also in train, but for digits and punctuation
};

struct Divided {
  Removed removed;
  Recurrence recurrence;
};

/// Leaves out what the rules say and what is there twice, then divides train by whole documents.
/// These come in an order by the seed, until test and then valid have their share of sentences.
/// Parts that the source has itself stay as they are: what recurs in them is left out of train. A
/// fixed corpus stays as a whole. Throws ConfigError: nothing is left to train on, a share outside
/// of [0, 0.5], too few documents. O(n) expected.
Divided clean_and_split(Corpus& corpus, const CleanRules& rules, const SplitShares& shares);

}  // namespace penstock::text

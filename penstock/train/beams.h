// Beginnings of sentences, and which of them are followed. Internal to decode.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace penstock::train {

/// A sentence, or the beginning of one.
struct Hypothesis {
  std::vector<int64_t> tokens;  ///< without its end
  double likelihood = 0;        ///< sum of the tokens' log-probabilities, its end's too
  double coverage = 0;          ///< over its source: sum of log(min(attention to the word, 1))
};

/// A token that may follow.
struct Continuation {
  int64_t token = 0;
  double likelihood = 0;  ///< log-probability behind its beginning
};

/// How whole sentences are compared: by log-likelihood / ((5 + tokens) / 6)^length + coverage * the
/// sentence's coverage. Source: Wu et al. 2016, equation 14, whose alpha and beta these are.
struct BeamPenalties {
  double length = 0.6;
  double coverage = 0;
};

/// The search for one sentence. Plain values; deterministic.
class Beam {
 public:
  Beam(int64_t width, const BeamPenalties& penalties)
      : width_(static_cast<size_t>(width)), penalties_(penalties), open_(1) {}

  /// That are followed; none: the search has ended.
  const std::vector<Hypothesis>& open() const { return open_; }
  /// `continuations[i]`: the likeliest tokens behind open()[i], the first the likeliest.
  /// `coverages[i]`: Hypothesis::coverage with the attention of the next token, whichever it is;
  /// empty: all 0.
  void follow(const std::vector<std::vector<Continuation>>& continuations,
              const std::vector<double>& coverages, int64_t end);
  /// The best sentence, also of those that have not ended.
  const std::vector<int64_t>& best() const;

 private:
  double score(const Hypothesis& sentence) const;

  size_t width_;
  BeamPenalties penalties_;
  std::vector<Hypothesis> open_;  ///< the likeliest first
  std::vector<Hypothesis> ended_;
};

}  // namespace penstock::train

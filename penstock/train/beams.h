// Beginnings of sentences, and which of them are followed. Internal to decode.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace penstock::train {

/// A sentence, or the beginning of one.
struct Hypothesis {
  std::vector<int64_t> tokens;  ///< without its end
  double likelihood = 0;        ///< sum of the tokens' log-probabilities, its end's too
};

/// A token that may follow.
struct Continuation {
  int64_t token = 0;
  double likelihood = 0;  ///< log-probability behind its beginning
};

/// The search for one sentence. Plain values; deterministic.
class Beam {
 public:
  Beam(int64_t width, double length_penalty)
      : width_(static_cast<size_t>(width)), length_penalty_(length_penalty), open_(1) {}

  /// That are followed; none: the search has ended.
  const std::vector<Hypothesis>& open() const { return open_; }
  /// `continuations[i]`: the likeliest tokens behind open()[i], the first the likeliest.
  void follow(const std::vector<std::vector<Continuation>>& continuations, int64_t end);
  /// The best sentence, also of those that have not ended.
  const std::vector<int64_t>& best() const;

 private:
  double score(const Hypothesis& sentence) const;

  size_t width_;
  double length_penalty_;
  std::vector<Hypothesis> open_;  ///< the likeliest first
  std::vector<Hypothesis> ended_;
};

}  // namespace penstock::train

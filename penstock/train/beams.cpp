#include "penstock/train/beams.h"

#include <algorithm>
#include <cmath>

#include "penstock/util/check.h"

namespace penstock::train {

void Beam::follow(const std::vector<std::vector<Continuation>>& continuations,
                  const std::vector<double>& coverages, int64_t end) {
  PENSTOCK_CHECK(continuations.size() == open_.size(), continuations.size(), open_.size());
  PENSTOCK_CHECK(coverages.empty() || coverages.size() == open_.size(), coverages.size());
  struct Candidate {
    size_t from;
    Continuation next;
    double likelihood;
  };
  std::vector<Candidate> candidates;
  for (size_t from = 0; from < open_.size(); ++from) {
    for (const Continuation& next : continuations[from])
      candidates.push_back({from, next, open_[from].likelihood + next.likelihood});
  }
  std::stable_sort(
      candidates.begin(), candidates.end(),
      [](const Candidate& a, const Candidate& b) { return a.likelihood > b.likelihood; });
  std::vector<Hypothesis> followed;
  for (const Candidate& candidate : candidates) {
    if (followed.size() + ended_.size() >= width_) break;
    Hypothesis longer = open_[candidate.from];
    longer.likelihood = candidate.likelihood;
    if (!coverages.empty()) longer.coverage = coverages[candidate.from];
    if (candidate.next.token == end) {
      ended_.push_back(std::move(longer));
    } else {
      longer.tokens.push_back(candidate.next.token);
      followed.push_back(std::move(longer));
    }
  }
  open_ = std::move(followed);
}

double Beam::score(const Hypothesis& sentence) const {
  const auto tokens = static_cast<double>(sentence.tokens.size() + 1);
  return sentence.likelihood / std::pow((5 + tokens) / 6, penalties_.length) +
         penalties_.coverage * sentence.coverage;
}

const std::vector<int64_t>& Beam::best() const {
  const Hypothesis* best = nullptr;
  for (const std::vector<Hypothesis>* some : {&ended_, &open_}) {
    for (const Hypothesis& one : *some) {
      if (best == nullptr || score(one) > score(*best)) best = &one;
    }
  }
  return best->tokens;
}

}  // namespace penstock::train

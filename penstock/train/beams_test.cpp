#include "penstock/train/beams.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <vector>

#include "penstock/util/numbers/rng.h"

namespace penstock::train {
namespace {

constexpr int64_t kEnd = 2;
constexpr int64_t kMostTokens = 4;
using Sentence = std::vector<int64_t>;

/// The log-probability of each token behind a beginning.
class Language {
 public:
  explicit Language(uint64_t seed) : rng_(seed) {}
  const std::vector<double>& behind(const Sentence& beginning) {
    std::vector<double>& row = known_[beginning];
    if (!row.empty()) return row;
    double sum = 0;
    for (int64_t token = 0; token <= kEnd; ++token) {
      row.push_back(0.05 + static_cast<double>(rng_.below(1000)) / 1000);
      sum += row.back();
    }
    for (double& one : row) one = std::log(one / sum);
    return row;
  }

 private:
  Rng rng_;
  std::map<Sentence, std::vector<double>> known_;
};

Sentence searched(Language& language, int64_t width, double penalty) {
  Beam beam(width, penalty);
  for (int64_t place = 0; place < kMostTokens && !beam.open().empty(); ++place) {
    std::vector<std::vector<Continuation>> next;
    for (const Hypothesis& beginning : beam.open()) {
      std::vector<Continuation> row;
      const std::vector<double>& likelihoods = language.behind(beginning.tokens);
      for (int64_t token = 0; token <= kEnd; ++token)
        row.push_back({token, likelihoods[static_cast<size_t>(token)]});
      std::sort(row.begin(), row.end(), [](const Continuation& a, const Continuation& b) {
        return a.likelihood > b.likelihood;
      });
      row.resize(std::min<size_t>(row.size(), static_cast<size_t>(width)));
      next.push_back(row);
    }
    beam.follow(next, kEnd);
  }
  return beam.best();
}

/// The best of all sentences.
Sentence tried(Language& language, double penalty) {
  Sentence best;
  double best_score = -1e9;
  const auto consider = [&](const Sentence& sentence, double likelihood) {
    const auto tokens = static_cast<double>(sentence.size() + 1);
    const double score = likelihood / std::pow((5 + tokens) / 6, penalty);
    if (score <= best_score) return;
    best_score = score;
    best = sentence;
  };
  const std::function<void(const Sentence&, double)> visit = [&](const Sentence& beginning,
                                                                 double likelihood) {
    if (std::ssize(beginning) == kMostTokens) return consider(beginning, likelihood);
    const std::vector<double> next = language.behind(beginning);
    consider(beginning, likelihood + next[kEnd]);
    for (int64_t token = 0; token < kEnd; ++token) {
      Sentence longer = beginning;
      longer.push_back(token);
      visit(longer, likelihood + next[static_cast<size_t>(token)]);
    }
  };
  visit({}, 0);
  return best;
}

TEST(Beam, AWideOneFindsTheBestOfAllSentences) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    for (const double penalty : {0.0, 0.6, 1.5}) {
      Language language(seed);
      EXPECT_EQ(searched(language, 100, penalty), tried(language, penalty)) << seed;
    }
  }
}

TEST(Beam, OneOfWidthOneIsGreedy) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    Language language(seed);
    Sentence greedy;
    while (std::ssize(greedy) < kMostTokens) {
      const std::vector<double>& next = language.behind(greedy);
      const auto token = std::max_element(next.begin(), next.end()) - next.begin();
      if (token == kEnd) break;
      greedy.push_back(token);
    }
    EXPECT_EQ(searched(language, 1, 0.6), greedy) << seed;
  }
}

TEST(Beam, AWiderOneFindsNothingWorseOnTheWhole) {
  const auto found = [](int64_t width) {
    int64_t best = 0;
    for (uint64_t seed = 1; seed <= 200; ++seed) {
      Language language(seed);
      best += searched(language, width, 0.6) == tried(language, 0.6) ? 1 : 0;
    }
    return best;
  };
  EXPECT_LT(found(1), found(3));
  EXPECT_LT(found(3), found(8));
}

}  // namespace
}  // namespace penstock::train

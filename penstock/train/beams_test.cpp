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

/// What a model says behind a beginning.
struct Said {
  std::vector<double> likelihoods;  ///< log-probability of each token
  std::vector<double> shares;       ///< of the next token's attention, of each word of the source
};

class Language {
 public:
  explicit Language(uint64_t seed) : rng_(seed) {}
  const std::vector<double>& behind(const Sentence& beginning) {
    return said(beginning).likelihoods;
  }
  /// Over the source, of the beginning and its next token.
  double coverage(const Sentence& beginning) {
    constexpr size_t kWords = 3;
    std::vector<double> sums(kWords);
    Sentence so_far;
    for (size_t place = 0; place <= beginning.size(); ++place) {
      for (size_t word = 0; word < kWords; ++word) sums[word] += said(so_far).shares[word];
      if (place < beginning.size()) so_far.push_back(beginning[place]);
    }
    double coverage = 0;
    for (const double sum : sums) coverage += std::log(std::min(sum, 1.0));
    return coverage;
  }

 private:
  std::vector<double> shares() {
    double sum = 0;
    std::vector<double> row;
    for (int64_t one = 0; one <= kEnd; ++one) {
      row.push_back(0.05 + static_cast<double>(rng_.below(1000)) / 1000);
      sum += row.back();
    }
    for (double& one : row) one /= sum;
    return row;
  }
  const Said& said(const Sentence& beginning) {
    Said& said = known_[beginning];
    if (!said.shares.empty()) return said;
    said = {shares(), shares()};
    for (double& one : said.likelihoods) one = std::log(one);
    return said;
  }

  Rng rng_;
  std::map<Sentence, Said> known_;
};

Sentence searched(Language& language, int64_t width, const BeamPenalties& penalties) {
  Beam beam(width, penalties);
  for (int64_t place = 0; place < kMostTokens && !beam.open().empty(); ++place) {
    std::vector<std::vector<Continuation>> next;
    std::vector<double> coverages;
    for (const Hypothesis& beginning : beam.open()) {
      coverages.push_back(language.coverage(beginning.tokens));
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
    beam.follow(next, coverages, kEnd);
  }
  return beam.best();
}

/// The best of all sentences.
Sentence tried(Language& language, const BeamPenalties& penalties) {
  Sentence best;
  double best_score = -1e9;
  // `asked`: the beginning that the last token, or the end, was chosen behind.
  const auto consider = [&](const Sentence& sentence, double likelihood, const Sentence& asked) {
    const auto tokens = static_cast<double>(sentence.size() + 1);
    const double score = likelihood / std::pow((5 + tokens) / 6, penalties.length) +
                         penalties.coverage * language.coverage(asked);
    if (score <= best_score) return;
    best_score = score;
    best = sentence;
  };
  const std::function<void(const Sentence&, double)> visit = [&](const Sentence& beginning,
                                                                 double likelihood) {
    if (std::ssize(beginning) == kMostTokens)
      return consider(beginning, likelihood, {beginning.begin(), beginning.end() - 1});
    const std::vector<double> next = language.behind(beginning);
    consider(beginning, likelihood + next[kEnd], beginning);
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
    for (const BeamPenalties& penalties : std::vector<BeamPenalties>{
             {0.0}, {0.6}, {1.5}, {.length = 0.6, .coverage = 0.2}, {0.0, 1.0}}) {
      Language language(seed);
      EXPECT_EQ(searched(language, 100, penalties), tried(language, penalties)) << seed;
    }
  }
}

/// Of two words and the end, whose attention sees the source's two words with these shares.
TEST(Beam, CoverageMayOutweighLikelihood) {
  const auto best = [](double penalty) {
    Beam beam(2, {.length = 0, .coverage = penalty});
    const double of_one = std::log(0.9) + std::log(0.1);  // shares 0.9 and 0.1
    beam.follow({{{0, -0.4}, {1, -1.2}}}, {of_one}, kEnd);
    // Behind 0 the end sees 0.9 and 0.1 once more, behind 1 it sees 0.1 and 0.9.
    const double seen_twice = std::log(1.0) + std::log(0.2);
    const double seen_both = std::log(1.0) + std::log(1.0);
    beam.follow({{{kEnd, -0.1}}, {{kEnd, -0.1}}}, {seen_twice, seen_both}, kEnd);
    return beam.best();
  };
  EXPECT_EQ(best(0), Sentence{0});
  // -0.5 - 0.49 * 1.609 = -1.29 beats -1.3; 0.5 * 1.609 does not.
  EXPECT_EQ(best(0.49), Sentence{0});
  EXPECT_EQ(best(0.5), Sentence{1});
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
    EXPECT_EQ(searched(language, 1, {}), greedy) << seed;
  }
}

TEST(Beam, AWiderOneFindsNothingWorseOnTheWhole) {
  const auto found = [](int64_t width) {
    int64_t best = 0;
    for (uint64_t seed = 1; seed <= 200; ++seed) {
      Language language(seed);
      best += searched(language, width, {}) == tried(language, {}) ? 1 : 0;
    }
    return best;
  };
  EXPECT_LT(found(1), found(3));
  EXPECT_LT(found(3), found(8));
}

}  // namespace
}  // namespace penstock::train

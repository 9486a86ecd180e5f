#include "penstock/text/metrics/meteor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <limits>
#include <random>
#include <tuple>

#include "penstock/text/metrics/word_alignment.h"
#include "penstock/text/testing_folder.h"
#include "penstock/text/testing_wordnet.h"
#include "penstock/util/error.h"

namespace penstock::text {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

std::vector<std::string> meteor_lines(const std::string& name) {
  std::ifstream file(PENSTOCK_TEST_DATA "/meteor_" + name + ".txt");
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

double meteor(const std::string& hypothesis, const std::vector<std::string>& references,
              const WordNet* synonyms = nullptr) {
  return corpus_meteor({hypothesis}, {references}, synonyms).meteor;
}

// tests/data/text/make_meteor.py wrote the lines and the scores, with NLTK 3.10.4.
TEST(Meteor, IsThatOfNltkWhereWordsAreNotRepeated) {
  const TestFolder folder;
  write_wordnet(folder, {"car 1 1", "auto 1 1", "begin 1 2", "start 1 2", "big 1 3", "grand 1 3",
                         "cat 1 4", "tom 1 4", "dog 1 5", "hound 1 5"});
  const WordNet wordnet(folder.path());
  const std::vector<std::string> hypotheses = meteor_lines("hypotheses");
  const std::vector<std::string> references = meteor_lines("references");
  const std::vector<std::string> others = meteor_lines("other_references");
  std::ifstream scores(PENSTOCK_TEST_DATA "/meteor_scores.txt");
  size_t i = 0;
  double sum = 0;
  std::vector<std::vector<std::string>> both;
  for (double one, two, one_syn, two_syn; scores >> one >> two >> one_syn >> two_syn; ++i) {
    both.push_back({references[i], others[i]});
    EXPECT_NEAR(meteor(hypotheses[i], {references[i]}), one, 1e-6) << i;
    EXPECT_NEAR(meteor(hypotheses[i], both[i]), two, 1e-6) << i;
    EXPECT_NEAR(meteor(hypotheses[i], {references[i]}, &wordnet), one_syn, 1e-6) << i;
    EXPECT_NEAR(meteor(hypotheses[i], both[i], &wordnet), two_syn, 1e-6) << i;
    sum += two_syn;
  }
  ASSERT_EQ(i, 200u);
  EXPECT_NEAR(corpus_meteor(hypotheses, both, &wordnet).meteor, sum / 200, 1e-6);
}

// NLTK 3.10.4: meteor_score([reference.split()], hypothesis.split()); without its synonyms, of
// which none are in these.
TEST(Meteor, LinksCrossLeast) {
  // NLTK links the last "the" and has two chunks: 0.2127660.
  const double expected = (2.0 / 2 * 2 / 5) / (0.9 * 2 / 2 + 0.1 * 2 / 5) * (1 - 0.5 / 8);
  EXPECT_NEAR(meteor("the cat", {"the cat saw the dog"}), expected, 1e-12);
  EXPECT_NEAR(meteor("a b", {"a c a b"}), 0.9375 * 0.5 / (0.9 + 0.05), 1e-12);
}

TEST(Meteor, SumsAreScoredAsThePaperDoes) {
  const MeteorScore score = corpus_meteor({"a b", "c"}, {{"a b"}, {"d e"}}, nullptr);
  EXPECT_EQ(score.counts.links, 2);
  EXPECT_EQ(score.counts.chunks, 1);
  EXPECT_EQ(score.counts.words, 3);
  EXPECT_EQ(score.counts.reference_words, 4);
  const double precision = 2.0 / 3, recall = 0.5;
  EXPECT_NEAR(score.of_sums, precision * recall / (0.9 * precision + 0.1 * recall) * (1 - 0.5 / 8),
              1e-12);
  EXPECT_NEAR(score.meteor, 0.9375 / 2, 1e-12);
}

TEST(Meteor, WordsAreThoseOf13aInLowerCase) {
  EXPECT_THAT(meteor_words("The cat, it's 3.14!"),
              ElementsAre("the", "cat", ",", "it's", "3.14", "!"));
  EXPECT_TRUE(meteor_words(" ").empty());
  EXPECT_EQ(meteor("", {"a"}), 0);
  EXPECT_EQ(meteor("a", {""}), 0);
}

TEST(Meteor, RefusesWhatHasNoScore) {
  EXPECT_THAT([] { return corpus_meteor({}, {}, nullptr); },
              ThrowsMessage<ConfigError>(HasSubstr("at least one sentence")));
  EXPECT_THAT(
      [] {
        return corpus_meteor({"a", "b"}, {{"a"}}, nullptr);
      },
      ThrowsMessage<ConfigError>(HasSubstr("each of 2 sentences, found them for 1")));
  EXPECT_THAT([] { return corpus_meteor({"a"}, {{}}, nullptr); },
              ThrowsMessage<ConfigError>(HasSubstr("sentence 1 has no reference")));
  std::string longer;
  for (int i = 0; i < 1001; ++i) longer += "a ";
  EXPECT_THAT([&] { return meteor(longer, {"a"}); },
              ThrowsMessage<ConfigError>(HasSubstr("found one of 1001")));
  longer.resize(2 * kMostMeteorWords);
  EXPECT_NEAR(meteor(longer, {longer}), 1 - 0.5 / 1e9, 1e-9);  // and in time
}

/// Of every alignment: most links, then fewest crossings, then fewest chunks.
std::tuple<int, int, int> best_of_all(const AlignmentCandidates& candidates, size_t references) {
  std::tuple<int, int, int> best{std::numeric_limits<int>::max(), 0, 0};
  std::vector<int64_t> chosen(candidates.size(), kNoWord);
  std::vector<bool> taken(references);
  const std::function<void(size_t)> choose = [&](size_t word) {
    if (word < candidates.size()) {
      choose(word + 1);
      for (const size_t reference : candidates[word]) {
        if (taken[reference]) continue;
        taken[reference] = true;
        chosen[word] = static_cast<int64_t>(reference);
        choose(word + 1);
        chosen[word] = kNoWord;
        taken[reference] = false;
      }
      return;
    }
    int links = 0, crossings = 0, chunks = 0;
    for (size_t i = 0; i < chosen.size(); ++i) {
      if (chosen[i] == kNoWord) continue;
      ++links;
      chunks += i > 0 && chosen[i - 1] != kNoWord && chosen[i - 1] + 1 == chosen[i] ? 0 : 1;
      for (size_t j = 0; j < i; ++j) crossings += chosen[j] > chosen[i] ? 1 : 0;
    }
    best = std::min(best, std::tuple(-links, crossings, chunks));
  };
  choose(0);
  return best;
}

TEST(WordAlignment, IsTheBestOfAll) {
  std::mt19937 random(5);
  for (int trial = 0; trial < 300; ++trial) {
    const size_t words = 1 + random() % 6;
    const size_t references = 1 + random() % 6;
    AlignmentCandidates candidates(words);
    for (std::vector<size_t>& some : candidates) {
      for (size_t r = 0; r < references; ++r) {
        if (random() % 3 == 0) some.push_back(r);
      }
    }
    WordAlignment alignment(words, references);
    alignment.add_stage(candidates);
    int crossings = 0;
    const std::vector<int64_t>& links = alignment.reference_of();
    for (size_t i = 0; i < words; ++i) {
      for (size_t j = 0; j < i; ++j)
        crossings += links[i] != kNoWord && links[j] > links[i] ? 1 : 0;
    }
    EXPECT_EQ(std::tuple(-alignment.num_links(), crossings, alignment.num_chunks()),
              best_of_all(candidates, references))
        << trial;
  }
}

TEST(WordAlignment, LaterStagesKeepEarlierLinks) {
  WordAlignment alignment(3, 4);
  alignment.add_stage({{}, {2}, {}});
  alignment.add_stage({{0, 3}, {}, {0, 3}});
  EXPECT_THAT(alignment.reference_of(), ElementsAre(0, 2, 3));
  EXPECT_EQ(alignment.num_chunks(), 2);
}

}  // namespace
}  // namespace penstock::text

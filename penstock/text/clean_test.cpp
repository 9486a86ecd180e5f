#include "penstock/text/clean.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "penstock/text/plain_text.h"
#include "penstock/util/error.h"

namespace penstock::text {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr CleanRules kPairRules = {.task = Task::Translation, .min_words = 2, .max_words = 4};

Corpus pairs(std::vector<Sentence> sentences) {
  Corpus corpus;
  corpus.at(Part::Train) = std::move(sentences);
  return corpus;
}

/// Forty documents of five sentences, a fifth of which are in every document.
Corpus many_documents() {
  Corpus corpus;
  for (uint32_t d = 0; d < 40; ++d) {
    corpus.at(Part::Train).push_back({"to see more press here", "mehr", d});
    for (int i = 0; i < 4; ++i)
      corpus.at(Part::Train)
          .push_back({fmt::format("sentence {} of document {}", i, d), "Satz", d});
  }
  return corpus;
}

std::set<std::string> sources(const std::vector<Sentence>& sentences) {
  std::set<std::string> result;
  for (const Sentence& sentence : sentences) result.insert(folded(sentence.source));
  return result;
}

TEST(Clean, CountsWhatItLeavesOutByReason) {
  Corpus corpus = pairs({{"", "leer", 0},
                         {"equal both sides", "equal both sides", 0},
                         {"short", "kurz und", 0},
                         {"one two three", "eins zwei drei vier fünf", 0},
                         {"stays as it", "bleibt wie es", 0},
                         {"Stays AS it", "noch einmal so", 0},
                         {"other words", "andere Wörter", 1}});
  const Divided divided = clean_and_split(corpus, kPairRules, {.valid = 0, .test = 0});
  EXPECT_EQ(divided.removed,
            (Removed{.empty = 1, .equal = 1, .too_short = 1, .too_long = 1, .repeated = 1}));
  EXPECT_EQ(corpus.at(Part::Train), (std::vector<Sentence>{{"stays as it", "bleibt wie es", 0},
                                                           {"other words", "andere Wörter", 1}}));
}

TEST(Clean, NoDocumentIsDividedAndNothingRecurs) {
  Corpus corpus = many_documents();
  const Divided divided = clean_and_split(corpus, {}, {.valid = 0.1, .test = 0.2, .seed = 3});
  EXPECT_EQ(divided.removed.repeated, 39);
  std::set<uint32_t> seen;
  size_t total = 0;
  std::set<std::string> all;
  for (const auto& part : corpus.parts) {
    std::set<uint32_t> documents;
    for (const Sentence& sentence : part) documents.insert(sentence.document);
    for (const uint32_t document : documents) EXPECT_TRUE(seen.insert(document).second);
    total += part.size();
    all.merge(sources(part));
  }
  EXPECT_EQ(total, 161u);
  EXPECT_EQ(all.size(), total);
  // A fifth of 161 in documents of four or five; a tenth.
  EXPECT_NEAR(static_cast<double>(corpus.at(Part::Test).size()), 33, 4);
  EXPECT_NEAR(static_cast<double>(corpus.at(Part::Valid).size()), 17, 4);
  EXPECT_EQ(divided.recurrence.after, 0);
  EXPECT_NEAR(divided.recurrence.before, 0.2, 1e-9);
  // "sentence of document", whatever the numbers.
  EXPECT_NEAR(divided.recurrence.letters, 1, 0.05);
}

TEST(Clean, ASeedGivesTheSameSplitAgainAndAnotherGivesAnother) {
  const auto test_of = [](uint64_t seed) {
    Corpus corpus = many_documents();
    clean_and_split(corpus, {}, {.valid = 0.1, .test = 0.1, .seed = seed});
    return sources(corpus.at(Part::Test));
  };
  EXPECT_EQ(test_of(1), test_of(1));
  EXPECT_NE(test_of(1), test_of(2));
}

TEST(Clean, WhatRecursInGivenPartsIsLeftOutOfTrain) {
  Corpus corpus = pairs({{"known from the test", "a b", 0}, {"new one", "c d", 1}});
  corpus.is_given = {true, true, true};
  corpus.at(Part::Test) = {{"Known from THE test", "x", 0}, {"", "", 0}, {"x", "x", 0}};
  corpus.at(Part::Valid) = {{"NEW", "n", 0}};
  const std::vector<Sentence> test = corpus.at(Part::Test);
  const Divided divided = clean_and_split(corpus, kPairRules, {});
  EXPECT_EQ(divided.removed, (Removed{.recurring = 1}));
  EXPECT_NEAR(divided.recurrence.before, 1.0 / 3, 1e-9);
  EXPECT_EQ(divided.recurrence.after, 0);
  EXPECT_EQ(corpus.at(Part::Test), test);
  EXPECT_EQ(corpus.at(Part::Train).size(), 1u);
}

TEST(Clean, AFixedCorpusStaysAsItIs) {
  Corpus corpus = pairs({{"a", "", 0}, {"a", "", 0}, {"", "", 0}});
  corpus.is_given = {true, true, true};
  corpus.is_fixed = true;
  corpus.at(Part::Test) = {{"a", "", 1}, {"b", "", 1}};
  const Divided divided = clean_and_split(corpus, {}, {});
  EXPECT_EQ(divided.removed, Removed{});
  EXPECT_EQ(corpus.at(Part::Train).size(), 3u);
  EXPECT_EQ(divided.recurrence.after, 0.5);
}

TEST(Clean, SaysWhyNothingIsLeft) {
  const auto refusal = [](Corpus corpus, SplitShares shares) -> std::string {
    try {
      clean_and_split(corpus, {}, shares);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(refusal(pairs({}), {}), HasSubstr("nothing is left to train on: 0 sentences"));
  EXPECT_THAT(refusal(pairs({{"a", "", 0}, {"b", "", 0}}), {}),
              HasSubstr("2 sentences in 1 document"));
  EXPECT_THAT(refusal(pairs({{"a", "", 0}}), {.valid = 0.7}),
              HasSubstr("valid must be from 0 to 0.5, found 0.7"));
  EXPECT_THAT(refusal(pairs({{"a", "", 0}}), {.test = std::nan("")}), HasSubstr("found nan"));
  EXPECT_THAT(refusal(pairs({{"a", "", 0}}), {.valid = 0, .test = 0}), IsEmpty());
}

}  // namespace
}  // namespace penstock::text

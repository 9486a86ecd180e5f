#include "penstock/text/metrics/bleu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>

#include "penstock/text/metrics/perplexity.h"
#include "penstock/util/error.h"

namespace penstock::text {
namespace {

using testing::HasSubstr;

std::vector<std::string> lines_of_file(const std::string& name) {
  std::ifstream file(PENSTOCK_TEST_DATA "/" + name);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

std::vector<std::string> first(const std::vector<std::string>& lines, size_t n) {
  return {lines.begin(), lines.begin() + static_cast<std::ptrdiff_t>(n)};
}

double bleu(const std::string& hypothesis, const std::string& reference) {
  return corpus_bleu({hypothesis}, {{reference}}).bleu;
}

// tests/data/text/make_bleu.py wrote the lines and the scores, with sacreBLEU 2.6.0.
TEST(Bleu, IsThatOfSacreBleuToTheSecondDecimal) {
  const std::vector<std::string> hypotheses = lines_of_file("bleu_hypotheses.txt");
  const std::vector<std::string> references = lines_of_file("bleu_references.txt");
  const std::vector<std::string> others = lines_of_file("bleu_other_references.txt");
  std::ifstream scores(PENSTOCK_TEST_DATA "/bleu_scores.txt");
  size_t n = 0;
  for (double one = 0, both = 0, alone = 0; scores >> one >> both >> alone;) {
    ++n;
    EXPECT_NEAR(bleu(hypotheses[n - 1], references[n - 1]), alone, 6e-5) << hypotheses[n - 1];
    if (n > 10 && n % 15 != 0) continue;
    const std::vector<std::string> known = first(hypotheses, n);
    EXPECT_NEAR(corpus_bleu(known, {first(references, n)}).bleu, one, 6e-5) << n;
    EXPECT_NEAR(corpus_bleu(known, {first(references, n), first(others, n)}).bleu, both, 6e-5) << n;
  }
  EXPECT_EQ(n, 300u);
  EXPECT_EQ(hypotheses.size(), 300u);
}

// sacrebleu.tokenizers.tokenizer_13a.Tokenizer13a()(line), sacreBLEU 2.6.0.
TEST(Bleu, TokensAreThoseOf13a) {
  EXPECT_EQ(tokenized_13a("Hello, world! It's 3.14 or 1,000-fold."),
            "Hello , world ! It's 3.14 or 1,000 - fold .");
  EXPECT_EQ(tokenized_13a("&quot;a&amp;b&quot; <skipped>x"), "\" a & b \" x");
  EXPECT_EQ(tokenized_13a("Sie sagte „Hallo“ zu ihm."), "Sie sagte „Hallo“ zu ihm .");
  EXPECT_EQ(tokenized_13a("a..b state-of-the-art (x)"), "a . . b state-of-the-art ( x )");
  EXPECT_EQ(tokenized_13a(" \u00a0 "), "");
}

TEST(Bleu, ShortCorporaScoreNothing) {
  // sacrebleu.corpus_bleu(["a b"], [["a b"]]).score == 0.0, though sentence_bleu says 100.
  EXPECT_EQ(bleu("a b", "a b"), 0);
  EXPECT_EQ(bleu("", "a b c d"), 0);
  EXPECT_NEAR(bleu("a b c d", "a b c d"), 100, 1e-9);
  EXPECT_EQ(bleu("x y z w", "a b c d"), 0);
}

TEST(Bleu, ListsOfOtherLengthsAreRefused) {
  try {
    corpus_bleu({"a", "b"}, {{"a"}});
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("2 lines and 1 reference in list 1"));
  }
  EXPECT_THROW(corpus_bleu({"a"}, {}), ConfigError);
  EXPECT_THROW(corpus_bleu({}, {{}}), ConfigError);
}

TEST(Perplexity, IsTheExponentialOfTheMeanLoss) {
  EXPECT_NEAR(perplexity(10 * std::log(50.0), 10), 50, 1e-9);
  EXPECT_EQ(perplexity(1e6, 1), std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(perplexity(1, 0)));
}

}  // namespace
}  // namespace penstock::text

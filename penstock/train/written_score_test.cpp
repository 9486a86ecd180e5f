#include "penstock/train/written_score.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "penstock/text/metrics/bleu.h"
#include "penstock/text/metrics/meteor.h"

namespace penstock::train {
namespace {

TEST(WrittenScore, TakesOtherNumbersOfReferences) {
  const Translation translation{
      .references = {{"a b c d e"}, {"x y z v w", "f g h i j"}, {"never compared"}}, .text = {}};
  const std::vector<std::string> texts = {"a b c d e", "f g h i k"};
  EXPECT_EQ(
      written_score(Metric::Bleu, texts, translation),
      text::corpus_bleu(texts, {{"a b c d e", "x y z v w"}, {"a b c d e", "f g h i j"}}).bleu);
  EXPECT_EQ(
      written_score(Metric::MeteorStem, texts, translation),
      text::corpus_meteor(texts, {{"a b c d e"}, {"f g h i j", "x y z v w"}}, nullptr).meteor);
}

TEST(WrittenScore, MeteorKnowsSynonyms) {
  EXPECT_NO_THROW(check_metric_files(Metric::MeteorStem));
  if (!std::filesystem::exists(text::kWordNetFolder)) GTEST_SKIP() << "no wordnet-base";
  EXPECT_NO_THROW(check_metric_files(Metric::Meteor));
  const Translation translation{.references = {{"the car began to move"}}, .text = {}};
  const std::vector<std::string> texts = {"the automobile started to move"};
  EXPECT_GT(written_score(Metric::Meteor, texts, translation),
            written_score(Metric::MeteorStem, texts, translation) + 0.3);
}

}  // namespace
}  // namespace penstock::train

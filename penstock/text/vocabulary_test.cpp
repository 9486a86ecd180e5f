#include "penstock/text/vocabulary.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/text/pieces.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/rng.h"

namespace penstock::text {
namespace {

using testing::HasSubstr;

/// Sentences of few words, enough for pieces of several letters.
std::vector<std::string> sentences() {
  const std::vector<std::string> subjects = {"the cat", "a dog", "the old house", "my brother"};
  const std::vector<std::string> verbs = {"sees", "finds", "has seen", "never found"};
  std::vector<std::string> lines;
  for (const std::string& a : subjects) {
    for (const std::string& verb : verbs) {
      for (const std::string& b : subjects) lines.push_back(fmt::format("{} {} {}", a, verb, b));
    }
  }
  return lines;
}

Vocabulary trained(const VocabularySpec& spec) {
  const std::vector<std::string> lines = sentences();
  const std::vector<std::string_view> views(lines.begin(), lines.end());
  return Vocabulary::train(views, spec);
}

std::vector<uint16_t> tokens_of(const Vocabulary& vocabulary, std::string_view line) {
  std::vector<uint16_t> tokens;
  vocabulary.encode(line, tokens);
  return tokens;
}

std::string refusal_of(const VocabularySpec& spec) {
  try {
    trained(spec);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(Vocabulary, LinesComeBackFromTheirTokensWhateverTheKind) {
  for (const auto kind : {VocabularyKind::Bpe, VocabularyKind::Unigram, VocabularyKind::Word}) {
    const Vocabulary vocabulary = trained({.kind = kind, .size = 60});
    EXPECT_LE(vocabulary.size(), 60);
    for (const std::string& line : sentences()) {
      const std::vector<uint16_t> tokens = tokens_of(vocabulary, line);
      EXPECT_EQ(vocabulary.decode(tokens), line) << name_of(kind);
      for (const uint16_t token : tokens) EXPECT_GT(token, kEnd) << name_of(kind);
    }
  }
}

TEST(Vocabulary, TheSameTextGivesTheSameModel) {
  for (const auto kind : {VocabularyKind::Bpe, VocabularyKind::Unigram})
    EXPECT_EQ(trained({.kind = kind, .size = 60}).model(),
              trained({.kind = kind, .size = 60}).model());
}

TEST(Vocabulary, AModelReadsItsOwnBytes) {
  const Vocabulary vocabulary = trained({.size = 60});
  const Vocabulary read = Vocabulary::parse(vocabulary.model(), VocabularyKind::Bpe, "m");
  EXPECT_EQ(tokens_of(read, "the old dog"), tokens_of(vocabulary, "the old dog"));
  EXPECT_THROW(Vocabulary::parse("garbage", VocabularyKind::Bpe, "m"), ParseError);
  EXPECT_THROW(Vocabulary::parse("", VocabularyKind::Bpe, "m"), ParseError);
}

TEST(Vocabulary, EveryUnknownWordIsATokenOfItsOwn) {
  const std::vector<std::string_view> lines = {"a <unk> b <unk>", "b a"};
  const Vocabulary words =
      Vocabulary::train(lines, {.kind = VocabularyKind::Word, .size = kMaxVocabulary});
  EXPECT_EQ(words.size(), 6) << "pad, unknown, begin, end, a, b";
  const std::vector<uint16_t> tokens = tokens_of(words, "<unk> x y a");
  ASSERT_EQ(tokens.size(), 4u);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(tokens[i], kUnknown);
  EXPECT_EQ(words.decode(tokens), "<unk> <unk> <unk> a");
}

TEST(Vocabulary, LongLinesAreTakenInPartsBetweenWords) {
  const Vocabulary vocabulary = trained({.size = 60});
  std::string line = "the cat";
  while (line.size() < 20'000) line += " sees the old house";
  EXPECT_EQ(vocabulary.decode(tokens_of(vocabulary, line)), line);
  // No space at all, and characters of several bytes: nothing is cut in two.
  std::string letters;
  while (letters.size() < 9'000) letters += "ä";
  const std::vector<std::string_view> lines = {"ä ää", "ää ä"};
  const Vocabulary umlauts = Vocabulary::train(lines, {.size = 7});
  std::string decoded = umlauts.decode(tokens_of(umlauts, letters));
  std::erase(decoded, ' ');  // where a part begins
  EXPECT_EQ(decoded, letters);
}

/// What programs without SentencePiece make of tokens.
TEST(Vocabulary, PiecesAreDecodedWithoutTheLibrary) {
  Rng rng(4);
  for (const VocabularyKind kind :
       {VocabularyKind::Bpe, VocabularyKind::Unigram, VocabularyKind::Word}) {
    const Vocabulary vocabulary = trained({.kind = kind, .size = 60});
    const Pieces pieces = Pieces::parse(vocabulary.pieces(), "vocabulary.txt");
    ASSERT_EQ(pieces.size(), vocabulary.size());
    Unwritten unwritten{.unknown = kUnknown, .silent = {kPad, kBegin, kEnd}};
    if (kind == VocabularyKind::Word) {
      unwritten.are_words = true;
      unwritten.mark = "<unk>";
    }
    for (int i = 0; i < 200; ++i) {
      std::vector<uint16_t> tokens(rng.below(12));
      for (uint16_t& token : tokens)
        token = static_cast<uint16_t>(rng.below(static_cast<uint64_t>(vocabulary.size())));
      EXPECT_EQ(pieces.text(std::vector<int64_t>(tokens.begin(), tokens.end()), unwritten),
                vocabulary.decode(tokens));
    }
  }
}

TEST(Vocabulary, RefusesSizesThatCannotBe) {
  EXPECT_THAT(refusal_of({.size = 70'000}), HasSubstr("from 5 to 65535 tokens"));
  EXPECT_THAT(refusal_of({.size = 4}), HasSubstr("found 4"));
  EXPECT_THAT(refusal_of({.size = 8}), HasSubstr("no vocabulary of 8 tokens can be made"));
  EXPECT_THROW(Vocabulary::train({}, {}), ConfigError);
  EXPECT_THROW(parse_vocabulary_kind("wordpiece"), ConfigError);
  const Vocabulary vocabulary = trained({.size = 60});
  const std::vector<uint16_t> beyond = {60000};
  EXPECT_THROW(vocabulary.decode(beyond), ConfigError);
}

}  // namespace
}  // namespace penstock::text

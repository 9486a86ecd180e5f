#include "penstock/text/metrics/wordnet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/text/testing_folder.h"
#include "penstock/text/testing_wordnet.h"
#include "penstock/util/error.h"

namespace penstock::text {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

TEST(WordNet, FindsSetsOfSynonyms) {
  const TestFolder folder;
  write_wordnet(folder, {"automobile 2 12 15", "car 1 12", "cat 1 18"});
  const WordNet wordnet(folder.path());
  EXPECT_THAT(wordnet.synsets("automobile"), ElementsAre(4 * 12, 4 * 15));
  EXPECT_THAT(wordnet.synsets("auto"), IsEmpty());
  EXPECT_THAT(wordnet.synsets(""), IsEmpty());
  EXPECT_TRUE(wordnet.are_synonyms("car", "automobile"));
  EXPECT_FALSE(wordnet.are_synonyms("car", "cat"));
}

TEST(WordNet, FindsBaseForms) {
  const TestFolder folder;
  write_wordnet(folder, {"box 1 5", "goose 1 7"}, {"geese goose"});
  folder.write("index.verb", "make v 1 0 1 0 00000009\n");
  folder.write("index.adj", "big a 1 1 @ 1 0 00000011\nlarge a 1 0 1 0 00000011\n");
  const WordNet wordnet(folder.path());
  EXPECT_THAT(wordnet.synsets("boxes"), ElementsAre(4 * 5));
  EXPECT_THAT(wordnet.synsets("geese"), ElementsAre(4 * 7));
  EXPECT_THAT(wordnet.synsets("making"), ElementsAre(4 * 9 + 1));
  EXPECT_TRUE(wordnet.are_synonyms("larger", "big"));
}

TEST(WordNet, SaysWhatIsMissingOrDamaged) {
  const TestFolder folder;
  EXPECT_THAT([&] { return WordNet(folder.path()); },
              ThrowsMessage<ConfigError>(HasSubstr("apt-get install wordnet-base")));
  write_wordnet(folder, {"car 1 12"});
  folder.write("index.verb", "car v 9 0 1 0 00000012\ncat v\nrun v x 0 1 0 00000012\n");
  const WordNet wordnet(folder.path());
  for (const char* word : {"car", "cat", "run"})
    EXPECT_THAT([&] { return wordnet.synsets(word); },
                ThrowsMessage<ParseError>(HasSubstr("index.verb")));
}

// Debian's wordnet-base, where it is installed.
TEST(WordNet, ReadsDebiansPackage) {
  if (!std::filesystem::exists(kWordNetFolder)) GTEST_SKIP() << "wordnet-base is not installed";
  const WordNet wordnet((std::filesystem::path(kWordNetFolder)));
  EXPECT_TRUE(wordnet.are_synonyms("cars", "automobile"));
  EXPECT_TRUE(wordnet.are_synonyms("quickly", "rapidly"));
  EXPECT_TRUE(wordnet.are_synonyms("geese", "goose"));
  EXPECT_TRUE(wordnet.are_synonyms("began", "started"));
  EXPECT_FALSE(wordnet.are_synonyms("cat", "house"));
}

}  // namespace
}  // namespace penstock::text

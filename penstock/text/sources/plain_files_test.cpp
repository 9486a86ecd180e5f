#include "penstock/text/sources/plain_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/text/sources/text_lines.h"
#include "penstock/text/testing_folder.h"
#include "penstock/util/error.h"

namespace penstock::text {
namespace {

using testing::HasSubstr;

template <class Read>
std::string files_refusal(Read read) {
  try {
    read();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(PlainFiles, LinesAreTakenFromAnySystem) {
  EXPECT_EQ(lines_of("\xEF\xBB\xBF"
                     "a  b\r\n\n c",
                     "x"),
            (std::vector<std::string>{"a b", "", "c"}));
  EXPECT_EQ(lines_of("", "x").size(), 0u);
  EXPECT_EQ(lines_of("a\n", "x").size(), 1u);
  EXPECT_THAT(files_refusal([] {
                lines_of(
                    "good\nb\xE4"
                    "d\n",
                    "x.txt");
              }),
              HasSubstr("x.txt:2: expected UTF-8, found the byte 0xE4 as byte 2"));
}

TEST(PlainFiles, KnownDataSetsKeepTheirParts) {
  const TestFolder root;
  for (const char* part : {"train", "valid", "test"}) {
    root.write("ptb/ptb." + std::string(part) + ".txt",
               " no it was n't <unk> \n a N " + std::string(part) + " \n");
    root.write("wiki/wiki." + std::string(part) + ".tokens", " \n = Title = \n \n Text . \n");
  }
  const Corpus ptb = read_texts({root.path() / "ptb"});
  EXPECT_TRUE(ptb.has_words && ptb.is_fixed);
  EXPECT_EQ(ptb.at(Part::Test)[1].source, "a N test");
  const Corpus wiki = read_texts({root.path() / "wiki"});
  EXPECT_EQ(wiki.at(Part::Valid).size(), 4u) << "empty lines count";
  EXPECT_EQ(wiki.origins[0].name, "WikiText");
}

TEST(PlainFiles, OtherFoldersGiveTheirTextFiles) {
  const TestFolder root;
  root.write("b.txt", "two\n");
  root.write("a.txt", "one\n");
  root.write("c.md", "no\n");
  const Corpus corpus = read_texts({root.path()});
  EXPECT_EQ(corpus.at(Part::Train), (std::vector<Sentence>{{"one", "", 0}, {"two", "", 2}}));
  const Corpus files = read_texts({root.path() / "b.txt", root.path() / "c.md"});
  EXPECT_EQ(files.at(Part::Train).size(), 2u);
  std::filesystem::create_directory(root.path() / "empty");
  EXPECT_THAT(files_refusal([&] { read_texts({root.path() / "empty"}); }),
              HasSubstr("ptb.train.txt"));
  EXPECT_THAT(files_refusal([&] { read_texts({root.path() / "none.txt"}); }),
              HasSubstr("none.txt"));
}

TEST(PlainFiles, ADocumentIsAFewLinesOfALongFile) {
  const TestFolder root;
  std::string lines;
  for (int i = 0; i < 5000; ++i) lines += "x\n";
  root.write("long.txt", lines);
  const Corpus corpus = read_texts({root.path() / "long.txt"});
  EXPECT_EQ(corpus.at(Part::Train)[4].document, 0u);
  EXPECT_EQ(corpus.at(Part::Train)[5].document, 1u);
}

TEST(PlainFiles, PairsOfDifferentLengthsAreRefused) {
  const TestFolder root;
  const auto en = root.write("train.en", "one\ntwo\n");
  const auto de = root.write("train.de", "eins\n");
  EXPECT_THAT(files_refusal([&] {
                read_pairs({{{en, de}, {}, {}}});
              }),
              HasSubstr("has 2 lines, " + de.string() + " has 1"));
  EXPECT_THAT(files_refusal([&] { read_pairs({{{en, {}}, {}, {}}}); }), HasSubstr("alone"));
  EXPECT_THAT(files_refusal([&] { read_pairs({}); }), HasSubstr("files to train on"));
}

TEST(PlainFiles, FilesOfWmtAreFoundByTheirNames) {
  const TestFolder root;
  for (const char* stem : {"train.tok.clean", "newstest2013", "newstest2014"}) {
    root.write(std::string(stem) + ".en", "a\n");
    root.write(std::string(stem) + ".de", "b\n");
  }
  root.write("newstest2015.en", "no partner\n");
  const auto files = pair_files_in(root.path(), "en", "de");
  EXPECT_EQ(files[0].source.filename(), "train.tok.clean.en");
  EXPECT_EQ(files[1].target.filename(), "newstest2013.de");
  EXPECT_EQ(files[2].source.filename(), "newstest2014.en");
  const Corpus corpus = read_pairs(files);
  EXPECT_EQ(corpus.at(Part::Test), (std::vector<Sentence>{{"a", "b", 0}}));
  root.write("train.en", "a\n");
  root.write("train.de", "b\n");
  EXPECT_THAT(files_refusal([&] { pair_files_in(root.path(), "en", "de"); }),
              HasSubstr("one of the files train, train.tok.clean"));
  EXPECT_THAT(files_refusal([&] { pair_files_in(root.path(), "en", "fr"); }),
              HasSubstr("expected train.en and train.fr"));
}

}  // namespace
}  // namespace penstock::text

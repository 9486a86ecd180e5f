#include "penstock/text/prepare.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "penstock/text/testing_folder.h"
#include "penstock/util/error.h"
#include "penstock/util/files/files.h"

namespace penstock::text {
namespace {

using testing::HasSubstr;

template <class Number>
std::vector<Number> numbers_in(const TestFolder& folder, const std::string& name) {
  const std::string bytes = folder.read(name);
  std::vector<Number> numbers(bytes.size() / sizeof(Number));
  std::memcpy(numbers.data(), bytes.data(), numbers.size() * sizeof(Number));
  return numbers;
}

Vocabulary vocabulary_in(const TestFolder& folder, VocabularyKind kind) {
  return Vocabulary::parse(folder.read("out/vocabulary.model"), kind, "vocabulary.model");
}

/// 200 lines that differ in a number, in two languages.
void write_pairs(const TestFolder& root) {
  std::string en, de;
  for (int i = 0; i < 200; ++i) {
    en += fmt::format("the house number {} is open\n", i);
    de += fmt::format("das Haus Nummer {} ist offen\n", i);
  }
  root.write("train.en", en);
  root.write("train.de", de);
}

TEST(Prepare, ATranslationComesBackFromItsFolder) {
  const TestFolder root;
  write_pairs(root);
  const PreparedData data = prepare_data({.task = Task::Translation,
                                          .paths = {root.path()},
                                          .languages = {"en", "de"},
                                          .vocabulary = 100,
                                          .shares = {.valid = 0.1, .test = 0.1},
                                          .output = root.path() / "out",
                                          .command = "penstock data"});
  EXPECT_EQ(data.parts[2].sentences, 20);
  EXPECT_EQ(data.parts[1].sentences, 20);
  EXPECT_EQ(data.parts[0].sentences, 160);
  const Vocabulary vocabulary = vocabulary_in(root, VocabularyKind::Bpe);
  for (const std::string side : {"source", "target"}) {
    const auto tokens = numbers_in<uint16_t>(root, "out/test." + side + ".bin");
    const auto begins = numbers_in<uint64_t>(root, "out/test." + side + ".idx");
    ASSERT_EQ(begins.size(), 21u);
    EXPECT_EQ(begins.front(), 0u);
    EXPECT_EQ(begins.back(), tokens.size());
    std::string lines;
    for (size_t i = 0; i + 1 < begins.size(); ++i)
      lines +=
          vocabulary.decode(std::span(tokens).subspan(begins[i], begins[i + 1] - begins[i])) + "\n";
    EXPECT_EQ(lines, root.read("out/test." + side + ".txt"));
  }
  const Json manifest = parse_json(root.read("out/manifest.json"), "manifest.json");
  EXPECT_EQ(manifest["task"], "translation");
  EXPECT_EQ(manifest["vocabulary"]["size"], vocabulary.size());
  EXPECT_EQ(manifest["vocabulary"]["end"], 3);
  EXPECT_EQ(manifest["vocabulary"]["crc32"], crc32_of(vocabulary.model()));
  EXPECT_EQ(manifest["parts"]["train"]["pairs"], 160);
  EXPECT_EQ(manifest["parts"]["test"]["source"]["words"], 120);
  EXPECT_EQ(manifest["recurs"], 0);
  EXPECT_EQ(manifest["recurs_in_letters"], 1.0) << "they differ in the number alone";
  EXPECT_EQ(manifest["sources"][0]["files"].size(), 2u);
  EXPECT_EQ(manifest["command"], "penstock data");
}

TEST(Prepare, TheSameRequestGivesTheSameBytes) {
  const TestFolder root;
  write_pairs(root);
  DataRequest request{.task = Task::Translation,
                      .pairs = {{{root.path() / "train.en", root.path() / "train.de"}, {}, {}}},
                      .vocabulary = 100};
  for (const char* out : {"a", "b"}) {
    request.output = root.path() / out;
    prepare_data(request);
  }
  for (const char* file :
       {"manifest.json", "vocabulary.model", "train.source.bin", "train.source.idx",
        "train.target.bin", "test.source.bin", "test.target.txt"}) {
    EXPECT_EQ(root.read(fmt::format("a/{}", file)), root.read(fmt::format("b/{}", file))) << file;
    EXPECT_FALSE(root.read(fmt::format("a/{}", file)).empty()) << file;
  }
}

TEST(Prepare, TheTokensOfPennTreebankAreItsWordsWithAnEndForEachLine) {
  const TestFolder root;
  root.write("ptb.train.txt", " mr. <unk> is chairman of <unk> <unk> n.v. \n it fell N points \n");
  root.write("ptb.valid.txt", " it is <unk> \n");
  root.write("ptb.test.txt", " mr. unheard is N \n");
  const PreparedData data =
      prepare_data({.paths = {root.path()}, .min_words = 5, .output = root.path() / "out"});
  EXPECT_THAT(data.notes, testing::ElementsAre(HasSubstr("limits on words have no effect")));
  EXPECT_EQ(data.manifest["vocabulary"]["type"], "word");
  // mr. is chairman of n.v. it fell N points, and four that are no words.
  EXPECT_EQ(data.vocabulary, 13);
  EXPECT_EQ(data.parts[0].source,
            (SideCounts{.words = 12, .tokens = 14, .unknown = 3, .longest = 8}));
  const Vocabulary vocabulary = vocabulary_in(root, VocabularyKind::Word);
  const auto test = numbers_in<uint16_t>(root, "out/test.bin");
  ASSERT_EQ(test.size(), 5u);
  EXPECT_EQ(test.back(), kEnd);
  EXPECT_EQ(vocabulary.decode(test), "mr. <unk> is N");
}

TEST(Prepare, ATextThatIsTooSmallForItsVocabularySaysSo) {
  const TestFolder root;
  std::string text;
  for (int i = 0; i < 100; ++i) text += fmt::format("line {} of a small text\n", i);
  root.write("a.txt", text);
  const PreparedData data = prepare_data(
      {.paths = {root.path() / "a.txt"}, .vocabulary = 5000, .output = root.path() / "out"});
  EXPECT_LT(data.vocabulary, 5000);
  ASSERT_EQ(data.notes.size(), 1u);
  EXPECT_THAT(data.notes[0], HasSubstr("5000 were asked for"));
}

TEST(Prepare, MoreWordsThanAskedForAreSaid) {
  const TestFolder root;
  root.write("a.txt", "one two three\ntwo three\nthree four\nfive six\n");
  const PreparedData data = prepare_data({.paths = {root.path() / "a.txt"},
                                          .vocabulary = 6,
                                          .kind = VocabularyKind::Word,
                                          .shares = {.valid = 0, .test = 0.1},
                                          .output = root.path() / "out"});
  EXPECT_EQ(data.vocabulary, 6);
  EXPECT_THAT(data.notes, testing::ElementsAre(HasSubstr("more than 6 words"),
                                               HasSubstr("there is no part valid")));
}

TEST(Prepare, FoldersOfOthersStayAsTheyAre) {
  const TestFolder root;
  write_pairs(root);
  DataRequest request{.paths = {root.path() / "train.en"}, .vocabulary = 80};
  const auto refusal = [&]() -> std::string {
    try {
      prepare_data(request);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  root.write("full/mine.txt", "x");
  request.output = root.path() / "full";
  EXPECT_THAT(refusal(), HasSubstr("holds other files"));
  request.output = root.path() / "train.de";
  EXPECT_THAT(refusal(), HasSubstr("is a file"));
  EXPECT_EQ(root.read("full/mine.txt"), "x");
  // A folder of an earlier run is written anew; what the new one lacks is gone.
  request.output = root.path() / "out";
  EXPECT_EQ(refusal(), "");
  EXPECT_TRUE(std::filesystem::exists(request.output / "valid.bin"));
  request.shares.valid = 0;
  EXPECT_EQ(refusal(), "");
  EXPECT_FALSE(std::filesystem::exists(request.output / "valid.bin"));
}

TEST(Prepare, WhatIsMissingInTheRequestIsSaid) {
  const auto refusal = [](const DataRequest& request) -> std::string {
    try {
      prepare_data(request);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(refusal({.task = Task::Text}), HasSubstr("expected files or a folder"));
  EXPECT_THAT(refusal({.task = Task::Translation, .source = SourceKind::LibreOfficeHelp}),
              HasSubstr("expected 2 languages for a translation, found 0"));
  EXPECT_THAT(refusal({.task = Task::Text, .source = SourceKind::Sword}),
              HasSubstr("expected 1 module for a text, found 0"));
  EXPECT_THAT(refusal({.task = Task::Text, .source = SourceKind::Gettext}), HasSubstr("no text"));
  EXPECT_THAT(refusal({.task = Task::Translation, .source = SourceKind::Gettext}),
              HasSubstr("expected 1 language"));
  EXPECT_THAT(
      refusal({.task = Task::Translation, .source = SourceKind::Sword, .languages = {"en", "de"}}),
      HasSubstr("languages are named"));
  EXPECT_THAT(refusal({.paths = {"x"}, .languages = {"en"}}), HasSubstr("languages are named"));
  EXPECT_THAT(refusal({.source = SourceKind::LibreOfficeHelp, .modules = {"KJV"}}),
              HasSubstr("works of SWORD are named"));
  EXPECT_THAT(refusal({.paths = {"x"}, .min_words = 5, .max_words = 4}),
              HasSubstr("found 5 and 4"));
}

}  // namespace
}  // namespace penstock::text

#include "penstock/train/data/token_folder.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "penstock/train/checkpoint/test_folder.h"
#include "penstock/train/data/load_data.h"
#include "penstock/util/error.h"

namespace penstock::train {
namespace {

using testing::HasSubstr;

template <class Number>
std::string numbers_as_bytes(const std::vector<Number>& numbers) {
  std::string bytes(numbers.size() * sizeof(Number), '\0');
  std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return bytes;
}

std::string manifest(const std::string& task) {
  return R"({"format": "penstock-tokens", "version": 1, "task": ")" + task +
         R"(", "vocabulary": {"size": 20, "pad": 0, "unknown": 1, "begin": 2, "end": 3}})";
}

model::InputSpec token_input(const std::string& name, int64_t length, int64_t values = 20) {
  return {.name = name, .shape = {length}, .type = at::kLong, .values = values};
}

SampleSpec translation(std::vector<model::InputSpec> inputs, int64_t length) {
  return {.inputs = std::move(inputs),
          .targets = {.needed = true, .shape = {length}, .classes = 20}};
}

class TokenFolders : public testing::Test {
 protected:
  void write(const std::string& file, const std::string& bytes) const {
    write_test_file(folder_ / file, bytes);
  }
  void write_sentences(const std::string& stem,
                       const std::vector<std::vector<uint16_t>>& sentences) const {
    std::vector<uint16_t> tokens;
    std::vector<uint64_t> offsets = {0};
    for (const auto& sentence : sentences) {
      tokens.insert(tokens.end(), sentence.begin(), sentence.end());
      offsets.push_back(tokens.size());
    }
    write(stem + ".bin", numbers_as_bytes(tokens));
    write(stem + ".idx", numbers_as_bytes(offsets));
  }
  void write_pairs() const {
    write("manifest.json", manifest("translation"));
    write_sentences("train.source", {{4, 5}, {6}, {7, 8, 9, 10}, {}});
    write_sentences("train.target", {{11}, {12, 13, 14}, {15}, {16}});
    write_sentences("test.source", {{6, 5}});
    write_sentences("test.target", {{12}});
    write("vocabulary.model", "of SentencePiece");
    write("vocabulary.txt", "<pad>\n<unk>\n<s>\n</s>\n\u2581haus\n\u2581und\n\u2581h\no\nf\n");
    write("test.target.txt", "haus\n");
  }
  DataSplit load(const SampleSpec& sample) const {
    return load_data({.name = folder_.path().string(), .sample = sample});
  }
  std::string refusal(const SampleSpec& sample) const {
    return message_of<Error>([&] { load(sample); });
  }

  TestFolder folder_;
};

const SampleSpec kSourceAndTarget =
    translation({token_input("source", 4), token_input("target", 4)}, 4);

TEST_F(TokenFolders, PairsHaveTheirEndsAndAreFilledUp) {
  write_pairs();
  const DataSplit data = load(kSourceAndTarget);
  // The third pair has four tokens and an end, which is one more than the source has places.
  ASSERT_EQ(data.train->size(), 3);
  EXPECT_THAT(data.summary, HasSubstr("1 pairs with a source of 4 tokens or more"));
  const model::Tensors inputs = data.train->inputs({0, 2, 1});
  EXPECT_TRUE(
      inputs[0].equal(at::tensor({4, 5, 3, 0, 3, 0, 0, 0, 6, 3, 0, 0}, at::kLong).view({3, 4})));
  EXPECT_TRUE(inputs[1].equal(
      at::tensor({2, 11, 0, 0, 2, 16, 0, 0, 2, 12, 13, 14}, at::kLong).view({3, 4})));
  EXPECT_TRUE(data.train->targets({0, 2, 1}).equal(
      at::tensor({11, 3, -100, -100, 16, 3, -100, -100, 12, 13, 14, 3}, at::kLong).view({3, 4})));
  EXPECT_EQ(data.train->count_targets({0, 2, 1}), 8);
  EXPECT_EQ(data.test->size(), 1);
  ASSERT_NE(data.translation, nullptr);
  EXPECT_EQ(data.translation->references, std::vector<std::vector<std::string>>{{"haus"}});
  EXPECT_EQ(data.translation->text({2, 6, 7, 8, 5, 4, 3, 0}), "hof und haus");
  EXPECT_EQ(data.translation->text({4, 70'000, 5}), "haus \u2047  und")
      << "a model that knows more";
}

TEST_F(TokenFolders, MoreSamplesThanFitAreRefusedWithWhatWasLeftOut) {
  write_pairs();
  const auto refusal_of = [&](int64_t train, int64_t test) {
    return message_of<ConfigError>([&] {
      load_data({.name = folder_.path().string(),
                 .sample = kSourceAndTarget,
                 .train_samples = train,
                 .test_samples = test});
    });
  };
  EXPECT_THAT(
      refusal_of(4, 0),
      HasSubstr("expected at most 3 training samples, which is all there are, found 4; left "
                "out: 1 pairs with a source of 4 tokens or more, or a target of 4"));
  // Of the test part every pair fits.
  EXPECT_THAT(refusal_of(0, 2), testing::EndsWith("which is all there are, found 2"));
}

TEST_F(TokenFolders, WithoutATestPartAShareIsTheTest) {
  write("manifest.json", manifest("text"));
  write("vocabulary.model", "of SentencePiece");
  write("train.bin", numbers_as_bytes(std::vector<uint16_t>(41, 5)));
  const DataSplit data = load(translation({token_input("ids", 2)}, 2));
  EXPECT_EQ(data.train->size(), 18);
  EXPECT_EQ(data.test->size(), 2);
}

TEST_F(TokenFolders, MasksSayWhereTokensAreOfTheInputBeforeThem) {
  write_pairs();
  SampleSpec sample = translation(
      {token_input("input_ids", 4), token_input("attention_mask", 4, 0),
       token_input("decoder_input_ids", 4), token_input("mask2", 4, 0), token_input("labels", 4)},
      4);
  sample.targets.needed = false;
  const model::Tensors inputs = load(sample).train->inputs({0});
  EXPECT_TRUE(inputs[1].equal(at::tensor({1, 1, 1, 0}, at::kLong).view({1, 4})));
  EXPECT_TRUE(inputs[3].equal(at::tensor({1, 1, 0, 0}, at::kLong).view({1, 4})));
  EXPECT_TRUE(inputs[4].equal(at::tensor({11, 3, -100, -100}, at::kLong).view({1, 4})));
}

TEST_F(TokenFolders, ATextIsWindowsOfItsTokens) {
  write("manifest.json", manifest("text"));
  write("vocabulary.model", "of SentencePiece");
  write("train.bin", numbers_as_bytes(std::vector<uint16_t>{4, 5, 6, 7, 8, 9, 10}));
  write("test.bin", numbers_as_bytes(std::vector<uint16_t>{11, 12, 13, 14}));
  const DataSplit data = load(translation({token_input("ids", 3)}, 3));
  EXPECT_EQ(data.train->size(), 2);
  EXPECT_TRUE(data.train->targets({1}).equal(at::tensor({8, 9, 10}, at::kLong).view({1, 3})));
  EXPECT_TRUE(data.test->inputs({0})[0].equal(at::tensor({11, 12, 13}, at::kLong).view({1, 3})));
}

TEST_F(TokenFolders, AModelThatIsForOtherDataIsRefused) {
  write_pairs();
  EXPECT_THAT(refusal(translation({token_input("ids", 4)}, 4)),
              HasSubstr("no second input of tokens"));
  EXPECT_THAT(
      refusal(translation({token_input("a", 4), token_input("b", 4), token_input("c", 4)}, 4)),
      HasSubstr("'c' is another input"));
  EXPECT_THAT(refusal(translation({token_input("a", 4), token_input("b", 4, 12)}, 4)),
              HasSubstr("its vocabulary has 20 tokens, and the model's input 'b' knows 12"));
  EXPECT_THAT(refusal(translation({token_input("a", 4), token_input("b", 4)}, 3)),
              HasSubstr("logits for each of the target's 4 places"));
  EXPECT_THAT(refusal(translation({token_input("a", 1), token_input("b", 1)}, 1)),
              HasSubstr("none of 4 pairs fits"));
  EXPECT_THAT(refusal(labelled({4}, 20)), HasSubstr("models of tokens"));
}

TEST_F(TokenFolders, DamagedFilesAreRefused) {
  const std::string offsets = numbers_as_bytes(std::vector<uint64_t>{0, 2, 3, 7, 7});
  const std::vector<std::array<std::string, 3>> cases = {
      {"manifest.json", "{", "manifest.json"},
      {"manifest.json", manifest("speech"), "expected \"text\", \"translation\" or \"captions\""},
      {"manifest.json", R"({"format": "penstock-plan", "version": 1})",
       "expected \"penstock-tokens\""},
      {"train.source.idx", offsets.substr(1), "expected offsets of 8 bytes each"},
      {"train.source.idx", "", "expected offsets of 8 bytes each"},
      {"train.source.idx", numbers_as_bytes(std::vector<uint64_t>{0, 2, 1, 7, 7}),
       "offset 2 is below"},
      {"train.source.idx", numbers_as_bytes(std::vector<uint64_t>{0, ~uint64_t{0}, 3, 7, 7}),
       "offset 1 is below"},
      {"train.source.idx", numbers_as_bytes(std::vector<uint64_t>{0, 2, 3, 7, 8}),
       "expected offsets from 0 to the 7 tokens, found 0 to 8"},
      {"train.source.idx", numbers_as_bytes(std::vector<uint64_t>{0, 2, 3, 7}),
       "found 3 sources and 4 targets"},
      {"vocabulary.txt", "", "expected a piece a line, found none"},
      {"test.target.txt", "", "expected a line for each of 1 sentences, found 0 lines"},
      {"train.target.bin", "abc", "train: expected tokens of 2 bytes each"},
      {"train.target.bin", numbers_as_bytes(std::vector<uint16_t>{11, 12, 13, 14, 15, 20}),
       "the token 20 does not exist"}};
  for (const auto& [file, bytes, words] : cases) {
    write_pairs();
    write(file, bytes);
    EXPECT_THAT(refusal(kSourceAndTarget), HasSubstr(words)) << file;
  }
}

}  // namespace
}  // namespace penstock::train

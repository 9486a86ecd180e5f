#include "penstock/train/data/load_data.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "penstock/train/checkpoint/test_folder.h"
#include "penstock/train/data/sample_subset.h"
#include "penstock/train/data/tensor_dataset.h"
#include "penstock/train/data/test_npy.h"
#include "penstock/train/data/token_dataset.h"
#include "penstock/util/error.h"

namespace penstock::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;

using Members = std::vector<std::pair<std::string, std::string>>;

/// `count` samples of two numbers, sample i is {i, -i}.
std::string pairs(int count) {
  std::vector<float> numbers;
  for (int i = 0; i < count; ++i) {
    numbers.push_back(static_cast<float>(i));
    numbers.push_back(static_cast<float>(-i));
  }
  return npy_of(numbers, fmt::format("({}, 2)", count));
}
/// Class of sample i: i % 3.
std::string classes(int count) {
  std::vector<int64_t> numbers;
  for (int i = 0; i < count; ++i) numbers.push_back(i % 3);
  return npy_of_int64(numbers, fmt::format("({},)", count));
}

/// A model of tokens: `length` of `values` ones.
SampleSpec tokens(int64_t length, int64_t values) {
  return {.inputs = {{.name = "ids", .shape = {length}, .type = at::kLong, .values = values}},
          .targets = {.needed = true, .shape = {length}, .classes = values}};
}

class FileData : public testing::Test {
 protected:
  DataSpec spec(const std::string& file, const std::string& content,
                SampleSpec sample = labelled({2}, 3)) const {
    write_test_file(folder_ / file, content);
    return {.name = (folder_ / file).string(), .folder = {}, .sample = std::move(sample)};
  }
  DataSpec arrays(const Members& members, SampleSpec sample = labelled({2}, 3)) const {
    return spec("data.npz", make_zip(members, /*deflates=*/true), std::move(sample));
  }
  static std::string refusal(const DataSpec& spec) {
    return message_of<ConfigError>([&] { load_data(spec); });
  }

  TestFolder folder_;
};

std::vector<int64_t> firsts(const Dataset& data) {
  std::vector<int64_t> all;
  for (int64_t i = 0; i < data.size(); ++i)
    all.push_back(static_cast<int64_t>(data.inputs({i}).front()[0][0].item<float>()));
  return all;
}

TEST_F(FileData, APartOfTheSamplesIsForTheTestAlwaysTheSame) {
  const DataSpec spec = arrays({{"x.npy", pairs(50)}, {"y.npy", classes(50)}});
  const DataSplit data = load_data(spec);
  EXPECT_EQ(data.train->size(), 45);
  EXPECT_EQ(data.test->size(), 5);
  std::set<int64_t> seen;
  for (const auto& part : {data.train, data.test}) {
    for (const int64_t first : firsts(*part)) EXPECT_TRUE(seen.insert(first).second);
  }
  EXPECT_EQ(seen.size(), 50);
  EXPECT_NE(firsts(*data.test), (std::vector<int64_t>{45, 46, 47, 48, 49})) << "drawn at random";
  EXPECT_EQ(firsts(*load_data(spec).test), firsts(*data.test));
  DataSpec windows = spec;
  windows.in_order = true;
  EXPECT_EQ(firsts(*load_data(windows).test), (std::vector<int64_t>{45, 46, 47, 48, 49}));
  for (int64_t i = 0; i < data.train->size(); ++i)
    EXPECT_EQ(data.train->targets({i}).item<int64_t>(),
              firsts(*data.train)[static_cast<size_t>(i)] % 3);
  DataSpec all = spec;
  all.test_share = 0;
  EXPECT_EQ(load_data(all).train->size(), 50);
  EXPECT_EQ(load_data(all).test->size(), 0);
  all.train_samples = 7;
  EXPECT_EQ(firsts(*load_data(all).train), (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6}));
}

TEST_F(FileData, TestSamplesMayHaveArraysOrAFileOfTheirOwn) {
  const DataSplit named = load_data(arrays({{"x_train.npy", pairs(9)},
                                            {"y_train.npy", classes(9)},
                                            {"x_test.npy", pairs(4)},
                                            {"y_test.npy", classes(4)}}));
  EXPECT_EQ(named.train->size(), 9);
  EXPECT_EQ(named.test->size(), 4);
  write_test_file(folder_ / "test.npz",
                  make_zip({{"x.npy", pairs(6)}, {"labels.npy", classes(6)}}));
  DataSpec spec = arrays({{"x.npy", pairs(9)}, {"y.npy", classes(9)}});
  spec.test_file = folder_ / "test.npz";
  EXPECT_EQ(load_data(spec).train->size(), 9);
  EXPECT_EQ(load_data(spec).test->size(), 6);
}

TEST_F(FileData, PartsOfArraysHaveTheNamesThatPeopleGive) {
  // MedMNIST's keys, Keras's, and others: the part before or behind the name.
  const auto sizes = [&](const std::string& x, const std::string& y,
                         const std::vector<std::pair<std::string, int>>& parts) {
    Members members;
    for (const auto& [part, count] : parts) {
      members.emplace_back(fmt::format(fmt::runtime(x), part) + ".npy", pairs(count));
      members.emplace_back(fmt::format(fmt::runtime(y), part) + ".npy", classes(count));
    }
    const DataSplit data = load_data(arrays(members));
    const size_t left = data.summary.find("; left out: ");
    return fmt::format("{} {}{}", data.train->size(), data.test->size(),
                       left == std::string::npos ? "\n" : data.summary.substr(left));
  };
  EXPECT_EQ(sizes("{}_images", "{}_labels", {{"train", 9}, {"val", 4}, {"test", 5}}),
            "9 5; left out: 2 arrays of the part val\n");
  EXPECT_EQ(sizes("x_{}", "y_{}", {{"train", 9}, {"val", 4}}), "9 4\n");
  EXPECT_EQ(sizes("X_{}", "y_{}", {{"train", 9}, {"valid", 4}}), "9 4\n");
  EXPECT_EQ(sizes("{}_data", "{}_label", {{"Training", 9}, {"dev", 4}}), "9 4\n");
  EXPECT_EQ(sizes("{}_images", "{}_labels", {{"train", 20}}), "18 2\n");
}

TEST_F(FileData, ArraysThatNothingNeedsAreLeftOutAndNamed) {
  const Members members{{"x.npy", pairs(9)},
                        {"y.npy", classes(9)},
                        {"names.npy", make_npy("<U1", "(9,)", std::string(36, 'a'))},
                        {"ids.npy", npy_of_int64(std::vector<int64_t>(9), "(9,)")}};
  const DataSplit data = load_data(arrays(members));
  EXPECT_EQ(data.train->size(), 9 - 1);
  EXPECT_THAT(data.summary, HasSubstr("data.npz: 8 training samples; 1 test sample (a share of 0.1)"
                                      "; left out: 1 array 'ids', 1 array 'names'"));
  // One that is needed is refused with its kind.
  EXPECT_THAT(refusal(arrays({{"input.npy", make_npy("|O", "(9,)", std::string(72, 'a'))},
                              {"y.npy", classes(9)}})),
              HasSubstr("input.npy: its type is '|O', Python's objects"));
}

TEST_F(FileData, SizesAreComparedBeforeArraysAreUnpacked) {
  // The second one is damaged behind its header: unpacking it would say so.
  std::string x = pairs(400);
  std::string zip = make_zip({{"x.npy", x}, {"y.npy", classes(3)}}, /*deflates=*/true);
  EXPECT_THAT(refusal(spec("data.npz", zip)),
              HasSubstr("the array 'targets' has 3 samples, 'input' has 400"));
  zip[zip.find("x.npy") + 300] ^= 0x55;
  EXPECT_THAT(refusal(spec("data.npz", zip)),
              HasSubstr("the array 'targets' has 3 samples, 'input' has 400"));
}

TEST_F(FileData, ImagesMayHaveTheirChannelsLast) {
  // One image of 2 x 2, its pixels (1, 2, 3), (4, 5, 6), ...
  std::string bytes;
  for (char value = 1; value <= 12; ++value) bytes += value;
  const DataSplit data =
      load_data(arrays({{"train_images.npy", make_npy("|u1", "(1, 2, 2, 3)", bytes)},
                        {"train_labels.npy", classes(1)},
                        {"test_images.npy", make_npy("|u1", "(1, 2, 2, 3)", bytes)},
                        {"test_labels.npy", classes(1)}},
                       labelled({3, 2, 2}, 3)));
  const std::vector<float> expected{1, 4, 7, 10, 2, 5, 8, 11, 3, 6, 9, 12};
  EXPECT_TRUE(data.train->inputs({0}).front().reshape({12}).equal(at::tensor(expected)));
}

TEST_F(FileData, SeveralInputsComeByName) {
  SampleSpec sample{.inputs = {{.name = "image", .shape = {2}},
                               {.name = "mask", .shape = {2}, .type = at::kBool}},
                    .targets = {.needed = true, .shape = {1}, .type = at::kFloat}};
  const std::string mask = make_npy("|b1", "(2, 2)", std::string("\1\0\1\1", 4));
  const DataSplit data = load_data(arrays(
      {{"mask.npy", mask}, {"image.npy", pairs(2)}, {"targets.npy", npy_of({0.5F, 2}, "(2,)")}},
      sample));
  const model::Tensors batch = data.train->inputs({0});
  ASSERT_EQ(batch.size(), 2);
  EXPECT_EQ(batch[1].scalar_type(), at::kBool);
  EXPECT_EQ(data.train->targets({0}).sizes(), at::IntArrayRef({1, 1})) << "a size of 1 may lack";
  EXPECT_THAT(
      refusal(arrays({{"image.npy", pairs(2)}, {"y.npy", npy_of({1, 2}, "(2,)")}}, sample)),
      AllOf(HasSubstr("data.npz: there is no array 'mask'"), HasSubstr("image (float32, 2x2)"),
            HasSubstr("mask (bool, 2); targets (float32, 1)")));
}

TEST_F(FileData, SaysWhatDoesNotFit) {
  EXPECT_THAT(refusal(arrays({{"x.npy", pairs(4)}})), HasSubstr("no array of targets"));
  EXPECT_THAT(refusal(arrays({{"x.npy", pairs(4)}, {"y.npy", classes(3)}})),
              HasSubstr("the array 'targets' has 3 samples, 'input' has 4"));
  EXPECT_THAT(refusal(arrays({{"x.npy", pairs(4)}, {"y.npy", pairs(4)}})),
              HasSubstr("'targets': expected samples of int64, one number, found float32, 2"));
  EXPECT_THAT(refusal(arrays({{"x.npy", pairs(4)}, {"y.npy", npy_of({1.0F, 1, 1, 1}, "(4,)")}})),
              HasSubstr("expected whole numbers"));
  EXPECT_THAT(refusal(arrays({{"x.npy", npy_of({}, "(0, 2)")}, {"y.npy", classes(0)}})),
              HasSubstr("has no samples"));
  EXPECT_THAT(refusal(arrays({{"x.npy", npy_of({1.0F}, "()")}, {"y.npy", classes(1)}})),
              HasSubstr("one number, expected samples"));
  EXPECT_THAT(
      refusal(arrays({{"x.npy", pairs(4)}, {"labels.npy", classes(4)}, {"y.npy", classes(4)}})),
      AllOf(HasSubstr("data.npz: expected one array of targets, found 'labels' and 'y'"),
            HasSubstr("the file has labels (int64, 4), x (float32, 4x2), y (int64, 4)")));
  EXPECT_THAT(refusal({.name = (folder_ / "none.npz").string()}), HasSubstr("there is no file"));
  DataSpec share = arrays({{"x.npy", pairs(4)}, {"y.npy", classes(4)}});
  share.test_share = 1;
  EXPECT_THAT(refusal(share), HasSubstr("share"));
}

TEST_F(FileData, BadSamplesAreReportedOrLeftOut) {
  std::vector<float> numbers(12, 1);
  numbers[5] = std::nanf("");  // sample 2
  numbers[8] = INFINITY;       // sample 4
  const std::string labels = npy_of_int64(std::vector<int64_t>{0, 7, 0, 0, -100, 0}, "(6,)");
  DataSpec spec = arrays({{"x.npy", npy_of(numbers, "(6, 2)")}, {"y.npy", labels}});
  EXPECT_THAT(
      refusal(spec),
      AllOf(HasSubstr("sample 1 of 'targets' holds 7, expected a class from 0 to 2"),
            HasSubstr("sample 2 of 'input' holds nan"), HasSubstr("sample 4 of 'input' holds inf"),
            HasSubstr("bad samples can be skipped")));
  spec.skip_bad_samples = true;
  spec.test_share = 0;
  EXPECT_EQ(load_data(spec).train->size(), 3);
}

TEST_F(FileData, TokensAreFollowedByTheNextOnes) {
  std::string text;
  for (int i = 0; i < 23; ++i) text += static_cast<char>('a' + i);
  const DataSplit data = load_data(spec("text.txt", text, tokens(4, 256)));
  EXPECT_EQ(data.train->size() + data.test->size(), 5);
  const at::Tensor inputs = data.train->inputs({0, 1}).front();
  EXPECT_EQ(inputs.scalar_type(), at::kLong);
  EXPECT_TRUE(inputs.reshape({8}).equal(at::arange('a', 'a' + 8, at::kLong)));
  EXPECT_TRUE(data.train->targets({0, 1}).reshape({8}).equal(at::arange('b', 'b' + 8, at::kLong)));
  EXPECT_EQ(data.train->count_targets({0, 1}), 8);
  EXPECT_EQ(data.test->inputs({0}).front()[0][0].item<int64_t>(), 'a' + 16) << "the last ones";

  DataSpec ignoring = spec("text.txt", text, tokens(4, 256));
  EXPECT_EQ(load_data(ignoring).train->count_targets({0, 1}), 8);
  ignoring.ignore_index = text[2];
  const auto counted = load_data(ignoring).train;
  const at::Tensor targets = counted->targets({0, 1});
  EXPECT_EQ(counted->count_targets({0, 1}), targets.ne(text[2]).sum().item<int64_t>());
  EXPECT_LT(counted->count_targets({0, 1}), 8);
  EXPECT_THAT(refusal(spec("text.txt", text, tokens(4, 100))),
              HasSubstr("the token 119 does not exist: the model knows those from 0 to 99"));
  EXPECT_THAT(refusal(spec("text.txt", "abc", tokens(4, 256))), HasSubstr("at least 5 tokens"));
  EXPECT_THAT(refusal(spec("text.txt", "", tokens(4, 256))), HasSubstr("at least 5 tokens"));
  EXPECT_THAT(refusal(spec("text.txt", text)), HasSubstr("tokens are for models of tokens"));
  const std::string row = npy_of_int64(std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7}, "(7,)");
  EXPECT_EQ(load_data(spec("row.npy", row, tokens(2, 9))).train->size(), 2);
  EXPECT_THAT(refusal(spec("row.npy", pairs(3), tokens(2, 9))),
              HasSubstr("expected one row of tokens (whole numbers), found float32, 3x2"));
}

TEST_F(FileData, BytesAreNoTokensOfAModelThatKnowsMany) {
  DataSpec text = spec("text.txt", "the quick brown fox", tokens(4, 50257));
  EXPECT_THAT(refusal(text), AllOf(HasSubstr("text.txt: the model knows 50257 tokens"),
                                   HasSubstr("as a tokeniser makes them, in a .npy or .bin file")));
  text.bytes_are_tokens = true;
  EXPECT_EQ(load_data(text).train->inputs({0}).front()[0][0].item<int64_t>(), 't');
  EXPECT_EQ(load_data(spec("text.txt", "the quick brown fox", tokens(4, 384))).train->size(), 3);
}

TEST_F(FileData, BinaryTokensAreThoseOfNanoGptAndLlmC) {
  const auto words = [](const auto& numbers) {
    return std::string(reinterpret_cast<const char*>(numbers.data()),
                       numbers.size() * sizeof(numbers[0]));
  };
  const std::vector<uint16_t> row{50256, 1, 2, 3, 40000, 5, 6};
  const auto first = [&](const std::string& content) {
    const DataSplit data = load_data(spec("train.bin", content, tokens(2, 50257)));
    return std::pair(data.train->inputs({0}).front()[0][0].item<int64_t>(),
                     data.train->size() + data.test->size());
  };
  EXPECT_EQ(first(words(row)), std::pair(int64_t{50256}, int64_t{3})) << "nanoGPT";
  std::vector<int32_t> header(256);
  header[0] = 20240520;
  header[1] = 1;
  header[2] = 7;
  EXPECT_EQ(first(words(header) + words(row)), std::pair(int64_t{50256}, int64_t{3})) << "llm.c";
  header[0] = 20240801;
  header[1] = 7;
  const std::vector<uint32_t> wide(row.begin(), row.end());
  EXPECT_EQ(first(words(header) + words(wide)), std::pair(int64_t{50256}, int64_t{3})) << "Llama 3";
  EXPECT_THAT(refusal(spec("train.bin", "abc", tokens(2, 50257))),
              HasSubstr("train.bin: expected tokens of 2 bytes each, found 3 bytes"));
}

TEST_F(FileData, MasksPositionsAndLabelsOfTokensAreFilledIn) {
  SampleSpec sample{.inputs = {{.name = "input_ids", .shape = {3}, .type = at::kLong, .values = 9},
                               {.name = "attention_mask", .shape = {3}, .type = at::kLong},
                               {.name = "position_ids", .shape = {3}, .type = at::kLong},
                               {.name = "labels", .shape = {3}, .type = at::kLong}},
                    .targets = {.needed = false}};
  const std::string row = npy_of_int64(std::vector<int64_t>{1, 2, 3, 4, 5, 6}, "(6,)");
  const model::Tensors batch = load_data(spec("row.npy", row, sample)).train->inputs({0});
  EXPECT_TRUE(batch[0].equal(batch[3]));
  EXPECT_EQ(batch[1].sum().item<int64_t>(), 3);
  EXPECT_TRUE(batch[2][0].equal(at::arange(3, at::kLong)));
  sample.inputs[3].name = "decoder_input_ids";
  EXPECT_THAT(refusal(spec("row.npy", row, sample)), HasSubstr("'decoder_input_ids' is another"));
}

TEST(TensorData, IgnoredTargetsDoNotCount) {
  const SampleSpec sample = tokens(2, 5);
  const at::Tensor targets =
      at::tensor(std::vector<int64_t>{1, -100, 2, 3, -100, -100}).view({3, 2});
  const TensorDataset data("t", sample, {at::zeros({3, 2}, at::kLong)}, targets);
  EXPECT_EQ(data.count_targets({0}), 1);
  EXPECT_EQ(data.count_targets({2}), 0);
  EXPECT_EQ(data.count_targets({0, 1, 1}), 5);
  EXPECT_TRUE(data.bad_samples(9).empty());
  const SampleSubset some(std::make_shared<TensorDataset>(data), {1, 2});
  EXPECT_EQ(some.count_targets({0, 1}), 2);
}

}  // namespace
}  // namespace penstock::train

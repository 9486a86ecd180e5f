#include "penstock/train/data/load_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "penstock/train/checkpoint/test_folder.h"
#include "penstock/train/data/image_dataset.h"
#include "penstock/train/data/test_idx.h"
#include "penstock/util/error.h"

namespace penstock::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// Four training and two test images of 2 x 3; byte i of the training images is 10 * i.
class ImageFolder {
 public:
  ImageFolder() {
    std::string train(24, '\0');
    for (size_t i = 0; i < train.size(); ++i) train[i] = static_cast<char>(10 * i);
    write("train-images-idx3-ubyte", make_idx({4, 2, 3}, train));
    write("train-labels-idx1-ubyte.gz", gzip(make_idx({4}, std::string("\0\1\2\1", 4))));
    write("t10k-images-idx3-ubyte.gz", gzip(make_idx({2, 2, 3}, std::string(12, '\x7f'))));
    write("t10k-labels-idx1-ubyte", make_idx({2}, std::string("\2\0", 2)));
  }

  void write(const std::string& name, const std::string& content) const {
    write_test_file(folder_ / name, content);
  }
  void remove(const std::string& name) const { std::filesystem::remove(folder_ / name); }
  DataSpec spec(model::Shape shape = {}) const {
    return {.name = "idx", .folder = folder_.path(), .sample = labelled(std::move(shape), 3)};
  }
  DataSplit load(model::Shape shape = {}) const { return load_data(spec(std::move(shape))); }

 private:
  TestFolder folder_;
};

template <class Error>
std::string refusal(const DataSpec& spec) {
  return message_of<Error>([&] { load_data(spec); });
}

TEST(ImageData, SamplesAreNormalisedWithTheTrainingSet) {
  const DataSplit data = ImageFolder().load();
  EXPECT_EQ(data.train->size(), 4);
  EXPECT_EQ(data.test->size(), 2);
  EXPECT_EQ(data.train->sample().targets.classes, 3);
  EXPECT_EQ(data.train->sample().inputs.front().shape, (model::Shape{1, 2, 3}));
  const at::Tensor all = data.train->inputs({0, 1, 2, 3}).front();
  EXPECT_EQ(all.sizes(), at::IntArrayRef({4, 1, 2, 3}));
  EXPECT_NEAR(all.mean().item<double>(), 0, 1e-6);
  EXPECT_NEAR(all.std(false).item<double>(), 1, 1e-6);
  const double mean = 115;
  const double deviation = 10 * std::sqrt((24.0 * 24 - 1) / 12);
  EXPECT_NEAR(all[1][0][1][2].item<double>(), (110 - mean) / deviation, 1e-6);
  EXPECT_NEAR(data.test->inputs({1}).front()[0][0][0][0].item<double>(), (127 - mean) / deviation,
              1e-6);
}

TEST(ImageData, TargetsFollowTheIndices) {
  const DataSplit data = ImageFolder().load();
  EXPECT_TRUE(data.train->targets({3, 0, 2, 2}).equal(torch::tensor({1, 0, 2, 2}, torch::kLong)));
  EXPECT_TRUE(data.train->inputs({2, 0}).front().equal(
      at::stack({data.train->inputs({2}).front()[0], data.train->inputs({0}).front()[0]})));
  EXPECT_EQ(data.train->inputs({}).front().size(0), 0);
  EXPECT_THROW(data.train->inputs({4}), InternalError);
  EXPECT_THROW(data.train->targets({-1}), InternalError);
}

TEST(ImageData, AFlatShapeFlattens) {
  const ImageFolder folder;
  EXPECT_TRUE(folder.load({6}).train->inputs({1, 2}).front().equal(
      folder.load().train->inputs({1, 2}).front().reshape({2, 6})));
}

TEST(ImageData, PaddingIsTheValueOfABlackPixelAndTheImageIsCentred) {
  const ImageFolder folder;
  const at::Tensor plain = folder.load().train->inputs({2}).front();
  const at::Tensor padded = folder.load({1, 4, 6}).train->inputs({2}).front();
  ASSERT_EQ(padded.sizes(), at::IntArrayRef({1, 1, 4, 6}));
  EXPECT_TRUE(padded.slice(2, 1, 3).slice(3, 1, 4).equal(plain));
  const double black = folder.load().train->inputs({0}).front()[0][0][0][0].item<double>();
  EXPECT_EQ(padded[0][0][0][0].item<double>(), black);
  EXPECT_NEAR((padded.sum() - plain.sum()).item<double>(), black * 18, 1e-4);
}

TEST(ImageData, OneChannelIsRepeated) {
  const ImageFolder folder;
  const at::Tensor grey = folder.load({1, 3, 3}).train->inputs({3, 1}).front();
  EXPECT_TRUE(
      folder.load({3, 3, 3}).train->inputs({3, 1}).front().equal(grey.expand({2, 3, 3, 3})));
}

TEST(ImageData, AnImpossibleShapeIsRefusedWithThePossibleOnes) {
  const ImageFolder folder;
  for (const model::Shape& shape :
       {model::Shape{7}, {1, 1, 3}, {1, 2, 2}, {0, 2, 3}, {2, 3}, {1, 1, 2, 3}, {-1, 2, 3}}) {
    EXPECT_THAT(
        refusal<ConfigError>(folder.spec(shape)),
        AllOf(HasSubstr("2 x 3"), HasSubstr("[6]"), HasSubstr("[channels, height, width]")));
  }
  EXPECT_THAT(refusal<ConfigError>(folder.spec({INT64_MAX, INT64_MAX, INT64_MAX})),
              HasSubstr("at most"));
}

TEST(ImageData, ALimitKeepsTheFirstSamples) {
  const ImageFolder folder;
  DataSpec spec = folder.spec();
  spec.train_samples = 3;
  spec.test_samples = 1;
  const DataSplit part = load_data(spec);
  EXPECT_EQ(part.train->size(), 3);
  EXPECT_EQ(part.test->size(), 1);
  EXPECT_TRUE(part.train->inputs({2}).front().equal(folder.load().train->inputs({2}).front()));
  spec.train_samples = 5;
  EXPECT_THAT(refusal<ConfigError>(spec), AllOf(HasSubstr("at most 4"), HasSubstr("found 5")));
  spec.train_samples = -1;
  EXPECT_THAT(refusal<ConfigError>(spec), HasSubstr("found -1"));
}

TEST(ImageData, MissingDataNamesFolderAndPackage) {
  const TestFolder folder;
  const DataSpec nowhere{.name = "fashion-mnist", .folder = folder / "nowhere"};
  EXPECT_THAT(refusal<ConfigError>(nowhere),
              AllOf(HasSubstr((folder / "nowhere").string()),
                    HasSubstr("apt-get install dataset-fashion-mnist")));
  const DataSpec empty{.name = "fashion-mnist", .folder = folder.path()};
  EXPECT_THAT(refusal<ConfigError>(empty),
              AllOf(HasSubstr("train-images-idx3-ubyte"),
                    HasSubstr("apt-get install dataset-fashion-mnist")));
  const ImageFolder images;
  images.remove("t10k-labels-idx1-ubyte");
  EXPECT_THAT(refusal<ConfigError>(images.spec()), HasSubstr("t10k-labels-idx1-ubyte.gz"));
  EXPECT_THAT(refusal<ConfigError>({.name = "idx", .folder = {}}), HasSubstr("folder"));
}

TEST(ImageData, RefusesLabelsThatAreNotAClass) {
  const ImageFolder folder;
  folder.write("t10k-labels-idx1-ubyte", make_idx({2}, std::string("\0\3", 2)));
  EXPECT_THAT(
      refusal<ParseError>(folder.spec()),
      AllOf(HasSubstr("t10k-labels"), HasSubstr("label 1: expected a class from 0 to 2, found 3")));
}

TEST(ImageData, RefusesCountsThatDisagree) {
  const ImageFolder folder;
  folder.write("t10k-labels-idx1-ubyte", make_idx({3}, std::string("\0\1\1", 3)));
  EXPECT_THAT(
      refusal<ParseError>(folder.spec()),
      AllOf(HasSubstr("t10k-labels"), HasSubstr("expected 2 labels"), HasSubstr("found 3")));
}

TEST(ImageData, RefusesTestImagesOfAnotherSizeAndNoImages) {
  const ImageFolder folder;
  folder.write("t10k-images-idx3-ubyte.gz", gzip(make_idx({2, 3, 2}, std::string(12, 'x'))));
  EXPECT_THAT(refusal<ConfigError>(folder.spec()), AllOf(HasSubstr("2 x 3"), HasSubstr("3 x 2")));
  folder.write("t10k-images-idx3-ubyte.gz", gzip(make_idx({0, 2, 3}, "")));
  EXPECT_THAT(refusal<ParseError>(folder.spec()), HasSubstr("at least one image"));
}

TEST(ImageData, RefusesUnknownNames) {
  EXPECT_THAT(refusal<ConfigError>({.name = "mnist", .folder = {}}),
              AllOf(HasSubstr("'mnist'"),
                    HasSubstr("fashion-mnist, cifar10, cifar100, idx, synthetic, FILE.npz")));
}

TEST(FashionMnist, HasThePublishedSizeMeanAndDeviation) {
  if (!std::filesystem::exists("/usr/share/datasets/fashion-mnist"))
    GTEST_SKIP() << "the package dataset-fashion-mnist is not installed";
  const DataSplit data =
      load_data({.name = "fashion-mnist", .folder = {}, .sample = labelled({1, 32, 32}, 10)});
  EXPECT_EQ(data.train->size(), 60000);
  EXPECT_EQ(data.test->size(), 10000);
  EXPECT_EQ(data.train->sample().targets.classes, 10);
  // A corner of the padding is a black pixel: (0 - 0.2860) / 0.3530.
  EXPECT_NEAR(data.test->inputs({0}).front()[0][0][0][0].item<double>(), -0.2860 / 0.3530, 1e-3);
  EXPECT_TRUE(data.train->targets({0, 1, 2, 3}).equal(torch::tensor({9, 0, 0, 3}, torch::kLong)));
}

/// Image i has label i % 10 and the bytes i, i + 1, i + 2 in its three planes.
std::string cifar_file(int images, int first, bool fine = false) {
  std::string text;
  for (int i = first; i < first + images; ++i) {
    if (fine) text += '\7';
    text += static_cast<char>(i % 10);
    for (int plane = 0; plane < 3; ++plane) text.append(1024, static_cast<char>(i + plane));
  }
  return text;
}

TEST(Cifar, ReadsColoursAndNormalisesEachPlane) {
  const TestFolder folder;
  for (int part = 1; part <= 5; ++part) {
    write_test_file(folder / fmt::format("data_batch_{}.bin", part), cifar_file(2, 2 * part - 2));
  }
  write_test_file(folder / "test_batch.bin", cifar_file(3, 20));
  const DataSplit data =
      load_data({.name = "cifar10", .folder = folder.path(), .sample = labelled({3, 32, 32}, 10)});
  EXPECT_EQ(data.train->size(), 10);
  EXPECT_EQ(data.test->size(), 3);
  EXPECT_TRUE(data.train->targets({0, 9, 4}).equal(torch::tensor({0, 9, 4}, torch::kLong)));
  std::vector<int64_t> order(10);
  std::iota(order.begin(), order.end(), 0);
  const at::Tensor all = data.train->inputs(order).front();
  EXPECT_EQ(all.sizes(), at::IntArrayRef({10, 3, 32, 32}));
  for (int64_t plane = 0; plane < 3; ++plane) {
    EXPECT_NEAR(all.select(1, plane).mean().item<double>(), 0, 1e-5);
    EXPECT_NEAR(all.select(1, plane).square().mean().item<double>(), 1, 1e-5);
  }
  const DataSpec flat{.name = "cifar10", .folder = folder.path(), .sample = labelled({3072}, 10)};
  EXPECT_TRUE(load_data(flat).train->inputs({3}).front().equal(all.narrow(0, 3, 1).flatten(1)));
  const auto refused = [&](const std::string& name, model::Shape shape) {
    return refusal<ConfigError>(
        {.name = name, .folder = folder.path(), .sample = labelled(std::move(shape), 100)});
  };
  EXPECT_THAT(refused("cifar10", {1, 32, 32}), HasSubstr("3 channels"));
  EXPECT_THAT(refused("cifar100", {3, 32, 32}), HasSubstr("there is no train.bin"));
  EXPECT_THAT(refusal<ConfigError>({.name = "cifar10"}),
              HasSubstr("expected the folder that holds its binary version"));
  write_test_file(folder / "data_batch_3.bin", cifar_file(2, 0) + "x");
  EXPECT_THAT(refusal<ParseError>(flat), HasSubstr("expected images of 3073 bytes"));
  write_test_file(folder / "train.bin", cifar_file(4, 96, /*fine=*/true));
  write_test_file(folder / "test.bin", cifar_file(1, 0, /*fine=*/true));
  const DataSplit fine = load_data(
      {.name = "cifar100", .folder = folder.path(), .sample = labelled({3, 32, 32}, 100)});
  EXPECT_EQ(fine.train->targets({1}).item<int64_t>(), 7);
  std::string wrong = cifar_file(1, 0, /*fine=*/true);
  wrong[1] = 100;
  write_test_file(folder / "test.bin", wrong);
  EXPECT_THAT(
      refusal<ParseError>(
          {.name = "cifar100", .folder = folder.path(), .sample = labelled({3, 32, 32}, 100)}),
      HasSubstr("image 0: expected a class from 0 to 99, found 100"));
}

TEST(SyntheticData, SamplesDependOnSeedAndIndexOnly) {
  const DataSpec spec{
      .name = "synthetic", .folder = {}, .sample = labelled({3, 9, 7}, 4), .seed = 5};
  const DataSplit data = load_data(spec);
  EXPECT_EQ(data.train->size(), 2048);
  EXPECT_EQ(data.test->size(), 512);
  const at::Tensor batch = data.train->inputs({7, 3, 7}).front();
  EXPECT_TRUE(batch[0].equal(batch[2]));
  EXPECT_FALSE(batch[0].equal(batch[1]));
  EXPECT_TRUE(load_data(spec).train->inputs({3}).front()[0].equal(batch[1]));
  EXPECT_FALSE(data.test->inputs({7}).front()[0].equal(batch[0]));
  DataSpec other = spec;
  other.seed = 6;
  EXPECT_FALSE(load_data(other).train->inputs({7}).front()[0].equal(batch[0]));
}

TEST(SyntheticData, TheNearestClassMeanOfTheTrainingSetClassifiesTheTestSet) {
  for (const model::Shape& shape : {model::Shape{64}, {1, 28, 28}, {3, 5, 1}, {2, 3, 4, 5}}) {
    const DataSplit data = load_data({.name = "synthetic",
                                      .folder = {},
                                      .sample = labelled(shape, 10),
                                      .train_samples = 400,
                                      .test_samples = 200});
    std::vector<int64_t> order(400);
    std::iota(order.begin(), order.end(), 0);
    const at::Tensor inputs = data.train->inputs(order).front().flatten(1);
    const at::Tensor one_hot = at::one_hot(data.train->targets(order), 10).to(at::kFloat);
    const at::Tensor means = one_hot.t().matmul(inputs) / one_hot.sum(0).unsqueeze(1);
    order.resize(200);
    const at::Tensor nearest =
        at::cdist(data.test->inputs(order).front().flatten(1), means).argmin(1);
    EXPECT_GT(nearest.eq(data.test->targets(order)).to(at::kFloat).mean().item<double>(), 0.8)
        << shape;
    EXPECT_LT(inputs.abs().max().item<double>(), 4);
  }
}

TEST(SyntheticData, ALargeShapeIsNotKeptInMemory) {
  const DataSplit data = load_data({.name = "synthetic",
                                    .folder = {},
                                    .sample = labelled({3, 224, 224}, 1000),
                                    .train_samples = 1'000'000'000});
  EXPECT_EQ(data.train->inputs({999'999'999}).front().numel(), 3 * 224 * 224);
  EXPECT_EQ(data.train->targets({999'999'999}).item<int64_t>(), 999);
}

TEST(SyntheticData, RefusesInvalidSpecifications) {
  EXPECT_THAT(
      refusal<ConfigError>({.name = "synthetic", .folder = {}, .sample = labelled({0}, 10)}),
      HasSubstr("sample shape [0]"));
  EXPECT_THAT(refusal<ConfigError>(
                  {.name = "synthetic", .folder = {}, .sample = labelled({INT64_MAX, 3}, 10)}),
              HasSubstr("at most"));
  EXPECT_THAT(refusal<ConfigError>({.name = "synthetic", .folder = {}, .sample = labelled({3}, 0)}),
              HasSubstr("at least 1 class"));
  EXPECT_THAT(refusal<ConfigError>({.name = "synthetic",
                                    .folder = {},
                                    .sample = labelled({3}, 10),
                                    .train_samples = INT64_MAX}),
              HasSubstr("samples"));
}

TEST(EpochOrder, IsAPermutationThatDependsOnSeedAndEpoch) {
  const std::vector<int64_t> order = epoch_order(100, 1, 0, true);
  std::vector<int64_t> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(sorted, epoch_order(100, 1, 0, false));
  EXPECT_NE(order, sorted);
  EXPECT_EQ(order, epoch_order(100, 1, 0, true));
  EXPECT_NE(order, epoch_order(100, 1, 1, true));
  EXPECT_NE(order, epoch_order(100, 2, 0, true));
  EXPECT_TRUE(epoch_order(0, 1, 0, true).empty());
}

TEST(EpochOrder, IsTheSameOnEveryMachine) {
  EXPECT_EQ(epoch_order(8, 1, 0, true), (std::vector<int64_t>{3, 6, 5, 2, 0, 4, 7, 1}));
}

}  // namespace
}  // namespace penstock::train

#include "penstock/shard/shard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/model/sequence_builder.h"
#include "penstock/model/zoo.h"
#include "penstock/shard/tensor_shares.h"
#include "penstock/shard/testing_sharded.h"
#include "penstock/util/error.h"

namespace penstock::shard {
namespace {

using model::SequenceBuilder;
using model::Value;
using testing::expect_same;

using ModelPtr = std::shared_ptr<const model::Model>;

ModelPtr make(const model::ModelSpec& spec) {
  return std::make_shared<model::Model>(model::make_model(spec));
}

at::Tensor random_numbers(at::IntArrayRef sizes) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(11);
  return at::empty(sizes, at::kDouble).normal_(0, 1, generator);
}

at::Tensor random_tokens(at::IntArrayRef sizes, int64_t values) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(12);
  return at::empty(sizes, at::kLong).random_(0, values, generator);
}

constexpr ShardOptions kAll{.only_worthwhile = false};

TEST(Shard, ColumnThenRow) {
  const ModelPtr mlp = make({.name = "mlp", .input_shape = {20}, .classes = 12, .width = 24});
  for (const int members : {1, 2, 3, 4}) expect_same(mlp, {random_numbers({5, 20})}, members, kAll);
}

TEST(Shard, AttentionIsDividedByHeads) {
  const ModelPtr gpt = make({.name = "gpt",
                             .input_shape = {6},
                             .classes = 31,
                             .width = 32,
                             .depth = 2,
                             .heads = 4,
                             .dropout = 0.2});
  // Three members: 2, 1 and 1 heads; 11, 10 and 10 rows of the vocabulary.
  for (const int members : {2, 3, 4}) {
    expect_same(gpt, {random_tokens({3, 6}, 31)}, members, kAll);
    expect_same(gpt, {random_tokens({3, 6}, 31)}, members);
  }
}

TEST(Shard, ATransformerLayerSendsWhatTheFormulaSays) {
  // Of one block more: 8 b s h (t - 1) / t numbers (Shoeybi et al. 2019).
  constexpr int64_t kBatch = 2;
  constexpr int64_t kTime = 8;
  constexpr int64_t kWidth = 64;
  const auto bytes = [&](int64_t depth, int members) {
    const ModelPtr gpt = make({.name = "gpt",
                               .input_shape = {kTime},
                               .classes = 40,
                               .width = kWidth,
                               .depth = depth,
                               .heads = 4});
    return expect_same(gpt, {random_tokens({kBatch, kTime}, 40)}, members);
  };
  for (const int members : {2, 4}) {
    EXPECT_EQ(bytes(3, members) - bytes(2, members),
              8 * kBatch * kTime * kWidth * (members - 1) / members * int64_t{sizeof(double)});
  }
}

/// Between the layers whose weights are spread: parts of the places.
constexpr auto in_places = [](bool only_worthwhile = false) {
  return ShardOptions{.only_worthwhile = only_worthwhile, .sequence = {true}};
};

ModelPtr gpt_of(int64_t time, int64_t width, int64_t depth, double dropout = 0) {
  return make({.name = "gpt",
               .input_shape = {time},
               .classes = 40,
               .width = width,
               .depth = depth,
               .heads = 4,
               .dropout = dropout});
}

TEST(SequenceParallelism, HasTheMasksNormsAndPlacesOfTheWholeModel) {
  const ModelPtr gpt = gpt_of(12, 32, 2, 0.2);
  // Three members: 2, 1 and 1 heads.
  for (const int members : {2, 3, 4}) {
    expect_same(gpt, {random_tokens({3, 12}, 40)}, members, in_places());
    // A batch of shorter texts.
    expect_same(gpt, {random_tokens({2, 12 - members}, 40)}, members, in_places());
  }
}

TEST(SequenceParallelism, EqualValuesAreCutWhereTheyMeetParts) {
  SequenceBuilder net("sequences");
  Value x = net.linear(net.input({12, 20}), {.features = 16});
  for (int i = 0; i < 2; ++i) {
    Value y = net.gelu(net.linear(net.layer_norm(x), {.features = 24}));
    y = net.dropout(net.linear(y, {.features = 16}), 0.3);
    x = net.relu(net.add(x, y));
  }
  const ModelPtr model = std::make_shared<model::Model>(net.build(net.layer_norm(x)));
  for (const int members : {2, 3, 4})
    expect_same(model, {random_numbers({3, 12, 20})}, members, in_places());
}

TEST(SequenceParallelism, SendsAsMuchAsSumsAndTheGradientsOfNormsAndBiases) {
  // 8 b s h (t - 1) / t numbers of a block (Korthikanti et al. 2022, section 4.2.2), and the sums
  // of 6 h gradients: of two norms' weights and biases, and of two biases behind a sum.
  constexpr int64_t kBatch = 2;
  constexpr int64_t kTime = 8;
  constexpr int64_t kWidth = 64;
  const auto bytes = [&](int64_t depth, int members) {
    return expect_same(gpt_of(kTime, kWidth, depth), {random_tokens({kBatch, kTime}, 40)}, members,
                       in_places(/*only_worthwhile=*/true));
  };
  for (const int members : {2, 4}) {
    EXPECT_EQ(
        bytes(3, members) - bytes(2, members),
        (8 * kBatch * kTime + 2 * 6) * kWidth * (members - 1) / members * int64_t{sizeof(double)});
  }
}

TEST(SequenceParallelism, LengthsThatDoNotDivideAreRefused) {
  const ModelPtr gpt = gpt_of(12, 32, 1);
  const std::vector<StageId> stages(static_cast<size_t>(gpt->graph().num_layers()), StageId{0});
  EXPECT_THAT(
      [] {
        const ModelPtr odd = gpt_of(10, 32, 1);
        (void)shard(odd, std::vector<StageId>(static_cast<size_t>(odd->graph().num_layers())), {4},
                    in_places());
      },
      ::testing::ThrowsMessage<ConfigError>(::testing::HasSubstr(
          "sequences of 10 places, which stage 0's team of 4 cannot share out")));
  // At run time, on all members.
  EXPECT_THAT(
      [&] {
        expect_same(gpt, {random_tokens({3, 10}, 40)}, 4, in_places());
      },
      ::testing::ThrowsMessage<ConfigError>(
          ::testing::HasSubstr("a team of 4 cannot share out a sequence of 10 places")));
}

TEST(Shard, ConvolutionsAreDividedByChannels) {
  const ModelPtr vgg = make({.name = "vgg_small"});
  std::vector<int64_t> sizes{2};
  for (const int64_t size : vgg->input_shapes()[0]) sizes.push_back(size);
  expect_same(vgg, {random_numbers(sizes)}, 2, kAll, 1e-10);
  const ModelPtr lenet = make({.name = "lenet5"});
  for (const int members : {2, 3})
    expect_same(lenet, {random_numbers({2, 1, 28, 28})}, members, kAll);
}

TEST(Shard, SkipConnectionsKeepWhatTheyAdd) {
  expect_same(make({.name = "resnet18", .input_shape = {3, 48, 48}, .classes = 10}),
              {random_numbers({2, 3, 48, 48})}, 2, kAll, 1e-10);
}

TEST(Shard, SharedWeightsAreDividedAlike) {
  const ModelPtr tied = make({.name = "tied_mlp"});
  std::vector<int64_t> sizes{4};
  for (const int64_t size : tied->input_shapes()[0]) sizes.push_back(size);
  for (const int members : {2, 3}) expect_same(tied, {random_numbers(sizes)}, members, kAll);
}

ModelPtr lstm_of(int64_t features, int64_t time) {
  SequenceBuilder net("lstm");
  return std::make_shared<model::Model>(
      net.build(net.lstm(net.tanh(net.input({time, 10})), {.features = features})));
}

TEST(Shard, LstmsAreDividedByHiddenUnits) {
  // Three members: 5, 5 and 4 units.
  for (const int members : {2, 3, 4}) {
    expect_same(lstm_of(14, 6), {random_numbers({3, 6, 10})}, members, kAll);
    expect_same(lstm_of(14, 1), {random_numbers({3, 1, 10})}, members, kAll);
  }
  // Nobody has none.
  EXPECT_EQ(expect_same(lstm_of(3, 6), {random_numbers({3, 6, 10})}, 4, kAll), 0);
}

TEST(Shard, AnLstmMeetsAtEveryPlace) {
  // Hidden states are gathered at each place; all but the last place's gradients go the same way
  // back. The input needs none.
  constexpr int64_t kBatch = 3;
  constexpr int64_t kTime = 6;
  constexpr int64_t kUnits = 12;
  for (const int members : {2, 3, 4}) {
    EXPECT_EQ(
        expect_same(lstm_of(kUnits, kTime), {random_numbers({kBatch, kTime, 10})}, members, kAll),
        (2 * kTime - 1) * kBatch * kUnits * (members - 1) / members * int64_t{sizeof(double)});
  }
}

TEST(Shard, LanguageModelsHaveTheMasksOfTheWholeLstms) {
  const ModelPtr lm = make({.name = "awd_lm",
                            .input_shape = {5},
                            .classes = 30,
                            .width = 12,
                            .depth = 2,
                            .embedding = 8,
                            .dropout = 0.3});
  for (const int members : {2, 3, 4}) expect_same(lm, {random_tokens({3, 5}, 30)}, members, kAll);
}

TEST(Shard, TranslatorsAndCaptionsAreDivided) {
  const ModelPtr gnmt = make({.name = "gnmt8", .input_shape = {5, 4}, .classes = 30, .width = 12});
  const ModelPtr s2vt = make({.name = "s2vt",
                              .input_shape = {4, 12, 3},
                              .classes = 20,
                              .width = 10,
                              .depth = 0,
                              .embedding = 8});
  for (const int members : {2, 3}) {
    expect_same(gnmt, {random_tokens({2, 5}, 30), random_tokens({2, 4}, 30)}, members, kAll);
    expect_same(s2vt, {random_numbers({2, 4, 12}), random_tokens({2, 3}, 20)}, members, kAll);
  }
}

TEST(Shard, SmallLstmsStayWholeAsTheyMeetSoOften) {
  const auto spread = [](int64_t features) {
    const ShardedModel sharded = shard(lstm_of(features, 20), {StageId{0}, StageId{0}}, {2});
    return std::pair(sharded.shares[0].spread_numbers, sharded.shares[0].whole_layers);
  };
  EXPECT_EQ(spread(128),
            (std::pair<int64_t, std::vector<std::string>>(
                0, {"lstm_1: members would exchange 658120 numbers for each sample, for 71680 of "
                    "weights"})));
  EXPECT_EQ(spread(512).first, 4 * 512 * (512 + 10 + 2));
}

TEST(Shard, GathersOfAnLstmArePricedAsHalvesOfSums) {
  // 5 gathers of [3, 512] numbers of 4 bytes, either way; backward the input's gradient, too.
  const std::vector<profile::TensorShare> shares = tensor_shares(*lstm_of(512, 5), 3, 4);
  EXPECT_EQ(shares[1],
            (profile::TensorShare{.spread = 1,
                                  .spread_stash = 5.0 / 6,
                                  .units = 512,
                                  .sums = 3,
                                  .sum_bytes = 5 * 3 * 512 * 4 / 2,
                                  .back_sums = 3 + 1,
                                  .back_sum_bytes = 5 * 3 * 512 * 4 / 2 + 5 * 3 * 10 * 4}));
}

TEST(Shard, AStageThatCutsAPairLeavesItWhole) {
  const ModelPtr mlp = make({.name = "mlp", .input_shape = {20}, .classes = 12, .width = 24});
  std::vector<StageId> stages;
  for (const graph::LayerNode& layer : mlp->graph().layers())
    stages.push_back(StageId{layer.name == "fc1" || layer.name == "flatten" ? 0 : 1});
  const ShardedModel sharded = shard(mlp, stages, {2, 2}, kAll);
  EXPECT_EQ(sharded.shares[0].spread_numbers, 0);
  ASSERT_FALSE(sharded.shares[0].whole_layers.empty());
  EXPECT_EQ(sharded.shares[0].whole_layers[0],
            "fc1: the stage ends between the layers that would share its parts");
  EXPECT_GT(sharded.shares[1].spread_numbers, 0);
}

TEST(Shard, ReasonsNameTheHeads) {
  const ModelPtr gpt =
      make({.name = "gpt", .input_shape = {6}, .classes = 31, .width = 32, .depth = 1, .heads = 2});
  const std::vector<StageId> stages(static_cast<size_t>(gpt->graph().num_layers()), StageId{0});
  const ShardedModel sharded = shard(gpt, stages, {4}, kAll);
  EXPECT_EQ(sharded.shares[0].whole_layers,
            (std::vector<std::string>{
                "transformer.h.0.attn.c_attn: it has 2 units (heads) for 4 members",
                "transformer.h.0.attn.c_proj: add does not take parts along dimension 2"}));
}

TEST(Shard, TeamsOfTwoSizesCannotShareAWeight) {
  const ModelPtr gpt =
      make({.name = "gpt", .input_shape = {6}, .classes = 31, .width = 32, .depth = 1, .heads = 2});
  std::vector<StageId> stages(static_cast<size_t>(gpt->graph().num_layers()), StageId{0});
  stages.back() = StageId{1};
  EXPECT_THROW((void)shard(gpt, stages, {2, 1}), ConfigError);
}

}  // namespace
}  // namespace penstock::shard

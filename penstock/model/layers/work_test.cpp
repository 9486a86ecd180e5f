// Operation counts against numbers computed by hand.
#include "penstock/model/layers/work.h"

#include <gtest/gtest.h>

#include <limits>

#include "penstock/model/builder.h"
#include "penstock/model/layers/builtin.h"
#include "penstock/model/zoo.h"

namespace penstock::model {
namespace {

using detail::LayerPtr;
using profile::LayerWork;
using profile::Operation;
using profile::OperationKind;

LayerWork work_of(const LayerPtr& layer, const std::vector<Shape>& inputs, int64_t batch) {
  return layer->work(inputs, layer->output_shapes(inputs), batch);
}

Operation pass(OperationKind kind, int64_t flops, int64_t bytes) {
  Operation operation;
  operation.kind = kind;
  operation.flops = flops;
  operation.bytes = bytes;
  return operation;
}

TEST(LayerWork, StridedConvolution) {
  // 3 x 8 x 8 to 16 x 4 x 4, windows of 5 x 5: each of 256 outputs takes 75 products.
  const LayerWork work =
      work_of(detail::make_conv2d(3, {.channels = 16, .kernel = 5, .stride = 2, .padding = 2}),
              {{3, 8, 8}}, 10);
  ASSERT_EQ(work.forward.size(), 2U);
  Operation expected =
      pass(OperationKind::Convolution, 2 * 10 * 256 * 75, 4 * (10 * 192 + 16 * 75 + 10 * 256));
  expected.products_per_output = 75;
  EXPECT_EQ(work.forward[0], expected);
  EXPECT_EQ(work.forward[1], pass(OperationKind::Elementwise, 2560, 4 * 2 * 2560)) << "the bias";
  EXPECT_EQ(work.backward_inputs, (std::vector<Operation>{expected}));
  EXPECT_EQ(work.backward_weights,
            (std::vector<Operation>{expected, pass(OperationKind::Elementwise, 2560, 4 * 2560)}));
  EXPECT_EQ(work.stash_bytes, 4 * 2560);
}

TEST(LayerWork, GroupsDivideTheProducts) {
  const LayerWork work =
      work_of(detail::make_conv2d(8, {.channels = 4, .kernel = 3, .groups = 4, .bias = false}),
              {{8, 3, 3}}, 2);
  Operation expected =
      pass(OperationKind::Convolution, 2 * 2 * 4 * 18, 4 * (2 * 72 + 4 * 18 + 2 * 4));
  expected.products_per_output = 18;
  EXPECT_EQ(work.forward, (std::vector<Operation>{expected}));
}

TEST(LayerWork, SmallWindowsAtEveryPixelCanBeTransformed) {
  // 6 x 6 outputs: four tiles of 4 x 4, each 36 products per pair of channels instead of 9 per
  // output.
  const LayerWork work =
      work_of(detail::make_conv2d(8, {.channels = 16, .kernel = 3, .padding = 1, .bias = false}),
              {{8, 6, 6}}, 5);
  EXPECT_EQ(work.forward[0].flops, 2 * 5 * 36 * 9 * 8 * 16);
  EXPECT_EQ(work.forward[0].transformed_flops, 2 * 5 * 4 * 36 * 8 * 16);
  EXPECT_EQ(work.forward[0].transformed_bytes, 4 * (5 * 4 * 36 * (8 + 16) + 36 * 8 * 16));
  EXPECT_EQ(work.forward[0].products_per_output, 72);

  // Windows of 5 x 5 have tiles of 64 numbers.
  const LayerWork larger =
      work_of(detail::make_conv2d(8, {.channels = 16, .kernel = 5, .padding = 2, .bias = false}),
              {{8, 6, 6}}, 5);
  EXPECT_EQ(larger.forward[0].transformed_flops, 2 * 5 * 4 * 64 * 8 * 16);
  for (const Conv2dOptions& options :
       {Conv2dOptions{.channels = 16, .kernel = 3, .stride = 2},
        Conv2dOptions{.channels = 16, .kernel = 3, .groups = 2},
        Conv2dOptions{.channels = 16, .kernel = 1}, Conv2dOptions{.channels = 16, .kernel = 4}}) {
    EXPECT_EQ(work_of(detail::make_conv2d(8, options), {{8, 6, 6}}, 5).forward[0].transformed_flops,
              0);
  }
}

TEST(LayerWork, WindowsMayBeWiderThanHigh) {
  const LayerWork work = work_of(
      detail::make_conv2d(
          8, {.channels = 4, .kernel = 1, .bias = false, .kernel_width = 7, .padding_width = 3}),
      {{8, 5, 6}}, 2);
  EXPECT_EQ(work.forward[0].flops, 2 * 2 * 30 * 4 * (8 * 7));
  EXPECT_EQ(work.forward[0].products_per_output, 8 * 7);
  EXPECT_EQ(work.forward[0].transformed_flops, 0);
}

TEST(LayerWork, WindowsOfOnePixelGatherNothing) {
  EXPECT_EQ(work_of(detail::make_conv2d(64, {.channels = 16}), {{64, 6, 6}}, 5)
                .forward[0]
                .products_per_output,
            0);
}

TEST(LayerWork, LinearIsAMatrixProductPerRow) {
  const LayerWork work = work_of(detail::make_linear(5, {.features = 3}), {{4, 5}}, 2);
  const Operation product = pass(OperationKind::Matmul, 2 * 8 * 5 * 3, 4 * (8 * 5 + 5 * 3 + 8 * 3));
  EXPECT_EQ(work.forward, (std::vector<Operation>{product}));
  EXPECT_EQ(work.backward_inputs, (std::vector<Operation>{product}));
  EXPECT_EQ(work.backward_weights,
            (std::vector<Operation>{product, pass(OperationKind::Elementwise, 24, 4 * 24)}));
  EXPECT_EQ(work.stash_bytes, 4 * 24);
}

TEST(LayerWork, BatchNormReadsTwiceForwardAndFourTimesBackward) {
  const LayerWork work = work_of(detail::make_batch_norm2d(3, {}), {{3, 4, 4}}, 2);
  EXPECT_EQ(work.forward,
            (std::vector<Operation>{pass(OperationKind::Normalization, 96, 4 * 3 * 96)}));
  EXPECT_EQ(work.backward_weights,
            (std::vector<Operation>{pass(OperationKind::Normalization, 96, 4 * 2 * 96)}));
  EXPECT_EQ(work.backward_inputs,
            (std::vector<Operation>{pass(OperationKind::Normalization, 96, 4 * 3 * 96)}));
  EXPECT_EQ(work.stash_bytes, 4 * 96 + 2 * 4 * 3);
}

TEST(LayerWork, ElementwiseLayersCountTheirPasses) {
  struct Case {
    LayerPtr layer;
    std::vector<Shape> inputs;
    int64_t forward_bytes;
    int64_t backward_bytes;
    int64_t stash_bytes;
  };
  const std::vector<Case> cases = {
      {detail::make_relu(), {{6}}, 4 * 2 * 12, 4 * 3 * 12, 4 * 12},
      {detail::make_tanh(), {{6}}, 4 * 2 * 12, 4 * 3 * 12, 4 * 12},
      {detail::make_gelu(), {{6}}, 4 * 2 * 12, 4 * 3 * 12, 4 * 12},
      {detail::make_add(), {{6}, {6}}, 4 * 3 * 12, 0, 4 * 12},
      {detail::make_concat(2), {{1, 2}, {2, 2}}, 4 * 2 * 12, 0, 4 * 12},
      {detail::make_concat_features(2), {{2, 1}, {2, 2}}, 4 * 2 * 12, 0, 4 * 12},
      {detail::make_pad_places({.before = 1}), {{2, 3}}, 4 * (12 + 18), 0, 4 * 18},
      {detail::make_cut_places({.before = 1}), {{3, 2}}, 4 * 2 * 8, 4 * (12 + 8 + 8), 4 * 8},
      {detail::make_frames_to_sheet(1), {{2, 4}}, 4 * 2 * 16, 4 * 2 * 16, 4 * 16},
      {detail::make_sheet_to_frames(2), {{1, 4, 2}}, 4 * 2 * 16, 4 * 2 * 16, 4 * 16},
      {detail::make_reverse_sequence(), {{3, 2}, {3}}, 4 * 2 * 12, 4 * 3 * 12, 4 * 12},
      {detail::make_split(2), {{2, 3}}, 0, 4 * 2 * 12, 0},
      {detail::make_flatten(), {{2, 3}}, 0, 0, 0},
      {detail::make_dropout(0.5), {{6}}, 4 * 4 * 12, 4 * 3 * 12, 4 * 2 * 12},
      {detail::make_dropout(0), {{6}}, 0, 0, 0},
      {detail::make_locked_dropout(0.5), {{2, 3}}, 4 * (6 + 30), 4 * 30, 4 * 18},
      {detail::make_max_pool2d({.kernel = 2}),
       {{1, 4, 4}},
       4 * (32 + 8 + 16),
       4 * (8 + 16 + 64),
       4 * 24},
      {detail::make_avg_pool2d({.kernel = 2}), {{1, 4, 4}}, 4 * (32 + 8), 4 * (8 + 64), 4 * 8},
      {detail::make_adaptive_avg_pool2d(1), {{1, 4, 4}}, 4 * (32 + 2), 4 * (32 + 2), 4 * 2},
      {detail::make_adaptive_avg_pool2d(4), {{1, 4, 4}}, 0, 0, 0},
  };
  const auto total = [](const std::vector<Operation>& operations) {
    int64_t bytes = 0;
    for (const Operation& operation : operations) bytes += operation.bytes;
    return bytes;
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.layer->kind());
    const LayerWork work = work_of(c.layer, c.inputs, 2);
    EXPECT_EQ(total(work.forward), c.forward_bytes);
    EXPECT_EQ(total(work.backward_inputs), c.backward_bytes);
    EXPECT_TRUE(work.backward_weights.empty());
    EXPECT_EQ(work.stash_bytes, c.stash_bytes);
  }
}

TEST(LayerWork, EmbeddingsReadRowsAndClearTheTablesGradient) {
  const LayerWork work = work_of(detail::make_embedding({.values = 100, .features = 4}), {{3}}, 2);
  EXPECT_EQ(work.forward,
            (std::vector<Operation>{pass(OperationKind::Elementwise, 24, 4 * 2 * 24)}));
  EXPECT_EQ(work.backward_weights,
            (std::vector<Operation>{pass(OperationKind::Elementwise, 400, 4 * (2 * 24 + 400))}));
  EXPECT_TRUE(work.backward_inputs.empty());
  EXPECT_EQ(work.stash_bytes, 4 * 24);
}

TEST(LayerWork, AdditiveAttentionVisitsAllPairsOfPlaces) {
  // 2 samples, 3 targets, 5 sources, 4 numbers compared, 6 returned.
  const LayerWork work =
      work_of(detail::make_additive_attention(4), {{3, 4}, {5, 4}, {5, 6}, {5}}, 2);
  EXPECT_EQ(work.forward[0].flops, 2 * 3 * 5 * 4);
  EXPECT_EQ(work.forward[2].flops, 2 * (2 * 3 * 5 * 4));
  EXPECT_EQ(work.forward[4],
            pass(OperationKind::Matmul, 2 * 2 * 3 * 5 * 6, 2 * 4 * (3 * 5 + 5 * 6 + 3 * 6)));
  EXPECT_EQ(work.stash_bytes, 4 * (36 + 24 + 30)) << "the result, the queries, the scores";
}

TEST(LayerWork, LstmsReadTheirRecurrentWeightAtEachPlace) {
  // 2 samples, 5 places, 3 numbers become 4.
  const LayerWork work = work_of(detail::make_lstm(3, {.features = 4}), {{5, 3}}, 2);
  const Operation input = pass(OperationKind::Matmul, 2 * 10 * 3 * 16, 4 * (30 + 48 + 160));
  const Operation recurrent =
      pass(OperationKind::Matmul, 5 * 2 * 2 * 4 * 16, 5 * 4 * (8 + 64 + 32));
  const Operation at_once = pass(OperationKind::Matmul, 2 * 10 * 4 * 16, 4 * (40 + 64 + 160));
  EXPECT_EQ(work.forward[0], input);
  EXPECT_EQ(work.forward[1], recurrent);
  EXPECT_EQ(work.backward_weights[1], at_once);
  EXPECT_EQ(work.backward_inputs[1], recurrent);
  EXPECT_EQ(work.stash_bytes, 4 * 6 * 40) << "four gates, the cell and the result";
}

TEST(LayerWork, AttentionIsTwoProductsOfEachHead) {
  // 2 samples, 3 heads of 4 numbers, 5 places.
  const LayerWork work = work_of(detail::make_causal_attention({.heads = 3}), {{5, 3 * 12}}, 2);
  const Operation product =
      pass(OperationKind::Matmul, 6 * 2 * 5 * 4 * 5, 6 * 4 * (5 * 4 + 4 * 5 + 5 * 5));
  ASSERT_EQ(work.forward.size(), 3U);
  EXPECT_EQ(work.forward[0], product);
  EXPECT_EQ(work.forward[2], product);
  EXPECT_EQ(work.backward_inputs.size(), 5U);
  const LayerWork random =
      work_of(detail::make_causal_attention({.heads = 3, .dropout = 0.1}), {{5, 3 * 12}}, 2);
  EXPECT_EQ(random.stash_bytes, 4 * (2 * 5 * 12 + 3 * 6 * 25)) << "softmax, mask, their product";
}

class UserScale : public Layer {
 public:
  std::string kind() const override { return "scale"; }
  std::vector<ParameterSpec> parameters() const override {
    return {{"weight", {3}, Init::constant(1)}};
  }
  Tensors forward(TensorSpan, MutableTensorSpan, TensorSpan inputs,
                  const ForwardContext&) const override {
    return {inputs[0]};
  }
};

TEST(LayerWork, TheDefaultIsOnePassOverTheData) {
  const LayerWork work = UserScale().work({{3}}, {{3}}, 10);
  EXPECT_EQ(work.forward,
            (std::vector<Operation>{pass(OperationKind::Elementwise, 30, 4 * (30 + 3 + 30))}));
  EXPECT_EQ(work.backward_inputs,
            (std::vector<Operation>{pass(OperationKind::Elementwise, 30, 4 * (30 + 3 + 30 + 30))}));
  EXPECT_EQ(work.backward_weights,
            (std::vector<Operation>{pass(OperationKind::Elementwise, 30, 4 * (30 + 30 + 3))}));
  EXPECT_EQ(work.stash_bytes, 4 * 30);
}

TEST(LayerWork, CountsSaturate) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const Shape huge = {int64_t{1} << 20, 1000, 1000};
  const LayerWork work =
      work_of(detail::make_conv2d(int64_t{1} << 20, {.channels = 1 << 20, .kernel = 3}), {huge},
              int64_t{1} << 40);
  EXPECT_EQ(work.forward[0].flops, kMost);
  EXPECT_EQ(work.forward[0].bytes, kMost);
  EXPECT_EQ(work.stash_bytes, kMost);
}

/// Products of the forward pass of one sample.
int64_t products(const char* name) {
  const Model model = make_model({.name = name});
  int64_t flops = 0;
  for (int i = 0; i < model.graph().num_layers(); ++i) {
    std::vector<Shape> inputs;
    for (const graph::ValueRef& value : model.graph().layer(LayerId{i}).inputs) {
      inputs.push_back(value.is_model_input() ? model.input_shapes()[0]
                                              : model.output_shapes(value.layer)[0]);
    }
    for (const Operation& operation :
         model.layer(LayerId{i}).work(inputs, model.output_shapes(LayerId{i}), 1).forward) {
      if (operation.kind == OperationKind::Convolution || operation.kind == OperationKind::Matmul)
        flops += operation.flops;
    }
  }
  return flops / 2;
}

/// The numbers that are published for these networks at 224 x 224: 0.71, 15.47, 1.81 and 4.09
/// billion.
TEST(LayerWork, ProductsOfKnownNetworks) {
  EXPECT_EQ(products("alexnet"), 714'188'480);
  EXPECT_EQ(products("vgg16"), 15'470'264'320);
  EXPECT_EQ(products("resnet18"), 1'814'073'344);
  EXPECT_EQ(products("resnet50"), 4'089'184'256);
  // Of a transformer: a product per place and weight (its head is the embedding, which multiplies
  // nothing), and two per place, width and place before or behind it.
  const int64_t blocks = 4 * (12 * 256 * 256);
  EXPECT_EQ(products("gpt"), 128 * (blocks + 256 * 256) + 4 * 2 * 128 * 128 * 256);
}

}  // namespace
}  // namespace penstock::model

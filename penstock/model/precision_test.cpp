#include "penstock/model/precision.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "penstock/model/builder.h"
#include "penstock/model/zoo.h"

namespace penstock::model {
namespace {

/// A layer that libtorch does not have in 16 bits: its inverse of a matrix.
class Inverse final : public Layer {
 public:
  std::string kind() const override { return "inverse"; }
  std::vector<Shape> output_shapes(const std::vector<Shape>& inputs) const override {
    return inputs;
  }
  Tensors forward(TensorSpan, MutableTensorSpan, TensorSpan inputs,
                  const ForwardContext&) const override {
    types.push_back(inputs[0].scalar_type());
    const at::Tensor shifted = inputs[0] + 4 * at::eye(3, inputs[0].options());
    return {at::linalg_inv(shifted)};
  }
  mutable std::vector<at::ScalarType> types;
};

TEST(LayerPrecisions, AreFloat32WhereNothingHas16Bits) {
  const Model model = make_model({.name = "lenet5"});
  for (const Precision precision : {Precision::Float32, Precision::Tf32}) {
    for (const LayerPrecision& layer : layer_precisions(model, precision))
      EXPECT_EQ(layer, LayerPrecision{});
  }
}

TEST(LayerPrecisions, NormalisationKeepsFloat32Weights) {
  ModelBuilder net("normed");
  Value x = net.input({2, 6, 6});
  x = net.conv2d(x, {.channels = 4, .kernel = 3, .name = "conv"});
  x = net.relu(net.batch_norm2d(x, {.name = "norm"}));
  x = net.linear(net.flatten(x), {.features = 3, .name = "head"});
  const Model model = net.build(x);
  const auto precisions = layer_precisions(model, Precision::BFloat16);
  int norms = 0;
  for (int l = 0; l < model.graph().num_layers(); ++l) {
    const LayerPrecision& found = precisions[static_cast<size_t>(l)];
    EXPECT_EQ(found.activations, at::kBFloat16);
    const bool is_norm = model.graph().layer(LayerId{l}).kind == "batch_norm2d";
    if (is_norm) ++norms;
    EXPECT_EQ(found.weights, is_norm ? at::kFloat : at::kBFloat16)
        << model.graph().layer(LayerId{l}).name;
  }
  EXPECT_GT(norms, 0);
}

TEST(LayerPrecisions, ALayerThatDoesNotExistIn16BitsComputesInFloat32) {
  const graph::ValueRef input = graph::ValueRef::model_input(0);
  const auto graph = graph::ModelGraph::build(1, {{"inverse", "inverse", {input}, 1}},
                                              {graph::ValueRef{LayerId{0}, 0}});
  const auto layer = std::make_shared<Inverse>();
  const Model model("inverse", graph, {layer}, {{3, 3}});
  const auto precisions = layer_precisions(model, Precision::BFloat16);
  EXPECT_EQ(precisions.front(),
            (LayerPrecision{
                .activations = at::kBFloat16, .weights = at::kFloat, .computes_in_float32 = true}));
  layer->types.clear();
  const Tensors outputs =
      forward_in(precisions.front(), *layer, {}, {}, Tensors{at::rand({2, 3, 3}).to(at::kBFloat16)},
                 {.training = true, .seed = 1});
  EXPECT_EQ(layer->types, std::vector<at::ScalarType>{at::kFloat});
  EXPECT_EQ(outputs.front().scalar_type(), at::kBFloat16);
}

TEST(ForwardIn, InputsThatAreNoNumbersWithAFractionStayAsTheyAre) {
  const at::Tensor tokens = at::arange(4);
  EXPECT_TRUE(as_activation(tokens, Precision::BFloat16).is_same(tokens));
  EXPECT_EQ(as_activation(at::rand({4}), Precision::Float16).scalar_type(), at::kHalf);
  const at::Tensor numbers = at::rand({4});
  EXPECT_TRUE(as_activation(numbers, Precision::Tf32).is_same(numbers));
}

}  // namespace
}  // namespace penstock::model

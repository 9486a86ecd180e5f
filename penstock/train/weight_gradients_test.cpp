// The runtime does in action W what profiles assume. model/ cannot include runtime/, so this test
// compares the two.
#include <ATen/Functions.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include "penstock/model/builder.h"
#include "penstock/runtime/layer_tape.h"

namespace penstock::train {
namespace {

/// Every kind of layer that has weights.
model::Model weighted_layers() {
  model::ModelBuilder net("weighted");
  model::Value x =
      net.conv2d(net.input({4, 6, 6}), {.channels = 6, .kernel = 3, .padding = 1, .name = "conv"});
  x = net.conv2d(x, {.channels = 6, .kernel = 3, .groups = 2, .bias = false, .name = "groups"});
  x = net.batch_norm2d(x, {.name = "norm"});
  x = net.linear(x, {.features = 5, .name = "rows"});
  x = net.linear(net.flatten(x), {.features = 7, .name = "fc"});
  x = net.linear(x, {.features = 6, .bias = false, .name = "plain"});
  return net.build(net.linear(x, {.features = 3, .name = "transposed", .transposed = true}));
}

/// Runs I of one layer whose inputs need gradients; whether it left the gradients of all weights,
/// or of none, to W.
void expect_as_declared(const model::Model& model, LayerId id) {
  const c10::AutoGradMode with_grad(true);
  model::Tensors weights = model.initial_weights(id, 1);
  for (at::Tensor& weight : weights) weight.requires_grad_();
  model::Tensors buffers = model.initial_buffers(id);
  runtime::LayerTape tape;
  model::Tensors inputs;
  for (const graph::ValueRef& value : model.graph().layer(id).inputs) {
    model::Shape sizes = value.is_model_input() ? model.input_shapes().front()
                                                : model.output_shapes(value.layer).front();
    sizes.insert(sizes.begin(), 4);
    inputs.push_back(tape.enter(at::randn(sizes), true));
  }
  tape.use(weights);
  const model::Tensors outputs = model.layer(id).forward(weights, buffers, inputs, {});
  tape.leave(outputs);
  const auto made = tape.backward_inputs({at::ones_like(outputs.front())});
  for (size_t w = 0; w < weights.size(); ++w) {
    EXPECT_EQ(!made.weights[w].defined(), model.layer(id).weight_gradients_can_wait())
        << model.graph().layer(id).name << " " << w;
  }
}

TEST(WeightGradients, WaitInTheRuntimeWhereTheLayerSaysSo) {
  const model::Model model = weighted_layers();
  int layers = 0;
  for (int i = 0; i < model.graph().num_layers(); ++i) {
    if (model.parameter_count(LayerId{i}) == 0) continue;
    expect_as_declared(model, LayerId{i});
    ++layers;
  }
  EXPECT_EQ(layers, 7);
}

}  // namespace
}  // namespace penstock::train

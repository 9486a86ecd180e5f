// How much memory training takes at its peak, in sets of all weights.
#include <gtest/gtest.h>

#include "penstock/model/device/tensor_memory.h"
#include "penstock/runtime/test_support.h"

namespace penstock::runtime::testing {
namespace {

using plan::Strategy;

constexpr int kLayers = 8;

/// Each of kLayers layers has a segment of its own in the backward pass.
model::Model wide_model() {
  model::ModelBuilder net("wide");
  model::Value x = net.input({8});
  x = net.linear(x, {.features = 512, .bias = false, .name = "in"});
  for (int l = 0; l < kLayers; ++l)
    x = net.tanh(net.linear(x, {.features = 512, .bias = false, .name = "fc" + std::to_string(l)}));
  return net.build(net.linear(x, {.features = 4, .bias = false, .name = "out"}));
}

/// The peak of tensors while `setup` trains.
double sets_at_peak(Case setup) {
  model::count_tensor_memory();
  setup.mini_batch = 4;
  setup.samples = 16;
  setup.optimizer.weight_decay = 0;
  const model::Model model = wide_model();
  const int64_t before = model::tensor_memory().now;
  model::reset_tensor_memory_peak();
  train(model, setup);
  constexpr double kSet = 4.0 * (kLayers * 512 * 512 + 512 * 12);
  return static_cast<double>(model::tensor_memory().peak - before) / kSet;
}

TEST(StepMemory, ALayersGradientsGoBeforeThoseOfTheLayerBeforeItAreMade) {
  // Weights and momentum, and the gradient of a layer; not a third set.
  EXPECT_LT(sets_at_peak({}), 2.5);
  // A norm needs all gradients at once.
  EXPECT_GT(sets_at_peak({.norm = true}), 2.9);
}

TEST(StepMemory, APipelineThatStashesStepsIntoTheMemoryOfTheVersionThatGoes) {
  const Case setup{
      .kind = Strategy::OneFOneB, .replicas = {1, 1}, .policy = schedule::WeightPolicy::Stash};
  // The first stage, half of the weights, has a second version.
  EXPECT_LT(sets_at_peak(setup), 3.0);
}

TEST(StepMemory, ReplicasOfAProcessHaveWeightsAndStateOnce) {
  Case setup{.kind = Strategy::DataParallel, .replicas = {2}, .parts = 2};
  EXPECT_GT(sets_at_peak(setup), 5.0);
  setup.flushes = true;
  // A replica may be ahead by all its gradients.
  EXPECT_LT(sets_at_peak(setup), 4.2);
}

}  // namespace
}  // namespace penstock::runtime::testing

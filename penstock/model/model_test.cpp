#include "penstock/model/model.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <cmath>

#include "penstock/model/builder.h"
#include "penstock/util/error.h"

namespace penstock::model {
namespace {

Model two_convolutions(const std::string& first, const std::string& second) {
  ModelBuilder net("m");
  Value x = net.input({3, 8, 8});
  x = net.conv2d(x, {.channels = 3, .kernel = 3, .padding = 1, .name = first});
  x = net.conv2d(x, {.channels = 3, .kernel = 3, .padding = 1, .name = second});
  return net.build(x);
}

TEST(Model, InitialWeightsDependOnSeedAndNameOnly) {
  const Model model = two_convolutions("a", "b");
  const Model swapped = two_convolutions("b", "a");
  const Tensors a = model.initial_weights(LayerId{0}, 5);
  const Tensors b = model.initial_weights(LayerId{1}, 5);
  EXPECT_TRUE(at::equal(a[0], model.initial_weights(LayerId{0}, 5)[0]));
  EXPECT_TRUE(at::equal(a[0], swapped.initial_weights(LayerId{1}, 5)[0]));
  EXPECT_TRUE(at::equal(b[1], swapped.initial_weights(LayerId{0}, 5)[1]));
  EXPECT_FALSE(at::equal(a[0], b[0]));
  EXPECT_FALSE(at::equal(a[0], model.initial_weights(LayerId{0}, 6)[0]));
}

TEST(Model, InitialWeightsAreContiguousFloatsWithinPyTorchsBounds) {
  const Model model = two_convolutions("a", "b");
  const float bound = 1 / std::sqrt(27.0F);
  for (const at::Tensor& weight : model.initial_weights(LayerId{0}, 1)) {
    EXPECT_EQ(weight.scalar_type(), at::kFloat);
    EXPECT_TRUE(weight.is_contiguous());
    EXPECT_FALSE(weight.requires_grad());
    EXPECT_LE(weight.abs().max().item<float>(), bound);
  }
  EXPECT_GT(model.initial_weights(LayerId{0}, 1)[0].abs().max().item<float>(), 0.9F * bound);
}

TEST(Model, BatchNormStartsAsTheIdentity) {
  ModelBuilder net("m");
  const Model model = net.build(net.batch_norm2d(net.input({4, 2, 2})));
  const Tensors weights = model.initial_weights(LayerId{0}, 1);
  const Tensors buffers = model.initial_buffers(LayerId{0});
  EXPECT_TRUE(at::equal(weights[0], at::ones({4})));
  EXPECT_TRUE(at::equal(weights[1], at::zeros({4})));
  EXPECT_TRUE(at::equal(buffers[0], at::zeros({4})));
  EXPECT_TRUE(at::equal(buffers[1], at::ones({4})));
  EXPECT_EQ(model.parameter_count(), 8);
}

TEST(Model, ChecksThatCodeAndGraphAgree) {
  const Model model = two_convolutions("a", "b");
  const std::vector<std::shared_ptr<const Layer>> none;
  EXPECT_THROW(Model("m", model.graph(), none, model.input_shapes()), ConfigError);
  EXPECT_THROW(Model("m", model.graph(), {nullptr, nullptr}, model.input_shapes()), ConfigError);
  EXPECT_THROW(Model("m", graph::ModelGraph{}, none, {{1}}), ConfigError);
}

}  // namespace
}  // namespace penstock::model

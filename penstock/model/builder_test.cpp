#include "penstock/model/builder.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/model/testing_errors.h"
#include "penstock/util/error.h"

namespace penstock::model {
namespace {

using testing::HasSubstr;

/// y = w * x, as a user would write it; shapes come from the trial run.
class Scale : public Layer {
 public:
  std::string kind() const override { return "scale"; }
  std::vector<ParameterSpec> parameters() const override {
    return {{"weight", {1}, Init::constant(2)}};
  }
  Tensors forward(TensorSpan weights, MutableTensorSpan, TensorSpan inputs,
                  const ForwardContext&) const override {
    return {weights[0] * inputs[0]};
  }
};

/// A layer that throws the tensor library's error type.
class Broken : public Layer {
 public:
  std::string kind() const override { return "broken"; }
  Tensors forward(TensorSpan, MutableTensorSpan, TensorSpan inputs,
                  const ForwardContext&) const override {
    return {inputs[0].view({7, 7})};
  }
};

class Huge : public Scale {
 public:
  std::vector<ParameterSpec> parameters() const override {
    return {{"weight", {int64_t{1} << 40, int64_t{1} << 40}, Init::constant(2)}};
  }
};

class WithoutBatch : public Scale {
 public:
  Tensors forward(TensorSpan, MutableTensorSpan, TensorSpan inputs,
                  const ForwardContext&) const override {
    return {inputs[0].sum()};
  }
};

TEST(ModelBuilder, InfersShapesAsTheHeaderShows) {
  ModelBuilder net("tiny");
  Value x = net.input({1, 28, 28});
  x = net.relu(net.conv2d(x, {.channels = 16, .kernel = 3, .padding = 1}));
  const Value skip = x;
  x = net.conv2d(x, {.channels = 16, .kernel = 3, .padding = 1, .name = "second"});
  x = net.relu(net.add(x, skip));
  EXPECT_EQ(x.shape, (Shape{16, 28, 28}));
  x = net.linear(net.flatten(net.max_pool2d(x, {.kernel = 2})), {.features = 10});
  const Model model = net.build(x);

  std::vector<std::string> names;
  for (const graph::LayerNode& node : model.graph().layers()) names.push_back(node.name);
  EXPECT_EQ(names, (std::vector<std::string>{"conv2d_1", "relu_1", "second", "add_1", "relu_2",
                                             "max_pool2d_1", "flatten_1", "linear_1"}));
  EXPECT_EQ(model.graph().layer(LayerId{3}).inputs,
            (std::vector<graph::ValueRef>{{LayerId{2}, 0}, {LayerId{1}, 0}}));
  EXPECT_EQ(model.output_shapes(LayerId{7}), (std::vector<Shape>{{10}}));
  EXPECT_EQ(model.parameter_count(), 16 * 9 + 16 + 16 * 16 * 9 + 16 + 10 * 16 * 14 * 14 + 10);
}

TEST(ModelBuilder, AutomaticNamesAvoidTheUsersNames) {
  ModelBuilder net("m");
  Value x = net.input({4});
  x = net.relu(x, "relu_1");
  x = net.relu(x);
  EXPECT_EQ(net.build(x).graph().layer(LayerId{1}).name, "relu_2");
}

TEST(ModelBuilder, SplitAndConcatMakeBranches) {
  ModelBuilder net("m");
  const Value x = net.input({6, 2, 2});
  const std::vector<Value> parts = net.split(x, 3);
  ASSERT_EQ(parts.size(), 3U);
  EXPECT_EQ(parts[2].shape, (Shape{2, 2, 2}));
  EXPECT_EQ(net.concat({parts[0], x, parts[1]}).shape, (Shape{10, 2, 2}));
}

TEST(ModelBuilder, AcceptsLayersOfTheUser) {
  ModelBuilder net("m");
  const Value y = net.apply(std::make_shared<Scale>(), {net.input({3, 5})}).front();
  EXPECT_EQ(y.shape, (Shape{3, 5}));
  const Model model = net.build(y);
  EXPECT_EQ(model.parameter_count(), 1);
  EXPECT_EQ(model.initial_weights(LayerId{0}, 1)[0].item<float>(), 2);
}

TEST(ModelBuilder, NamesTheLayerThatDoesNotFit) {
  ModelBuilder net("m");
  const Value x = net.input({3, 8, 8});
  EXPECT_THAT([&] { net.conv2d(x, {.channels = 4, .kernel = 9, .name = "wide"}); },
              config_error("layer 'wide' (conv2d)"));
  EXPECT_THAT([&] { net.conv2d(x, {.channels = -1, .name = "none"}); },
              config_error("layer 'none' (conv2d): channels"));
  EXPECT_THAT([&] { net.conv2d(net.flatten(x), {.channels = 2, .name = "flat"}); },
              config_error("[192]"));
  EXPECT_THAT([&] { net.add(x, net.flatten(x), "sum"); }, config_error("layer 'sum'"));
}

TEST(ModelBuilder, TurnsTensorLibraryErrorsIntoConfigErrors) {
  ModelBuilder net("m");
  EXPECT_THAT([&] { net.apply(std::make_shared<Broken>(), {net.input({3})}, "mine"); },
              config_error("layer 'mine' (broken)"));
  EXPECT_THAT([&] { net.apply(std::make_shared<WithoutBatch>(), {net.input({3})}, "sum"); },
              config_error("batch dimension"));
}

TEST(ModelBuilder, RefusesHugeParametersWithoutAllocatingThem) {
  ModelBuilder net("m");
  EXPECT_THAT([&] { net.apply(std::make_shared<Huge>(), {net.input({3})}, "big"); },
              config_error("layer 'big': parameter 'weight'"));
}

TEST(ModelBuilder, RefusesDuplicateNames) {
  ModelBuilder net("m");
  const Value x = net.relu(net.input({3}), "same");
  EXPECT_THAT([&] { net.relu(x, "same"); }, config_error("two layers are called 'same'"));
}

TEST(ModelBuilder, RefusesValuesOfAnotherBuilder) {
  ModelBuilder one("one");
  ModelBuilder two("two");
  const Value x = one.input({3});
  two.input({3});
  EXPECT_THAT([&] { two.relu(x); }, config_error("another builder"));
  EXPECT_THAT([&] { two.build(x); }, config_error("another builder"));
  EXPECT_THAT([&] { two.relu(Value{}); }, config_error("another builder"));
}

TEST(ModelBuilder, RefusesEmptyModelsAndBadInputs) {
  ModelBuilder net("m");
  EXPECT_THROW(net.build(std::vector<Value>{}), ConfigError);
  EXPECT_THROW(net.input({3, 0}), ConfigError);
  EXPECT_THROW(net.input({-1}), ConfigError);
  EXPECT_THROW(net.input({int64_t{1} << 40, int64_t{1} << 40}), ConfigError);
  EXPECT_THROW(net.apply(nullptr, {}), ConfigError);
}

TEST(ModelBuilder, TiesShareOneWeight) {
  ModelBuilder net("tied");
  Value x = net.input({6});
  x = net.linear(x, {.features = 4, .name = "encoder"});
  x = net.linear(x, {.features = 6, .name = "decoder", .transposed = true});
  x = net.linear(x, {.features = 4, .name = "again"});
  net.tie("decoder", "weight", "encoder", "weight");
  net.tie("again", "weight", "decoder", "weight");
  const Model model = net.build(x);
  EXPECT_EQ(model.graph().owner({LayerId{2}, 0}), (graph::ParameterRef{LayerId{0}, 0}))
      << "a tie to a tied weight is one to its owner";
  EXPECT_EQ(model.parameter_count(), 24 + 4 + 6 + 4);
  EXPECT_EQ(model.parameter_count(LayerId{1}), 24 + 6);
  EXPECT_EQ(model.tied_bytes(LayerId{1}), (std::vector<int64_t>{96}));
  const Tensors owned = model.initial_weights(LayerId{0}, 5);
  const Tensors borrowed = model.initial_weights(LayerId{1}, 5);
  EXPECT_TRUE(at::equal(owned[0], borrowed[0]));
  EXPECT_NE(owned[0].data_ptr(), borrowed[0].data_ptr());
  const at::Tensor samples = at::rand({3, 4});
  Tensors none;
  const Tensors outputs =
      model.layer(LayerId{1}).forward(borrowed, none, std::vector<at::Tensor>{samples}, {});
  EXPECT_TRUE(at::allclose(outputs[0], samples.matmul(owned[0]) + borrowed[1]));
}

TEST(ModelBuilder, RefusesTiesThatDoNotFit) {
  ModelBuilder net("tied");
  Value x = net.input({6});
  x = net.linear(x, {.features = 6, .name = "a"});
  x = net.linear(x, {.features = 6, .name = "b"});
  x = net.linear(x, {.features = 5, .name = "c"});
  EXPECT_THAT([&] { net.tie("q", "weight", "a", "weight"); }, config_error("no layer 'q'"));
  EXPECT_THAT([&] { net.tie("b", "scale", "a", "weight"); },
              config_error("has no parameter 'scale'"));
  EXPECT_THAT([&] { net.tie("a", "weight", "b", "weight"); }, config_error("earlier layer"));
  EXPECT_THAT([&] { net.tie("a", "weight", "a", "weight"); }, config_error("earlier layer"));
  EXPECT_THAT([&] { net.tie("c", "weight", "a", "weight"); },
              config_error("they cannot be one weight"));
  net.tie("b", "weight", "a", "weight");
  EXPECT_THAT([&] { net.tie("b", "weight", "a", "weight"); }, config_error("already tied"));
}

}  // namespace
}  // namespace penstock::model

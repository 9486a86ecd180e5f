#include "penstock/model/parameter_optimizers.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "penstock/model/builder.h"
#include "penstock/util/error.h"

namespace penstock::model {
namespace {

using testing::HasSubstr;

/// Layers "in", "tanh", "out"; the weight of `out` may be that of `in`.
Model two_layers(bool tied = false) {
  ModelBuilder net("two");
  Value x = net.input({4});
  x = net.tanh(net.linear(x, {.features = 4, .name = "in"}), "tanh");
  x = net.linear(x, {.features = 4, .name = "out"});
  if (tied) net.tie("out", "weight", "in", "weight");
  return net.build(x);
}

/// One step from 1 with gradient 1 and rate 0.5.
double stepped(const Optimizer& optimizer) {
  at::Tensor weight = at::ones({1});
  at::Tensor next = at::empty({1});
  optimizer.step(weight, at::ones({1}), next, {}, {.learning_rate = 0.5, .step = 1});
  return next.item<double>();
}

TEST(ParameterOptimizers, AGroupHasItsRateAndItsDecay) {
  const Model model = two_layers();
  const OptimizerSpec spec{.kind = OptimizerKind::Sgd,
                           .momentum = 0,
                           .weight_decay = 1,
                           .groups = {{{"in.weight", "out.weight"}, 0.5, 3},
                                      {{"in.bias", "out.bias", "somewhere.else"}, 1, 0}}};
  const ParameterOptimizers optimizers(model, spec);
  for (const char* name : {"in", "out"}) {
    const LayerId layer = model.graph().find(name);
    EXPECT_EQ(stepped(optimizers.of({layer, 0})), 1 - 0.25 * (1 + 3));
    EXPECT_EQ(stepped(optimizers.of({layer, 1})), 1 - 0.5);
  }
  EXPECT_EQ(stepped(optimizers.general()), 1 - 0.5 * (1 + 1));
}

TEST(ParameterOptimizers, WithoutGroupsThereIsOne) {
  const Model model = two_layers();
  const ParameterOptimizers optimizers(model, {});
  EXPECT_EQ(&optimizers.of({model.graph().find("out"), 1}), &optimizers.general());
}

TEST(ParameterOptimizers, ATiedParameterHasTheGroupOfItsOwner) {
  const Model model = two_layers(/*tied=*/true);
  const ParameterOptimizers optimizers(
      model, {.groups = {{{"in.weight"}, 1, 0}, {{"in.bias", "out.bias"}, 2, 0}}});
  EXPECT_EQ(&optimizers.of({model.graph().find("out"), 0}),
            &optimizers.of({model.graph().find("in"), 0}));
  EXPECT_NE(&optimizers.of({model.graph().find("out"), 0}),
            &optimizers.of({model.graph().find("out"), 1}));
}

std::string refusal(const OptimizerSpec& spec) {
  try {
    const ParameterOptimizers optimizers(two_layers(), spec);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(ParameterOptimizers, EachParameterIsInOneGroup) {
  EXPECT_THAT(refusal({.groups = {{{"in.weight", "in.bias", "out.weight"}, 1, 0}}}),
              HasSubstr("'out.bias' is in no group"));
  EXPECT_THAT(refusal({.groups = {{{"in.weight"}, 1, 0}, {{"in.weight"}, 1, 0}}}),
              HasSubstr("'in.weight' is in two groups"));
  EXPECT_THAT(refusal({.groups = {{{}, -1, 0}}}), HasSubstr("found -1"));
  EXPECT_THAT(refusal({.groups = {{{}, 1, -1}}}), HasSubstr("weight decay"));
}

Model three_layers() {
  ModelBuilder net("three");
  Value x = net.input({4});
  for (const char* name : {"in", "hidden", "out"}) x = net.linear(x, {.features = 4, .name = name});
  return net.build(x);
}

TEST(ParameterOptimizers, MuonStepsHiddenMatricesAndAdamWTheRest) {
  const Model model = three_layers();
  const ParameterOptimizers optimizers(model, usual_spec(OptimizerKind::Muon));
  const auto is_matrix = [&](const char* layer, int parameter) {
    return optimizers.of({model.graph().find(layer), parameter}).spec().as_matrix;
  };
  EXPECT_TRUE(is_matrix("hidden", 0));
  EXPECT_FALSE(is_matrix("hidden", 1)) << "a bias";
  EXPECT_FALSE(is_matrix("in", 0));
  EXPECT_FALSE(is_matrix("out", 0));
}

TEST(ParameterOptimizers, SoapStepsAllMatrices) {
  const Model model = three_layers();
  const ParameterOptimizers optimizers(model, usual_spec(OptimizerKind::Soap));
  for (const char* layer : {"in", "hidden", "out"}) {
    EXPECT_TRUE(optimizers.of({model.graph().find(layer), 0}).spec().as_matrix) << layer;
    EXPECT_FALSE(optimizers.of({model.graph().find(layer), 1}).spec().as_matrix) << layer;
  }
}

TEST(ParameterOptimizers, GroupsSayWhatMuonSteps) {
  const Model model = two_layers();
  OptimizerSpec spec = usual_spec(OptimizerKind::Muon);
  spec.groups = {{{"in.weight", "out.weight"}, 1, 0}, {{"in.bias", "out.bias"}, 0.5, 0, true}};
  const ParameterOptimizers optimizers(model, spec);
  EXPECT_TRUE(optimizers.of({model.graph().find("out"), 0}).spec().as_matrix);
  EXPECT_FALSE(optimizers.of({model.graph().find("out"), 1}).spec().as_matrix);
  spec.groups = {{{"in.weight", "in.bias", "out.weight", "out.bias"}, 1, 0}};
  EXPECT_THAT(refusal(spec), HasSubstr("muon is for matrices; 'in.bias' has"));
}

TEST(ParameterOptimizers, CountTheStateOfAModel) {
  const Model model = three_layers();
  const auto kept = [&](OptimizerKind kind) { return state_per_weight(model, usual_spec(kind)); };
  EXPECT_EQ(kept(OptimizerKind::Sgd), 1);
  EXPECT_EQ(kept(OptimizerKind::Adam), 2);
  EXPECT_EQ(kept(OptimizerKind::RmsProp), 1);
  // Of 60 numbers 16 are a hidden matrix.
  EXPECT_DOUBLE_EQ(kept(OptimizerKind::Muon), (16 + 2.0 * 44) / 60);
  // Of three matrices [4, 4] six such matrices, of the biases two vectors.
  EXPECT_DOUBLE_EQ(kept(OptimizerKind::Soap), (6 * 48 + 2.0 * 12) / 60);
  // Four rows and four columns of each matrix; all numbers of a bias.
  EXPECT_DOUBLE_EQ(kept(OptimizerKind::Adafactor), (3 * 8 + 12) / 60.0);
}

}  // namespace
}  // namespace penstock::model

#include "penstock/exported/adapters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "penstock/util/error.h"

namespace penstock::exported {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using Names = std::vector<std::string>;

Program program_of(const std::string& name) {
  return read_program(std::string(PENSTOCK_TEST_DATA) + "/" + name + ".pt2");
}

/// The modules that have adapters then.
Names modules(const std::string& name, const Names& targets) {
  Program program = program_of(name);
  return add_adapters(program, {.rank = 2, .targets = targets}).modules;
}

std::string refusal(Program program, const AdapterSpec& spec) {
  try {
    add_adapters(program, spec);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "nothing was refused";
}
std::string refusal(const std::string& name, const AdapterSpec& spec) {
  return refusal(program_of(name), spec);
}

Names trained(const Program& program) {
  Names names;
  for (const auto& [name, tensor] : program.tensors) {
    if (tensor.is_parameter && tensor.meta.requires_grad) names.push_back(name);
  }
  return names;
}

TEST(Adapters, StandBesideTheirProductsAndAloneAreTrained) {
  Program program = program_of("tokens");
  const size_t before = program.graph.nodes.size();
  const Adapted adapted =
      add_adapters(program, {.rank = 2, .alpha = 6, .targets = {"blocks.1.up", "blocks.0.out"}});
  EXPECT_THAT(adapted.modules, ElementsAre("blocks.0.out", "blocks.1.up"));
  EXPECT_FALSE(adapted.has_transposed);
  EXPECT_THAT(trained(program), ElementsAre("base_model.model.blocks.0.out.lora_A.weight",
                                            "base_model.model.blocks.0.out.lora_B.weight",
                                            "base_model.model.blocks.1.up.lora_A.weight",
                                            "base_model.model.blocks.1.up.lora_B.weight"));
  const StoredTensor& a = program.tensors.at("base_model.model.blocks.1.up.lora_A.weight");
  EXPECT_EQ(a.meta.sizes, (std::vector<SymbolicInt>{{.value = 2}, {.value = 16}}));
  EXPECT_EQ(a.begins_within, 0.25);  // 1 / sqrt(16)
  EXPECT_EQ(program.tensors.at("base_model.model.blocks.1.up.lora_B.weight").begins_within, 0.0);
  EXPECT_EQ(program.inputs.size(), program.graph.inputs.size());
  ASSERT_EQ(program.graph.nodes.size(), before + 8);
  const auto& nodes = program.graph.nodes;
  const auto product = std::find_if(nodes.begin(), nodes.end(), [](const Node& node) {
    return !node.modules.empty() && node.modules.back().path == "blocks.0.out";
  });
  Names targets;
  for (auto node = product; node != product + 5; ++node) targets.push_back(node->target);
  EXPECT_THAT(targets, ElementsAre("torch.ops.aten.linear.default", "torch.ops.aten.linear.default",
                                   "torch.ops.aten.linear.default", "torch.ops.aten.mul.Tensor",
                                   "torch.ops.aten.add.Tensor"));
  EXPECT_EQ(std::get<double>((product + 3)->inputs[1].value), 3.0);
  EXPECT_EQ((product + 1)->modules.back().path, "blocks.0.out.lora_A");
  const TensorMeta& made =
      program.graph.tensors.at(std::get<TensorArgument>((product + 1)->outputs[0]).name);
  ASSERT_EQ(made.sizes.size(), 3u);
  EXPECT_FALSE(made.sizes[0].is_number());
  EXPECT_EQ(made.strides, (std::vector<SymbolicInt>{{.value = 16}, {.value = 2}, {.value = 1}}));
}

TEST(Adapters, OfAScaleOfOneAddAsTheyAre) {
  Program program = program_of("tokens");
  const size_t before = program.graph.nodes.size();
  add_adapters(program, {.rank = 8, .alpha = 8, .targets = {"blocks.0.out"}});
  EXPECT_EQ(program.graph.nodes.size(), before + 3);
}

TEST(Adapters, ATargetIsTheEndOfAPathOrAPattern) {
  EXPECT_THAT(modules("tokens", {"qkv"}), ElementsAre("blocks.0.qkv", "blocks.1.qkv"));
  EXPECT_THAT(modules("tokens", {"1.qkv", "blocks.0.up"}),
              ElementsAre("blocks.0.up", "blocks.1.qkv"));
  EXPECT_THAT(modules("tokens", {"blocks.*.u*"}), ElementsAre("blocks.0.up", "blocks.1.up"));
  EXPECT_THAT(modules("tokens", {"0.*"}),
              ElementsAre("blocks.0.qkv", "blocks.0.out", "blocks.0.up", "blocks.0.down"));
  // Not the head: it is the last one, and its weight is the embedding's, too.
  EXPECT_EQ(modules("tokens", {"all-linear"}).size(), 8u);
  // `up` and `down` share a weight, `head` is the last one.
  EXPECT_THAT(modules("transformer", {"all-linear"}), ElementsAre("qkv", "out"));
  EXPECT_THAT(parse_adapter_targets("q_proj,v*"), ElementsAre("q_proj", "v*"));
  EXPECT_THROW(parse_adapter_targets("q_proj,,v"), ConfigError);
  EXPECT_THROW(parse_adapter_targets(""), ConfigError);
}

TEST(Adapters, WhatCannotHaveOneIsRefusedWithItsName) {
  EXPECT_THAT(refusal("tokens", {.rank = 2, .targets = {"qvk"}}),
              AllOf(HasSubstr("tokens.pt2"), HasSubstr("'qvk' means none of its 9 linear modules"),
                    HasSubstr("there are qkv, ")));
  EXPECT_THAT(refusal("tokens", {.rank = 2, .targets = {"kv"}}), HasSubstr("means none"));
  EXPECT_THAT(refusal("tokens", {.rank = 2, .targets = {"qkv", "norm1"}}),
              HasSubstr("'blocks.0.norm1', whose weight torch.ops.aten.layer_norm.default reads"));
  EXPECT_THAT(refusal("cnn", {.rank = 2, .targets = {"conv1"}}), HasSubstr("conv2d"));
  EXPECT_THAT(refusal("tokens", {.rank = 2, .targets = {"head"}}),
              HasSubstr("the weight of 'head' is read elsewhere, too"));
  EXPECT_THAT(refusal("transformer", {.rank = 2, .targets = {"up"}}),
              HasSubstr("'up' has the weight of 'down'"));
  EXPECT_THAT(refusal("transformer", {.rank = 2, .targets = {"down"}}), HasSubstr("tied"));
  EXPECT_THAT(refusal("counted", {.rank = 2, .targets = {"all-linear"}}),
              HasSubstr("no linear modules beside the last one"));
  EXPECT_THAT(refusal("tokens", {.rank = 0, .targets = {"qkv"}}),
              HasSubstr("must be at least 1, found 0"));
  EXPECT_THAT(refusal("tokens", {.rank = 17, .targets = {"qkv"}}),
              HasSubstr("17 is more than that of the weight of 'blocks.0.qkv', 48 x 16: expected "
                        "1 to 16"));
}

TEST(Adapters, AreNotAddedTwice) {
  Program program = program_of("tokens");
  add_adapters(program, {.rank = 2, .targets = {"qkv"}});
  EXPECT_THAT(refusal(program, {.rank = 2, .targets = {"blocks.0.up"}}),
              HasSubstr("has adapters already"));
}

}  // namespace
}  // namespace penstock::exported

#include "penstock/imported/import_model.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/version.h>

#include <unistd.h>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "penstock/imported/known_operators.h"
#include "penstock/imported/special_operators.h"
#include "penstock/model/analytic_profile.h"
#include "penstock/model/counts_targets.h"
#include "penstock/model/device/testing_other_device.h"
#include "penstock/model/precision.h"
#include "penstock/model/profiler.h"
#include "penstock/util/error.h"
#include "penstock/util/files/files.h"
#include "penstock/util/files/safetensors.h"
#include "penstock/util/numbers/rng.h"
#include "penstock/util/process/processor.h"

namespace penstock::imported {
namespace {

using model::Model;
using model::Tensors;
using testing::HasSubstr;

std::string fixture(const std::string& name) {
  return std::string(PENSTOCK_TEST_DATA) + "/" + name;
}

std::map<std::string, at::Tensor> read_tensors(const std::string& path) {
  const std::string bytes = read_file(path);
  const int64_t header = safetensors_header_bytes(bytes, static_cast<int64_t>(bytes.size()), path);
  std::map<std::string, at::Tensor> tensors;
  for (const TensorInfo& info : parse_safetensors(bytes, path)) {
    at::Tensor tensor = at::empty(info.shape, at::kFloat);
    std::memcpy(tensor.data_ptr(), bytes.data() + kSafetensorsLengthBytes + header + info.begin,
                static_cast<size_t>(info.end - info.begin));
    tensors[info.name] = tensor;
  }
  return tensors;
}

/// The whole model as one function, layer by layer, with weights of its own.
struct Whole {
  explicit Whole(const Model& model) : model(model) {
    for (int i = 0; i < model.graph().num_layers(); ++i) {
      weights.push_back(model.initial_weights(LayerId{i}, 1));
      buffers.push_back(model.initial_buffers(LayerId{i}));
      for (const graph::WeightTie& tie : model.graph().layer(LayerId{i}).ties) {
        weights.back()[static_cast<size_t>(tie.parameter)] =
            weights[tie.owner.layer.index()][static_cast<size_t>(tie.owner.parameter)];
      }
      for (at::Tensor& weight : weights.back()) weight.requires_grad_();
    }
  }

  void move_to(at::Device device) {
    std::map<c10::TensorImpl*, at::Tensor> moved;  // a tied weight stays one
    for (auto* tensors : {&weights, &buffers}) {
      for (Tensors& of_layer : *tensors) {
        for (at::Tensor& tensor : of_layer) {
          const auto [entry, is_new] = moved.try_emplace(tensor.unsafeGetTensorImpl());
          if (is_new)
            entry->second = tensor.detach().to(device).requires_grad_(tensor.requires_grad());
          tensor = entry->second;
        }
      }
    }
  }

  at::Tensor forward(const Tensors& batch, const model::ForwardContext& context) {
    std::vector<Tensors> values;
    for (int i = 0; i < model.graph().num_layers(); ++i) {
      Tensors inputs;
      for (const graph::ValueRef value : model.graph().layer(LayerId{i}).inputs) {
        inputs.push_back(value.is_model_input()
                             ? batch.at(static_cast<size_t>(value.output))
                             : values[value.layer.index()][static_cast<size_t>(value.output)]);
      }
      values.push_back(
          model.layer(LayerId{i})
              .forward(weights[static_cast<size_t>(i)], buffers[static_cast<size_t>(i)], inputs,
                       {context.training, derive_seed(context.seed, static_cast<uint64_t>(i)),
                        context.device}));
    }
    const graph::ValueRef output = model.graph().outputs().front();
    return values[output.layer.index()][static_cast<size_t>(output.output)];
  }

  const Model& model;
  std::vector<Tensors> weights;
  std::vector<Tensors> buffers;
};

void expect_close(const at::Tensor& found, const at::Tensor& expected, const std::string& what) {
  ASSERT_EQ(found.sizes(), expected.sizes()) << what;
  ASSERT_EQ(found.device(), expected.device()) << what;
  const double difference = (found - expected).abs().max().item<double>();
  const double size = std::max(1.0, expected.abs().max().item<double>());
  EXPECT_LE(difference, 1e-5 * size) << what;
}

class Imported : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Models, Imported,
                         testing::Values("cnn", "branches", "transformer", "tokens", "extremes"),
                         [](const auto& info) { return info.param; });

/// `path` without its ending: .pt2 beside .safetensors, as make_fixtures.py writes them.
void expect_as_in_pytorch(const std::string& path, at::Device device = at::kCPU) {
  const Model model = import_model(path + ".pt2");
  auto expected = read_tensors(path + ".safetensors");
  for (auto& [name, tensor] : expected) tensor = tensor.to(device);
  Whole whole(model);
  if (!device.is_cpu()) whole.move_to(device);
  Tensors batch;
  for (const model::InputSpec& input : model.inputs())
    batch.push_back(expected[fmt::format("input.{}", batch.size())].to(input.type));
  const at::Tensor output = whole.forward(batch, {.training = true, .seed = 1, .device = device});
  expect_close(output, expected["output"], "output");
  (output * expected["mask"]).sum().backward();
  size_t compared = 0;
  for (int i = 0; i < model.graph().num_layers(); ++i) {
    const auto specs = model.layer(LayerId{i}).parameters();
    for (size_t p = 0; p < specs.size(); ++p) {
      ASSERT_TRUE(expected.contains("grad." + specs[p].key)) << specs[p].key;
      expect_close(whole.weights[static_cast<size_t>(i)][p].grad(),
                   expected["grad." + specs[p].key], specs[p].key);
      ++compared;
    }
    const auto kept = model.layer(LayerId{i}).buffers();
    for (size_t b = 0; b < kept.size(); ++b) {
      expect_close(whole.buffers[static_cast<size_t>(i)][b], expected["after." + kept[b].key],
                   kept[b].key);
    }
  }
  EXPECT_GE(compared, 6u);
}

TEST_P(Imported, ComputesWhatPyTorchDoes) { expect_as_in_pytorch(fixture(GetParam())); }

TEST_P(Imported, RunsOnOtherDevices) {
  expect_as_in_pytorch(fixture(GetParam()), model::other_device());
}

/// Further models, too large for the repository: PENSTOCK_MODELS names a folder of them.
TEST(ImportModel, FurtherModelsComputeWhatPyTorchDoes) {
  const char* folder = std::getenv("PENSTOCK_MODELS");
  if (folder == nullptr) GTEST_SKIP() << "no folder in PENSTOCK_MODELS";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".safetensors") continue;
    SCOPED_TRACE(entry.path().string());
    expect_as_in_pytorch(std::filesystem::path(entry.path()).replace_extension().string());
  }
}

TEST_P(Imported, TakesBatchesOfAnySize) {
  const Model model = import_model(fixture(GetParam() + ".pt2"));
  Whole whole(model);
  const at::NoGradGuard no_grad;
  for (const int64_t batch : {1, 5}) {
    Tensors inputs;
    model::Shape expected = model.output_shape();
    expected.insert(expected.begin(), batch);
    for (const model::InputSpec& input : model.inputs()) {
      model::Shape sizes = input.shape;
      sizes.insert(sizes.begin(), batch);
      inputs.push_back(at::ones(sizes, at::TensorOptions().dtype(input.type)));
    }
    EXPECT_EQ(whole.forward(inputs, {.training = false}).sizes(), at::IntArrayRef(expected));
  }
}

TEST(ImportModel, InputsHaveNamesTypesAndTables) {
  const Model model = import_model(fixture("tokens.pt2"));
  ASSERT_EQ(model.inputs().size(), 2u);
  EXPECT_EQ(model.inputs()[0].name, "input_ids");
  EXPECT_EQ(model.inputs()[0].type, at::kLong);
  EXPECT_EQ(model.inputs()[0].shape, (model::Shape{8}));
  EXPECT_EQ(model.inputs()[0].values, 16);
  EXPECT_EQ(model.inputs()[1].name, "attention_mask");
  EXPECT_EQ(model.inputs()[1].values, 0);
  EXPECT_EQ(model.output_shape(), (model::Shape{8, 16}));
  EXPECT_FALSE(model.returns_loss());
}

TEST(ImportModel, MasksDoNotCross) {
  const Model model = import_model(fixture("tokens.pt2"));
  // Each block makes the mask itself, so the blocks can be cut apart.
  std::vector<std::string> readers;
  for (const graph::LayerNode& layer : model.graph().layers()) {
    for (const graph::ValueRef value : layer.inputs) {
      if (value.is_model_input() && value.output == 1) readers.push_back(layer.name);
    }
  }
  EXPECT_EQ(readers.size(), 2u) << testing::PrintToString(readers);
  EXPECT_GE(model.graph().num_layers(), 10);
}

TEST(ImportModel, AProgramMayReturnItsLoss) {
  const Model model = import_model(fixture("ownloss.pt2"));
  EXPECT_TRUE(model.returns_loss());
  EXPECT_TRUE(model.output_shape().empty());
  EXPECT_EQ(model.inputs()[1].name, "labels");
  Whole whole(model);
  const at::Tensor ids = at::arange(24, at::kLong).view({3, 8}).remainder(16);
  const at::Tensor output = whole.forward({ids, ids}, {.training = true});
  EXPECT_EQ(output.sizes(), at::IntArrayRef({3}));
  EXPECT_EQ(output[0].item<float>(), output[2].item<float>());
  EXPECT_NEAR(output[0].item<float>(), std::log(16), 2);
}

TEST(ImportModel, TheTargetsOfItsLossAreCounted) {
  const Model model = import_model(fixture("ownloss.pt2"));
  const model::TargetCount count = model::target_count(model);
  ASSERT_TRUE(count);
  const at::Tensor ids = at::arange(24, at::kLong).view({3, 8}).remainder(16);
  at::Tensor labels = ids.clone();
  // The program compares each place with the next label: the first one of a sample is not read.
  EXPECT_EQ(count({ids, labels}), 21);
  labels[0].slice(0, 0, 3).fill_(-100);
  labels[1].fill_(-100);
  EXPECT_EQ(count({ids, labels}), 5 + 7);
  EXPECT_EQ(count({ids.slice(0, 1, 2), labels.slice(0, 1, 2)}), 0);
  EXPECT_FALSE(model::target_count(import_model(fixture("tokens.pt2"))));
}

TEST(ImportModel, TheNumberOfTargetsIsCounted) {
  const Model model = import_model(fixture("counted.pt2"));
  ASSERT_EQ(model.inputs().size(), 2u);  // it is none of them
  const model::TargetCount count = model::target_count(model);
  ASSERT_TRUE(count);
  Whole whole(model);
  const at::Tensor ids = at::arange(24, at::kLong).view({3, 8}).remainder(16);
  at::Tensor labels = ids.clone();
  labels[0].slice(0, 0, 3).fill_(-100);
  labels[1].fill_(-100);
  EXPECT_EQ(count({ids, labels}), 5 + 7);
  const auto loss_of = [&](int64_t begin, int64_t end) {
    const Tensors rows = {ids.slice(0, begin, end), labels.slice(0, begin, end)};
    return whole.forward(rows, {.training = true})[0].item<double>();
  };
  EXPECT_NEAR(loss_of(0, 3), (loss_of(0, 1) * 5 + loss_of(2, 3) * 7) / 12, 1e-6);
  EXPECT_EQ(loss_of(1, 2), 0);
}

/// libtorch 2 has derivatives of these: they are what is written out for 1.13.
TEST(ImportModel, WhatIsWrittenOutIsTheOperator) {
  if (TORCH_VERSION_MAJOR < 2) GTEST_SKIP() << "this libtorch has no derivatives of them";
  const auto expect_same = [](const std::string& name, std::vector<c10::IValue> arguments) {
    SCOPED_TRACE(name);
    const std::string target = "torch.ops.aten." + name + ".default";
    const auto run = [&](const auto& call) {
      const at::Tensor self = at::arange(48, at::kFloat).sin().view({2, 4, 6}).requires_grad_();
      arguments[0] = self;
      std::vector<c10::IValue> results = call(arguments);
      at::Tensor sum = at::zeros({});
      for (const c10::IValue& result : results)
        sum = sum +
              (result.toTensor() * at::arange(result.toTensor().numel()).view_as(result.toTensor()))
                  .sum();
      sum.backward();
      results.emplace_back(self.grad());
      return results;
    };
    const auto expected = run([&](std::vector<c10::IValue> stack) {
      find_operator(target)->callBoxed(stack);
      return stack;
    });
    const auto found = run([&](const auto& stack) { return written_out(target)(stack); });
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i)
      EXPECT_TRUE(found[i].toTensor().equal(expected[i].toTensor())) << i;
  };
  const int64_t one = 1;
  expect_same("aminmax", {{}, one, false});
  expect_same("aminmax", {{}, {}, true});
  expect_same("channel_shuffle", {{}, int64_t{2}});
  expect_same("narrow_copy", {{}, one, one, int64_t{3}});
  EXPECT_EQ(written_out("torch.ops.aten.amin.default"), nullptr);
}

TEST(ImportModel, LayersAreNamedAfterModules) {
  const Model model = import_model(fixture("cnn.pt2"));
  EXPECT_EQ(model.name(), "cnn");
  EXPECT_EQ(model.input_shapes().front(), (model::Shape{1, 28, 28}));
  std::vector<std::string> names;
  for (const auto& layer : model.graph().layers()) names.push_back(layer.name + ":" + layer.kind);
  EXPECT_THAT(names, testing::IsSupersetOf({"conv1:conv2d", "norm:batch_norm", "fc:linear"}));
  EXPECT_EQ(model.parameter_count(), 40 + 8 + 144 + 1970);
}

TEST(ImportModel, ValuesThatChangeInPlaceDoNotCross) {
  const Model model = import_model(fixture("cnn.pt2"));
  for (const auto& layer : model.graph().layers()) {
    // relu_ works on what the convolution made: one layer.
    if (layer.name.starts_with("block")) {
      EXPECT_EQ(layer.kind, "conv2d");
    }
    EXPECT_NE(layer.kind, "relu_");
  }
}

TEST(ImportModel, AWeightUsedTwiceIsTied) {
  const Model model = import_model(fixture("transformer.pt2"));
  size_t ties = 0;
  for (const auto& layer : model.graph().layers()) ties += layer.ties.size();
  EXPECT_EQ(ties, 1u);
  EXPECT_EQ(model.parameter_count(),
            16 * 49 + 16 + 16 + 17 * 16 + 32 + 48 * 17 + 16 * 17 + 32 + 16 * 17 + 16 + 170);
}

TEST(ImportModel, WorkIsCountedFromShapes) {
  const Model model = import_model(fixture("cnn.pt2"));
  const LayerId conv = model.graph().find("conv1");
  const profile::LayerWork work = model.layer(conv).work({}, {}, 5);
  ASSERT_EQ(work.forward.size(), 1u);
  EXPECT_EQ(work.forward[0].kind, profile::OperationKind::Convolution);
  EXPECT_EQ(work.forward[0].flops, 2 * 5 * 4 * 14 * 14 * 9);
  EXPECT_EQ(work.stash_bytes, 4 * 5 * 4 * 14 * 14);
  const profile::LayerWork linear = model.layer(model.graph().find("fc")).work({}, {}, 5);
  ASSERT_EQ(linear.backward_weights.size(), 1u);
  EXPECT_EQ(linear.backward_weights[0].flops, 2 * 5 * 196 * 10);
}

// What is counted from formulas is what a pass is seen to keep.
TEST(ImportModel, WhatAnEstimateKeepsIsWhatAMeasurementFinds) {
  for (const char* name :
       {"cnn.pt2", "transformer.pt2", "tokens.pt2", "shared.pt2", "grouped.pt2"}) {
    const Model model = import_model(fixture(name));
    const auto kept = [](const profile::Profile& profile) {
      int64_t bytes = 0;
      for (const profile::LayerCost& cost : profile.costs) bytes += cost.stash_bytes;
      return static_cast<double>(bytes);
    };
    const double measured = kept(model::measure_profile(
        model, {.batch_size = 8, .warmup = 0, .samples = 1, .concurrency = 1}));
    const double estimated =
        kept(model::analytic_profile(model, profile::find_device("cpu-core"), {.batch_size = 8}));
    EXPECT_NEAR(estimated / measured, 1, 0.15) << name << ": " << estimated << ", " << measured;
  }
}

TEST(ImportModel, WhatNoLayerChangesStaysInTheStateDict) {
  const Model model = import_model(fixture("branches.pt2"));
  ASSERT_EQ(model.extra_state().size(), 3u);
  EXPECT_EQ(model.extra_state().front().key, "scale");
  EXPECT_TRUE(model.extra_state().front().values().allclose(at::linspace(0.5, 1.5, 8)));
  EXPECT_TRUE(import_model(fixture("cnn.pt2")).extra_state().empty());
  const Model tied = import_model(fixture("transformer.pt2"));
  ASSERT_EQ(tied.extra_state().size(), 1u);
  EXPECT_EQ(tied.extra_state().front().key, "up.weight");
  EXPECT_EQ(tied.extra_state().front().same_as, "down.weight");
}

/// transformer.pt2 has products, norms, and a table that is the weight of its last product.
TEST(ImportModel, ProductsHaveShortWeightsWhereTheProcessorMultipliesThem) {
  const Model model = import_model(fixture("transformer.pt2"));
  const bool pays = multiplies(FloatType::BFloat16);
  std::set<std::string> tied;
  for (const graph::TieGroup& group : graph::tie_groups(model.graph())) {
    for (const graph::ParameterRef& parameter : group)
      tied.insert(model.graph().layer(parameter.layer).name);
  }
  const auto precisions = model::layer_precisions(model, Precision::BFloat16);
  int short_products = 0;
  for (const graph::LayerNode& layer : model.graph().layers()) {
    const model::LayerPrecision& found = precisions[model.graph().find(layer.name).index()];
    SCOPED_TRACE(layer.name);
    EXPECT_NE(found.autocasts, found.computes_in_float32);
    // libtorch 1.13 has no norms of 16 bits with weights of float32: they compute in float32.
    if (layer.kind == "linear" || !pays || TORCH_VERSION_MAJOR >= 2)
      EXPECT_EQ(found.autocasts, pays);
    const bool is_product = layer.kind == "linear" && !tied.contains(layer.name);
    if (layer.kind == "layer_norm" || tied.contains(layer.name) || !pays)
      EXPECT_EQ(found.weights, at::kFloat);
    if (!is_product || !pays) continue;
    EXPECT_EQ(found.weights, at::kBFloat16);
    ++short_products;
  }
  EXPECT_EQ(short_products > 0, pays);
}

TEST(ImportModel, FrozenParametersAreConstants) {
  const Model model = import_model(fixture("branches.pt2"));
  const LayerId stem = model.graph().find("stem");
  EXPECT_TRUE(model.layer(stem).parameters().empty());
  EXPECT_EQ(model.extra_state()[1].key, "stem.bias");
  EXPECT_EQ(model.extra_state()[2].key, "stem.weight");
}

TEST(ImportModel, DamagedWeightsAreNoticed) {
  std::string archive = read_file(fixture("cnn.pt2"));
  const exported::Program program = exported::read_program(fixture("cnn.pt2"));
  archive[static_cast<size_t>(program.tensors.at("conv1.weight").file_offset) + 2] ^= 1;
  const std::string path =
      fmt::format("{}/penstock-damaged-{}.pt2", testing::TempDir(), ::getpid());
  std::ofstream(path, std::ios::binary) << archive;
  const Model model = import_model(path);
  EXPECT_THROW(model.initial_weights(model.graph().find("conv1"), 1), ConfigError);
  std::filesystem::remove(path);
}

TEST(ImportModel, OneNumberPerChannelHasNoVariance) {
  const Model model = import_model(fixture("cnn.pt2"));
  const LayerId norm = model.graph().find("norm");
  Tensors buffers = model.initial_buffers(norm);
  const Tensors weights = model.initial_weights(norm, 1);
  const Tensors inputs = {at::ones({1, 4, 1, 1})};
  EXPECT_THROW(model.layer(norm).forward(weights, buffers, inputs, {.training = true}),
               RuntimeError);
  EXPECT_NO_THROW(model.layer(norm).forward(weights, buffers, inputs, {.training = false}));
}

TEST(ImportModel, RandomStepsDependOnTheSeedOnly) {
  const Model model = import_model(fixture("random.pt2"));
  Whole whole(model);
  const at::Tensor input = at::ones({3, 1, 28, 28});
  const auto run = [&](bool training, uint64_t seed) {
    return whole.forward({input}, {.training = training, .seed = seed}).detach().clone();
  };
  EXPECT_TRUE(run(true, 1).equal(run(true, 1)));
  EXPECT_FALSE(run(true, 1).equal(run(true, 2)));
  EXPECT_FALSE(run(false, 1).equal(run(true, 1)));
}

TEST(ImportModel, AllReasonsAreNamed) {
  const auto message = [](const std::string& name) {
    try {
      import_model(fixture(name));
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(message("unseeded.pt2"), HasSubstr("alpha_dropout"));
  EXPECT_THAT(message("unseeded.pt2"), HasSubstr("make_fixtures.py:"));
  EXPECT_THAT(message("fixed_batch.pt2"), HasSubstr("the input 'x' has a fixed batch of 4"));
  EXPECT_THAT(message("forbidden.pt2"), HasSubstr("from_file.default is not allowed"));
  EXPECT_THAT(message("meta.pt2"), HasSubstr("'conv1.weight' has no values"));
  EXPECT_THAT(message("missing.pt2"), HasSubstr("there is no file"));
  EXPECT_THAT(message("cnn.safetensors"), HasSubstr("no zip archive"));
}

}  // namespace
}  // namespace penstock::imported

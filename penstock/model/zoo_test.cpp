#include "penstock/model/zoo.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "penstock/model/testing_errors.h"
#include "penstock/model/testing_reference.h"
#include "penstock/model/zoo_names.h"
#include "penstock/util/error.h"

namespace penstock::model {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::set<std::string> state_dict_keys(const Model& model) {
  std::set<std::string> keys;
  for (int i = 0; i < model.graph().num_layers(); ++i) {
    const std::string& layer = model.graph().layer(LayerId{i}).name;
    for (const ParameterSpec& spec : model.layer(LayerId{i}).parameters())
      keys.insert(layer + "." + spec.name);
    for (const ParameterSpec& spec : model.layer(LayerId{i}).buffers())
      keys.insert(layer + "." + spec.name);
  }
  return keys;
}

/// Runs a whole model forward, layer by layer.
at::Tensor forward(const Model& model, const at::Tensor& input) {
  const c10::AutoGradMode no_grad(false);
  std::vector<Tensors> outputs;
  for (int i = 0; i < model.graph().num_layers(); ++i) {
    const LayerId id{i};
    Tensors inputs;
    for (const graph::ValueRef& ref : model.graph().layer(id).inputs) {
      inputs.push_back(ref.is_model_input()
                           ? input
                           : outputs[ref.layer.index()][static_cast<size_t>(ref.output)]);
    }
    Tensors buffers = model.initial_buffers(id);
    outputs.push_back(model.layer(id).forward(model.initial_weights(id, 1), buffers, inputs,
                                              {.training = true, .seed = 1}));
  }
  const graph::ValueRef result = model.graph().outputs().front();
  return outputs[result.layer.index()][static_cast<size_t>(result.output)];
}

TEST(Zoo, ParameterCountsAreThePublishedOnes) {
  const std::map<std::string, int64_t> published = {
      {"lenet5", 61'706},          {"alexnet", 61'100'840},  {"vgg16", 138'357'544},
      {"resnet18", 11'689'512},    {"resnet50", 25'557'032}, {"vgg_small", 813'546},
      {"inception_v3", 27'161'264}};
  for (const auto& [name, count] : published)
    EXPECT_EQ(make_model({.name = name}).parameter_count(), count) << name;
  EXPECT_EQ(make_model({.name = "mlp", .width = 100, .depth = 2}).parameter_count(),
            784 * 100 + 100 + 100 * 100 + 100 + 100 * 10 + 10);
  // The decoder adds biases only.
  EXPECT_EQ(make_model({.name = "tied_mlp", .width = 100, .depth = 2}).parameter_count(),
            (784 * 100 + 100 + 100 * 50 + 50) + (100 + 784) + 784 * 10 + 10);
  // GPT-2, the smallest.
  EXPECT_EQ(make_model({.name = "gpt",
                        .input_shape = {1024},
                        .classes = 50'257,
                        .width = 768,
                        .depth = 12,
                        .heads = 12})
                .parameter_count(),
            124'439'808);
  // Embedding and head once, and the head's bias.
  EXPECT_EQ(make_model({.name = "awd_lm"}).parameter_count(), 24'221'600);
  // 37.0 M with 12,594 words.
  EXPECT_EQ(make_model({.name = "s2vt"}).parameter_count(), 36'968'094);
  // 193.77 M and 277.72 M, the sums of PipeDream's profiles.
  EXPECT_EQ(make_model({.name = "gnmt8"}).parameter_count(), 193'766'977);
  EXPECT_EQ(make_model({.name = "gnmt16"}).parameter_count(), 277'718'593);
}

TEST(Zoo, NamesAreTheSameWithoutLibtorch) {
  std::vector<std::string> names;
  for (const ZooEntry& entry : zoo()) names.push_back(entry.name);
  EXPECT_THAT(names, testing::ElementsAreArray(kZooNames));
}

TEST(Zoo, EveryEntryHasItsOwnInputsAndClasses) {
  for (const ZooEntry& entry : zoo()) {
    const Model model = make_model({.name = entry.name});
    EXPECT_EQ(model.name(), entry.name);
    std::vector<Shape> inputs = {entry.input_shape};
    const Shape& all = entry.input_shape;
    if (model.inputs().size() == 2 && all.size() == 2) inputs = {{all[0]}, {all[1]}};
    if (model.inputs().size() == 2 && all.size() == 3) inputs = {{all[0], all[1]}, {all[2]}};
    EXPECT_EQ(model.input_shapes(), inputs);
    const graph::ValueRef result = model.graph().outputs().front();
    // Inception has an answer and an auxiliary one; language models one for each place.
    Shape expected = {entry.classes};
    if (model.inputs().back().type == at::kLong)
      expected.insert(expected.begin(), entry.input_shape.back());
    if (!model.auxiliary_weights().empty()) expected.insert(expected.begin(), 2);
    EXPECT_EQ(model.output_shapes(result.layer).front(), expected);
  }
}

TEST(Zoo, StateDictKeysAreTorchvisions) {
  const std::set<std::string> vgg = state_dict_keys(make_model({.name = "vgg16"}));
  EXPECT_EQ(vgg.size(), 32U);
  for (const char* key : {"features.0.weight", "features.28.bias", "classifier.0.weight",
                          "classifier.3.weight", "classifier.6.bias"}) {
    EXPECT_TRUE(vgg.contains(key)) << key;
  }
  const std::set<std::string> alexnet = state_dict_keys(make_model({.name = "alexnet"}));
  EXPECT_EQ(alexnet.size(), 16U);
  for (const char* key :
       {"features.0.weight", "features.3.weight", "features.6.weight", "features.8.weight",
        "features.10.bias", "classifier.1.weight", "classifier.4.weight", "classifier.6.weight"}) {
    EXPECT_TRUE(alexnet.contains(key)) << key;
  }
  const std::set<std::string> resnet = state_dict_keys(make_model({.name = "resnet50"}));
  for (const char* key :
       {"conv1.weight", "bn1.running_var", "layer1.0.conv3.weight", "layer1.0.downsample.0.weight",
        "layer4.2.bn3.bias", "layer2.0.downsample.1.running_mean", "fc.bias"}) {
    EXPECT_TRUE(resnet.contains(key)) << key;
  }
  EXPECT_FALSE(resnet.contains("conv1.bias"));
  const std::set<std::string> inception = state_dict_keys(make_model({.name = "inception_v3"}));
  EXPECT_EQ(inception.size(), 96 * 5 + 4U) << "convolutions with norms, two classifiers";
  for (const char* key :
       {"Conv2d_1a_3x3.conv.weight", "Mixed_5b.branch_pool.bn.running_mean",
        "Mixed_6a.branch3x3dbl_3.conv.weight", "Mixed_6c.branch7x7dbl_5.bn.bias",
        "Mixed_7a.branch7x7x3_4.conv.weight", "Mixed_7c.branch3x3dbl_3b.bn.weight",
        "AuxLogits.conv1.conv.weight", "AuxLogits.fc.weight", "fc.bias"}) {
    EXPECT_TRUE(inception.contains(key)) << key;
  }
  EXPECT_FALSE(
      state_dict_keys(make_model({.name = "resnet18"})).contains("layer1.0.downsample.0.weight"));
}

TEST(Zoo, SmallModelsRun) {
  EXPECT_EQ(forward(make_model({.name = "mlp", .width = 16}), at::randn({2, 1, 28, 28})).sizes(),
            (at::IntArrayRef{2, 10}));
  EXPECT_EQ(forward(make_model({.name = "lenet5"}), at::randn({2, 1, 28, 28})).sizes(),
            (at::IntArrayRef{2, 10}));
  EXPECT_EQ(forward(make_model({.name = "vgg_small"}), at::randn({2, 1, 32, 32})).sizes(),
            (at::IntArrayRef{2, 10}));
}

TEST(Zoo, AnUntiedHeadHasWeightsOfItsOwn) {
  ModelSpec spec{
      .name = "gpt", .input_shape = {4}, .classes = 11, .width = 8, .depth = 2, .heads = 2};
  const int64_t tied = make_model(spec).parameter_count();
  spec.untied = true;
  const Model untied = make_model(spec);
  EXPECT_EQ(untied.parameter_count(), tied + 11 * 8);
  EXPECT_TRUE(graph::tie_groups(untied.graph()).empty());
  EXPECT_TRUE(graph::tie_groups(make_model({.name = "awd_lm", .untied = true}).graph()).empty());
  EXPECT_THAT([] { make_model({.name = "gnmt8", .untied = true}); },
              config_error("no form with an untied head"));
}

/// tests/support/zoo_reference.py gpt
TEST(Zoo, GptIsThatOfPyTorchsModules) {
  const ReferenceNumbers expected = {
      {"loss", 2.58335},
      {"transformer.h.0.attn.c_attn.bias", 0.0200588},
      {"transformer.h.0.attn.c_attn.weight", 0.0568298},
      {"transformer.h.0.attn.c_proj.bias", 0.0592398},
      {"transformer.h.0.attn.c_proj.weight", 0.30877},
      {"transformer.h.0.ln_1.bias", 0.0417008},
      {"transformer.h.0.ln_1.weight", 0.0224032},
      {"transformer.h.0.ln_2.bias", 0.159465},
      {"transformer.h.0.ln_2.weight", 0.102478},
      {"transformer.h.0.mlp.c_fc.bias", 0.0827026},
      {"transformer.h.0.mlp.c_fc.weight", 0.317023},
      {"transformer.h.0.mlp.c_proj.bias", 0.0585993},
      {"transformer.h.0.mlp.c_proj.weight", 0.358939},
      {"transformer.h.1.attn.c_attn.bias", 0.0181005},
      {"transformer.h.1.attn.c_attn.weight", 0.0650895},
      {"transformer.h.1.attn.c_proj.bias", 0.0554899},
      {"transformer.h.1.attn.c_proj.weight", 0.378917},
      {"transformer.h.1.ln_1.bias", 0.0415413},
      {"transformer.h.1.ln_1.weight", 0.0323525},
      {"transformer.h.1.ln_2.bias", 0.127926},
      {"transformer.h.1.ln_2.weight", 0.127795},
      {"transformer.h.1.mlp.c_fc.bias", 0.0678947},
      {"transformer.h.1.mlp.c_fc.weight", 0.16663},
      {"transformer.h.1.mlp.c_proj.bias", 0.0487624},
      {"transformer.h.1.mlp.c_proj.weight", 0.217224},
      {"transformer.ln_f.bias", 1.05835},
      {"transformer.ln_f.weight", 1.09361},
      {"transformer.wpe.weight", 0.254339},
      {"transformer.wte.weight", 2.45976},
  };
  expect_reference(
      make_model(
          {.name = "gpt", .input_shape = {4}, .classes = 11, .width = 8, .depth = 2, .heads = 2}),
      2, expected);
}

/// tests/support/zoo_reference.py awd_lm
TEST(Zoo, AwdLmIsThatOfPyTorchsModules) {
  const ReferenceNumbers expected = {
      {"loss", 2.50477},
      {"decoder.bias", 0.403994},
      {"encoder.weight", 0.372736},
      {"rnns.0.bias_hh_l0", 0.00809416},
      {"rnns.0.bias_ih_l0", 0.00809416},
      {"rnns.0.weight_hh_l0", 0.0066682},
      {"rnns.0.weight_ih_l0", 0.0223545},
      {"rnns.1.bias_hh_l0", 0.0169435},
      {"rnns.1.bias_ih_l0", 0.0169435},
      {"rnns.1.weight_hh_l0", 0.0119453},
      {"rnns.1.weight_ih_l0", 0.0406778},
      {"rnns.2.bias_hh_l0", 0.0942928},
      {"rnns.2.bias_ih_l0", 0.0942928},
      {"rnns.2.weight_hh_l0", 0.0306729},
      {"rnns.2.weight_ih_l0", 0.0872401},
  };
  expect_reference(make_model({.name = "awd_lm",
                               .input_shape = {5},
                               .classes = 11,
                               .width = 7,
                               .depth = 3,
                               .embedding = 6,
                               .dropout = 0}),
                   2, expected);
}

/// tests/support/zoo_reference.py gnmt8; the first sentence ends with padding
TEST(Zoo, GnmtIsThatOfPyTorchsModules) {
  const ReferenceNumbers expected = {
      {"loss", 2.40556},
      {"decoder.att_rnn.attn.linear_att", 6.55902e-05},
      {"decoder.att_rnn.attn.linear_k.weight", 9.42128e-05},
      {"decoder.att_rnn.attn.linear_q.weight", 1.73598e-05},
      {"decoder.att_rnn.attn.normalize_bias", 1.29592e-05},
      {"decoder.att_rnn.attn.normalize_scalar", 7.49575e-06},
      {"decoder.att_rnn.rnn.bias_hh_l0", 0.0424574},
      {"decoder.att_rnn.rnn.bias_ih_l0", 0.0424574},
      {"decoder.att_rnn.rnn.weight_hh_l0", 0.0537557},
      {"decoder.att_rnn.rnn.weight_ih_l0", 0.136515},
      {"decoder.classifier.classifier.bias", 0.3217},
      {"decoder.classifier.classifier.weight", 0.338648},
      {"decoder.embedder.weight", 0.0374251},
      {"decoder.rnn_layers.0.bias_hh_l0", 0.255786},
      {"decoder.rnn_layers.0.bias_ih_l0", 0.255786},
      {"decoder.rnn_layers.0.weight_hh_l0", 0.171486},
      {"decoder.rnn_layers.0.weight_ih_l0", 0.63461},
      {"decoder.rnn_layers.1.bias_hh_l0", 0.124446},
      {"decoder.rnn_layers.1.bias_ih_l0", 0.124446},
      {"decoder.rnn_layers.1.weight_hh_l0", 0.092339},
      {"decoder.rnn_layers.1.weight_ih_l0", 0.265448},
      {"decoder.rnn_layers.2.bias_hh_l0", 0.136701},
      {"decoder.rnn_layers.2.bias_ih_l0", 0.136701},
      {"decoder.rnn_layers.2.weight_hh_l0", 0.147176},
      {"decoder.rnn_layers.2.weight_ih_l0", 0.254624},
      {"encoder.embedder.weight", 0.0048815},
      {"encoder.rnn_layers.0.bias_hh_l0", 0.00488087},
      {"encoder.rnn_layers.0.bias_hh_l0_reverse", 0.00246037},
      {"encoder.rnn_layers.0.bias_ih_l0", 0.00488087},
      {"encoder.rnn_layers.0.bias_ih_l0_reverse", 0.00246037},
      {"encoder.rnn_layers.0.weight_hh_l0", 0.00359005},
      {"encoder.rnn_layers.0.weight_hh_l0_reverse", 0.00160204},
      {"encoder.rnn_layers.0.weight_ih_l0", 0.00743961},
      {"encoder.rnn_layers.0.weight_ih_l0_reverse", 0.00400664},
      {"encoder.rnn_layers.1.bias_hh_l0", 0.0270835},
      {"encoder.rnn_layers.1.bias_ih_l0", 0.0270835},
      {"encoder.rnn_layers.1.weight_hh_l0", 0.0210854},
      {"encoder.rnn_layers.1.weight_ih_l0", 0.0737483},
      {"encoder.rnn_layers.2.bias_hh_l0", 0.0449049},
      {"encoder.rnn_layers.2.bias_ih_l0", 0.0449049},
      {"encoder.rnn_layers.2.weight_hh_l0", 0.0431759},
      {"encoder.rnn_layers.2.weight_ih_l0", 0.0497905},
      {"encoder.rnn_layers.3.bias_hh_l0", 0.0253471},
      {"encoder.rnn_layers.3.bias_ih_l0", 0.0253471},
      {"encoder.rnn_layers.3.weight_hh_l0", 0.0128007},
      {"encoder.rnn_layers.3.weight_ih_l0", 0.0266086},
  };
  expect_reference(make_model({.name = "gnmt8",
                               .input_shape = {5, 4},
                               .classes = 11,
                               .width = 6,
                               .depth = 4,
                               .dropout = 0}),
                   3, expected);
}

/// tests/support/zoo_reference.py s2vt
TEST(Zoo, S2vtIsThatOfPyTorchsModules) {
  const ReferenceNumbers expected = {
      {"loss", 2.80722},
      {"frame_embed.bias", 0.0564202},
      {"frame_embed.weight", 0.135023},
      {"lstm1.bias_hh_l0", 0.12354},
      {"lstm1.bias_ih_l0", 0.12354},
      {"lstm1.weight_hh_l0", 0.0921163},
      {"lstm1.weight_ih_l0", 0.122879},
      {"lstm2.bias_hh_l0", 0.466758},
      {"lstm2.bias_ih_l0", 0.466758},
      {"lstm2.weight_hh_l0", 1.03003},
      {"lstm2.weight_ih_l0", 0.74925},
      {"predict.bias", 1.11723},
      {"predict.weight", 2.53414},
      {"word_embed.weight", 0.328765},
  };
  expect_reference(
      make_model(
          {.name = "s2vt", .input_shape = {4, 5, 3}, .classes = 11, .width = 6, .embedding = 4}),
      2, expected);
}

TEST(Zoo, S2vtReadsPicturesByConvolutions) {
  const ModelSpec spec{
      .name = "s2vt", .input_shape = {4, 3 * 8 * 8, 3}, .classes = 11, .width = 6, .embedding = 4};
  ModelSpec deep = spec;
  deep.depth = 2;
  // Two convolutions of 16 and 32 channels leave 2x2 pixels.
  const int64_t convolutions = 16 * 27 + 2 * 16 + 32 * 16 * 9 + 2 * 32;
  EXPECT_EQ(make_model(deep).parameter_count(),
            make_model(spec).parameter_count() + convolutions + 4 * (32 * 4 - 3 * 64));
  deep.depth = 4;
  EXPECT_THROW(make_model(deep), ConfigError);  // 8 pixels cannot be halved so often
  deep.depth = 1;
  deep.input_shape = {4, 100, 3};
  EXPECT_THROW(make_model(deep), ConfigError);  // no square
}

TEST(Zoo, ResNetsTakeSmallImages) {
  const Model model = make_model({.name = "resnet18", .input_shape = {3, 32, 32}, .classes = 7});
  const at::Tensor y = forward(model, at::randn({2, 3, 32, 32}));
  EXPECT_EQ(y.sizes(), (at::IntArrayRef{2, 7}));
  EXPECT_TRUE(y.isfinite().all().item<bool>());
  EXPECT_NO_THROW(make_model({.name = "resnet50", .input_shape = {1, 32, 32}}));
  EXPECT_NO_THROW(make_model({.name = "vgg16", .input_shape = {3, 32, 32}, .classes = 10}));
}

TEST(Zoo, UnknownNamesListTheKnownOnes) {
  EXPECT_THAT([] { make_model({.name = "vgg"}); },
              AllOf(config_error("vgg_small"), config_error("resnet50")));
}

TEST(Zoo, EnormousOptionsAreRefusedWithoutAllocating) {
  constexpr int64_t kTrillion = 1'000'000'000'000;
  EXPECT_THAT([] { make_model({.name = "mlp", .width = kTrillion}); }, config_error("width"));
  EXPECT_THAT([] { make_model({.name = "mlp", .width = -1}); }, config_error("width"));
  EXPECT_THAT([] { make_model({.name = "mlp", .depth = 1'000'000'000}); }, config_error("depth"));
  EXPECT_THAT([] { make_model({.name = "mlp", .width = 1 << 20, .depth = 5}); },
              config_error("width 1048576, depth 5"));
  EXPECT_THAT([] { make_model({.name = "mlp", .classes = kTrillion}); }, config_error("classes"));
  EXPECT_THAT([] { make_model({.name = "lenet5", .classes = -4}); }, config_error("classes"));
  EXPECT_THAT(
      [] {
        make_model({.name = "mlp", .input_shape = {kTrillion, kTrillion, kTrillion}});
      },
      config_error("input_shape"));
  EXPECT_THAT(
      [] {
        make_model({.name = "mlp", .input_shape = {3, 0}});
      },
      config_error("input_shape"));
  EXPECT_THAT(
      [] {
        make_model({.name = "vgg16", .input_shape = {3, -224, 224}});
      },
      config_error("input_shape"));
  EXPECT_THAT([] { make_model({.name = "vgg16", .input_shape = {784}}); },
              config_error("input_shape"));
  EXPECT_THAT(
      [] {
        make_model({.name = "vgg16", .input_shape = {3, 1'000'000, 1'000'000}});
      },
      config_error("input_shape"));
  EXPECT_THAT(
      [] {
        make_model({.name = "lenet5", .input_shape = {1, 4, 4}});
      },
      config_error("input_shape [1, 4, 4]"));
  EXPECT_THAT([] { make_model({.name = "vgg16", .width = 3}); }, config_error("width"));
  EXPECT_THAT([] { make_model({.name = "resnet50", .depth = 50}); }, config_error("depth"));
  EXPECT_THAT([] { make_model({.name = "vgg16", .dropout = 0.1}); }, config_error("no dropout"));
  EXPECT_THAT([] { make_model({.name = "gpt", .dropout = 1.0}); }, config_error("dropout"));
  EXPECT_THAT([] { make_model({.name = "gpt", .kernel = 3}); }, config_error("no kernel option"));
  EXPECT_THAT([] { make_model({.name = "gpt", .heads = 3}); },
              AllOf(config_error("heads 3"), config_error("layer 'transformer.h.0.attn'")));
  EXPECT_THAT([] { make_model({.name = "gpt", .input_shape = {3, 8}}); }, config_error("[tokens]"));
}

}  // namespace
}  // namespace penstock::model

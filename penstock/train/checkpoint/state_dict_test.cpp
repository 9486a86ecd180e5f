#include "penstock/train/checkpoint/state_dict.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cstdio>

#include "penstock/model/builder.h"
#include "penstock/train/checkpoint/test_folder.h"
#include "penstock/util/error.h"

namespace penstock::train {
namespace {

model::Model tiny_model() {
  model::ModelBuilder net("tiny");
  model::Value x = net.conv2d(net.input({1, 4, 4}), {.channels = 2, .kernel = 3, .name = "conv1"});
  x = net.relu(net.batch_norm2d(x, {.name = "norm"}));
  return net.build(net.linear(net.flatten(x), {.features = 3, .name = "fc"}));
}

std::vector<LayerState> make_states(const model::Model& model) {
  std::vector<LayerState> states;
  for (int i = 0; i < model.graph().num_layers(); ++i) {
    LayerState state;
    for (const auto& spec : model.layer(LayerId{i}).parameters())
      state.weights.push_back(torch::randn(spec.shape));
    for (const auto& spec : model.layer(LayerId{i}).buffers())
      state.buffers.push_back(torch::randn(spec.shape));
    states.push_back(std::move(state));
  }
  return states;
}

struct Output {
  int status = 0;
  std::string text;
};

Output run(const std::string& command) {
  Output output;
  FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  char buffer[4096];
  while (const size_t count = std::fread(buffer, 1, sizeof buffer, pipe))
    output.text.append(buffer, count);
  output.status = ::pclose(pipe);
  return output;
}

/// The path of a Python with torch, or empty.
std::string python_with_torch() {
  for (const char* python : {PENSTOCK_TORCH_PYTHON, "python3", "/usr/bin/python3"}) {
    if (*python == '\0') continue;
    if (run(fmt::format("{} -c 'import torch'", python)).status == 0) return python;
  }
  return "";
}

/// What the script below prints: a line for each tensor, with the bits of its values.
std::string describe(const std::string& layer, const std::vector<model::ParameterSpec>& specs,
                     const std::vector<at::Tensor>& tensors) {
  std::string text;
  for (size_t i = 0; i < specs.size(); ++i) {
    const auto* bits = static_cast<const int32_t*>(tensors[i].data_ptr());
    text += fmt::format("{}.{} [{}] torch.float32 [{}]\n", layer, specs[i].name,
                        fmt::join(specs[i].shape, ", "),
                        fmt::join(bits, bits + tensors[i].numel(), ", "));
  }
  return text;
}

TEST(StateDict, TorchLoadReadsADictOfTensorsWithTheRightValues) {
  const std::string python = python_with_torch();
  if (python.empty()) GTEST_SKIP() << "no python3 with torch";
  const TestFolder folder;
  const model::Model model = tiny_model();
  const std::vector<LayerState> states = make_states(model);
  write_state_dict(folder.path(), "weights.pt", state_dict(model, states, FrozenWeights::With));
  write_test_file(folder / "check.py", fmt::format(R"(
import torch
weights = torch.load(r"{}")
assert type(weights) is dict, type(weights)
for name, tensor in weights.items():
    print(name, list(tensor.shape), tensor.dtype, tensor.view(torch.int32).flatten().tolist())
net = torch.nn.ModuleDict(dict(
    conv1=torch.nn.Conv2d(1, 2, 3), norm=torch.nn.BatchNorm2d(2), fc=torch.nn.Linear(8, 3)))
print(net.load_state_dict(weights))
)",
                                                   (folder / "weights.pt").string()));
  const Output output = run(fmt::format("{} {}", python, (folder / "check.py").string()));
  ASSERT_EQ(output.status, 0) << output.text;
  std::string expected;
  for (int i = 0; i < model.graph().num_layers(); ++i) {
    const LayerState& state = states[static_cast<size_t>(i)];
    expected += describe(model.graph().layer(LayerId{i}).name, model.layer(LayerId{i}).parameters(),
                         state.weights);
    expected += describe(model.graph().layer(LayerId{i}).name, model.layer(LayerId{i}).buffers(),
                         state.buffers);
  }
  EXPECT_EQ(output.text, expected + "<All keys matched successfully>\n");
}

TEST(StateDict, ATiedWeightIsOneTensorUnderTwoNames) {
  model::ModelBuilder net("tied");
  model::Value x = net.linear(net.input({100}), {.features = 100, .name = "fc1"});
  x = net.linear(x, {.features = 100, .name = "fc2", .transposed = true});
  net.tie("fc2", "weight", "fc1", "weight");
  const model::Model model = net.build(x);
  std::vector<LayerState> states = make_states(model);
  states[1].weights[0] = states[0].weights[0].clone();  // each stage has its own copy
  const TestFolder folder;
  write_state_dict(folder.path(), "weights.pt", state_dict(model, states, FrozenWeights::With));
  EXPECT_LT(std::filesystem::file_size(folder / "weights.pt"), 60'000U)
      << "the weight of 40,000 bytes is there twice";
  const std::string python = python_with_torch();
  if (python.empty()) GTEST_SKIP() << "no python3 with torch";
  write_test_file(folder / "check.py", fmt::format(R"(
import torch
weights = torch.load(r"{}")
print(sorted(weights), weights["fc1.weight"].data_ptr() == weights["fc2.weight"].data_ptr())
)",
                                                   (folder / "weights.pt").string()));
  EXPECT_EQ(run(fmt::format("{} {}", python, (folder / "check.py").string())).text,
            "['fc1.bias', 'fc1.weight', 'fc2.bias', 'fc2.weight'] True\n");
}

}  // namespace
}  // namespace penstock::train

#include "penstock/model/mixing.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <exception>
#include <map>
#include <utility>

#include "penstock/model/random_input.h"
#include "penstock/util/numbers/rng.h"

namespace penstock::model {

namespace {

constexpr int64_t kSamples = 4;
/// Of the largest number: what other orders of sums make is far below it.
constexpr double kTolerance = 1e-3;

/// One pass through the model.
struct Pass {
  Tensors inputs;
  uint64_t seed = 1;
  std::map<LayerId, Tensors> outputs = {};

  const at::Tensor& value(const graph::ValueRef& ref) const {
    const auto output = static_cast<size_t>(ref.output);
    return ref.is_model_input() ? inputs.at(output) : outputs.at(ref.layer).at(output);
  }
};

/// Layer by layer for all passes, so that the weights of one layer are in memory at a time.
void run(const Model& model, std::vector<Pass>& passes) {
  std::map<LayerId, int> last_use;
  const graph::ModelGraph& graph = model.graph();
  for (int i = 0; i < graph.num_layers(); ++i) {
    for (const graph::ValueRef& ref : graph.layer(LayerId{i}).inputs) {
      if (!ref.is_model_input()) last_use[ref.layer] = i;
    }
  }
  last_use[graph.outputs().front().layer] = graph.num_layers();
  for (int i = 0; i < graph.num_layers(); ++i) {
    const LayerId id{i};
    const Tensors weights = model.initial_weights(id, /*seed=*/1);
    for (Pass& pass : passes) {
      Tensors buffers = model.initial_buffers(id);
      Tensors inputs;
      for (const graph::ValueRef& ref : graph.layer(id).inputs) inputs.push_back(pass.value(ref));
      const ForwardContext context{.training = false,
                                   .seed = derive_seed(pass.seed, static_cast<uint64_t>(i))};
      pass.outputs[id] = model.layer(id).forward(weights, buffers, inputs, context);
      std::erase_if(pass.outputs, [&](const auto& made) {
        const auto last = last_use.find(made.first);
        return last == last_use.end() || last->second <= i;
      });
    }
  }
}

bool differ(const at::Tensor& one, const at::Tensor& other) {
  const double largest = std::max(one.abs().max().item<double>(), other.abs().max().item<double>());
  return (one - other).abs().max().item<double>() > kTolerance * largest;
}

bool compare(const Model& model) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(hash_name("mixing"));
  Tensors samples;
  for (const InputSpec& input : model.inputs())
    samples.push_back(random_input(input, kSamples, generator));
  const auto part = [&](int64_t begin, int64_t end) {
    Tensors rows;
    for (const at::Tensor& tensor : samples) rows.push_back(tensor.slice(0, begin, end).clone());
    return rows;
  };
  constexpr int64_t kHalf = kSamples / 2;
  std::vector<Pass> passes;
  passes.push_back({.inputs = part(0, kSamples)});
  passes.push_back({.inputs = part(0, kSamples), .seed = 2});
  passes.push_back({.inputs = part(0, kHalf)});
  passes.push_back({.inputs = part(kHalf, kSamples)});
  run(model, passes);
  const graph::ValueRef output = model.graph().outputs().front();
  const auto result = [&](size_t p) { return passes[p].value(output).to(at::kDouble); };
  if (differ(result(0), result(1))) return false;  // random even here
  const at::Tensor whole = result(0);
  const at::Tensor halves = at::cat({result(2), result(3)});
  if (whole.sizes() != halves.sizes()) return true;
  return model.returns_loss() ? differ(whole.mean(), halves.mean()) : differ(whole, halves);
}

}  // namespace

bool mixes_samples(const Model& model) {
  if (model.graph().outputs().empty()) return false;
  const c10::AutoGradMode no_grad(false);
  try {
    return compare(model);
  } catch (const std::exception&) {
    return false;  // what is wrong is said by those who need the model
  }
}

}  // namespace penstock::model

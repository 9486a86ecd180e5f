#include "penstock/runtime/layer_tape.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

#include "penstock/runtime/layer_split.h"
#include "penstock/util/check.h"

namespace penstock::runtime {

using model::Tensors;
using torch::autograd::Edge;

namespace {

/// The beginning of a layer's graph. Unlike a leaf's accumulator it does not keep the tensor; the
/// engine only stops here.
struct Entry final : torch::autograd::Node {
  torch::autograd::variable_list apply(torch::autograd::variable_list&&) override { return {}; }
};

/// Where a backward pass begins: gives its gradients away, so that the engine frees each as soon as
/// it has been read. The engine's own root keeps them until the pass ends.
struct Begin final : torch::autograd::Node {
  torch::autograd::variable_list apply(torch::autograd::variable_list&&) override {
    return std::move(gradients);
  }
  Tensors gradients;
};

/// Of gradients with fewer bytes: one node more takes 5 us, and they may stay.
constexpr size_t kWorthANode = 64 << 10;

Tensors execute(const std::vector<Edge>& roots, const Tensors& gradients, bool keep_graph,
                const std::vector<Edge>& wanted) {
  return torch::autograd::Engine::get_default_engine().execute(roots, gradients, keep_graph,
                                                               /*create_graph=*/false,
                                                               /*accumulate_grad=*/false, wanted);
}

Tensors run_engine(const std::vector<Edge>& roots, Tensors gradients, bool keep_graph,
                   const std::vector<Edge>& wanted) {
  size_t bytes = 0;
  for (const at::Tensor& gradient : gradients) bytes += gradient.defined() ? gradient.nbytes() : 0;
  if (bytes < kWorthANode) return execute(roots, gradients, keep_graph, wanted);
  const model::NodePointer begin = model::make_node<Begin>();
  const at::Tensor nothing = at::empty({0});  // the engine wants an input
  begin->add_input_metadata(nothing);
  // As of the engine's own root: the streams on which they were made.
  for (const at::Tensor& gradient : gradients) begin->add_input_metadata(gradient);
  begin->set_next_edges(std::vector<Edge>(roots));
  static_cast<Begin&>(*begin).gradients = std::move(gradients);
  return execute({Edge(begin, 0)}, {nothing}, keep_graph, wanted);
}

}  // namespace

at::Tensor LayerTape::enter(const at::Tensor& value, bool needs_gradient) {
  inputs_.emplace_back();
  if (!needs_gradient) return value;
  at::Tensor entered = value.variable_data();
  torch::autograd::create_gradient_edge(entered, model::make_node<Entry>());
  inputs_.back() = torch::autograd::impl::gradient_edge(entered);
  return entered;
}

void LayerTape::use(model::TensorSpan weights) {
  for (const at::Tensor& weight : weights)
    weights_.push_back(weight.requires_grad() ? torch::autograd::impl::gradient_edge(weight)
                                              : Edge());
}

void LayerTape::leave(model::TensorSpan outputs) {
  for (const at::Tensor& output : outputs)
    outputs_.push_back(output.requires_grad() ? torch::autograd::impl::gradient_edge(output)
                                              : Edge());
}

bool LayerTape::wants_input_gradients() const {
  return std::any_of(inputs_.begin(), inputs_.end(),
                     [](const Edge& edge) { return edge.function != nullptr; });
}

LayerTape::Rest LayerTape::roots_of(Tensors outputs) {
  PENSTOCK_CHECK(outputs.size() == outputs_.size(), outputs.size(), outputs_.size());
  Rest roots;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].defined() || !outputs_[i].function) continue;
    roots.roots.push_back(std::move(outputs_[i]));
    roots.gradients.push_back(std::move(outputs[i]));
  }
  outputs_.clear();
  return roots;
}

LayerTape::Gradients LayerTape::backward(Tensors outputs) {
  Gradients result{Tensors(inputs_.size()), Tensors(weights_.size())};
  Rest from = roots_of(std::move(outputs));
  std::vector<Edge> wanted;
  std::vector<at::Tensor*> places;
  const auto want = [&](std::vector<Edge>& edges, Tensors& into) {
    for (size_t i = 0; i < edges.size(); ++i) {
      if (!edges[i].function) continue;
      wanted.push_back(std::move(edges[i]));
      places.push_back(&into[i]);
    }
    edges.clear();
  };
  want(inputs_, result.inputs);
  want(weights_, result.weights);
  if (from.roots.empty() || wanted.empty()) return result;
  Tensors made = run_engine(from.roots, std::move(from.gradients), /*keep_graph=*/false, wanted);
  for (size_t i = 0; i < made.size(); ++i) *places[i] = std::move(made[i]);
  return result;
}

LayerTape::Gradients LayerTape::backward_inputs(Tensors outputs) {
  Gradients result{Tensors(inputs_.size()), Tensors(weights_.size())};
  Rest from = roots_of(std::move(outputs));
  if (from.roots.empty()) return result;
  if (!wants_input_gradients()) {
    for (size_t w = 0; w < weights_.size(); ++w) from.weights.push_back(w);
    if (!weights_.empty()) rest_.push_back(std::move(from));
    return result;
  }
  std::vector<Edge> wanted;
  std::vector<at::Tensor*> places;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (!inputs_[i].function) continue;
    wanted.push_back(inputs_[i]);
    places.push_back(&result.inputs[i]);
  }
  std::vector<bool> later(weights_.size(), false);
  LayerSplit split;
  if (!weights_.empty()) split = split_layer(from.roots, inputs_, weights_);
  rest_.reserve(split.deferred.size());  // `places` points into it
  for (Deferred& part : split.deferred) {
    for (const size_t w : part.weights) later[w] = true;
    Rest& rest = rest_.emplace_back(
        Rest{{Edge(std::move(part.operation), 0)}, Tensors(1), std::move(part.weights)});
    wanted.push_back(rest.roots.front());
    places.push_back(&rest.gradients.front());
  }
  for (size_t w = 0; w < weights_.size(); ++w) {
    if (later[w] || !weights_[w].function) continue;
    wanted.push_back(weights_[w]);
    places.push_back(&result.weights[w]);
  }
  Tensors made =
      run_engine(from.roots, std::move(from.gradients), /*keep_graph=*/!rest_.empty(), wanted);
  for (size_t i = 0; i < made.size(); ++i) *places[i] = std::move(made[i]);
  // The engine had to keep the graph, and the operations that W runs keep what is below them.
  if (!rest_.empty()) {
    for (const auto& operation : split.done) operation->release_variables();
  }
  inputs_.clear();
  return result;
}

Tensors LayerTape::backward_weights() {
  Tensors result(weights_.size());
  for (Rest& rest : rest_) {
    std::vector<Edge> wanted;
    std::vector<size_t> places;
    for (const size_t w : rest.weights) {
      if (!weights_[w].function) continue;
      wanted.push_back(weights_[w]);
      places.push_back(w);
    }
    if (wanted.empty() || !rest.gradients.front().defined()) continue;
    Tensors made = run_engine(rest.roots, std::move(rest.gradients), /*keep_graph=*/false, wanted);
    for (size_t i = 0; i < made.size(); ++i) result[places[i]] = std::move(made[i]);
    rest = {};
  }
  rest_.clear();
  weights_.clear();
  return result;
}

}  // namespace penstock::runtime

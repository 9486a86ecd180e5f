#include "penstock/runtime/layer_split.h"

#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_map>

namespace penstock::runtime {

using model::NodePointer;
using torch::autograd::Edge;
using torch::autograd::Node;

namespace {

/// Operations that make the gradients of their operands independently of each other.
constexpr std::array<std::string_view, 11> kSeparable = {
    "AddmmBackward0",
    "MmBackward0",
    "BmmBackward0",
    "BaddbmmBackward0",
    "ConvolutionBackward0",
    "LinearBackward0",
    "MvBackward0",
    "MulBackward0",
    "AddBackward0",
    "torch::autograd::CppNode<penstock::model::BlockedProduct>",     // model/layers/blocked_product
    "torch::autograd::CppNode<penstock::model::RecurrentProduct>"};  // model/layers/lstm_sequence

bool is_separable(const Node& node) {
  if (node.num_inputs() != 1) return false;
  const std::string name = node.name();
  return std::find(kSeparable.begin(), kSeparable.end(), name) != kSeparable.end();
}

/// What is below a node.
struct Reach {
  bool inputs = false;
  std::vector<size_t> weights;
};

class Walk {
 public:
  Walk(const std::vector<Edge>& inputs, const std::vector<Edge>& weights)
      : uses_(weights.size(), 0) {
    for (const Edge& edge : inputs) {
      if (edge.function) reach_[edge.function.get()].inputs = true;
    }
    for (size_t w = 0; w < weights.size(); ++w) {
      if (weights[w].function) reach_[weights[w].function.get()].weights.push_back(w);
    }
  }

  /// Depth first without recursion, because a layer may be a long loop.
  void visit(const NodePointer& root) {
    if (reach_.contains(root.get())) return;
    std::vector<std::pair<NodePointer, size_t>> stack = {{root, 0}};
    reach_[root.get()];
    while (!stack.empty()) {
      auto& [node, next] = stack.back();
      if (next < node->num_outputs()) {
        const NodePointer& below = node->next_edge(next++).function;
        if (below && reach_.try_emplace(below.get()).second) stack.emplace_back(below, 0);
        continue;
      }
      finish(node);
      stack.pop_back();
    }
  }

  /// A gradient that reaches a weight directly from the outputs is made in I; W could not add to
  /// it.
  void count_direct(const Edge& root) {
    const Reach& reach = reach_.at(root.function.get());
    if (reach.inputs) return;
    for (const size_t w : reach.weights) ++uses_[w];
  }

  LayerSplit split() {
    LayerSplit result;
    for (auto& [node, weights] : above_inputs_) {
      std::erase_if(weights, [&](size_t w) { return uses_[w] != 1; });
      if (weights.empty() || !is_separable(*node))
        result.done.push_back(std::move(node));
      else
        result.deferred.push_back({std::move(node), std::move(weights)});
    }
    return result;
  }

 private:
  void finish(const NodePointer& node) {
    Reach reach;
    for (const Edge& edge : node->next_edges()) {
      if (!edge.function) continue;
      const Reach& below = reach_.at(edge.function.get());
      reach.inputs = reach.inputs || below.inputs;
      for (const size_t w : below.weights) {
        if (std::find(reach.weights.begin(), reach.weights.end(), w) == reach.weights.end())
          reach.weights.push_back(w);
      }
    }
    if (reach.inputs) {
      // W begins at the edges from here to nodes that depend only on weights.
      std::vector<size_t> weights;
      for (const Edge& edge : node->next_edges()) {
        if (!edge.function) continue;
        const Reach& below = reach_.at(edge.function.get());
        if (below.inputs) continue;
        weights.insert(weights.end(), below.weights.begin(), below.weights.end());
      }
      for (const size_t w : weights) ++uses_[w];
      above_inputs_.emplace_back(node, std::move(weights));
      reach.weights.clear();
    }
    reach_[node.get()] = std::move(reach);
  }

  std::unordered_map<const Node*, Reach> reach_;
  /// Per weight: edges through which W could reach it.
  std::vector<int> uses_;
  /// With the weights that only they use.
  std::vector<std::pair<NodePointer, std::vector<size_t>>> above_inputs_;
};

}  // namespace

LayerSplit split_layer(const std::vector<Edge>& roots, const std::vector<Edge>& inputs,
                       const std::vector<Edge>& weights) {
  Walk walk(inputs, weights);
  for (const Edge& root : roots) {
    walk.visit(root.function);
    walk.count_direct(root);
  }
  return walk.split();
}

}  // namespace penstock::runtime

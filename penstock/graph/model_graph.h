// The model as a directed acyclic graph of layers, without weights or code: what profile, planner
// and reports know about it. A layer has any number of inputs and outputs; skip connections and
// branches are ordinary edges. Immutable, so thread-safe; cheap to copy only for small graphs.
//
//   ModelGraph graph = ModelGraph::build(1, {{"fc1", "linear", {ValueRef::model_input(0)}, 1},
//       {"fc2", "linear", {{LayerId{0}, 0}}, 1}},
//                                        {{LayerId{1}, 0}});
#pragma once

#include <compare>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/util/ids.h"

namespace penstock::graph {

/// One tensor of the graph: output `output` of a layer, or (layer -1) the model's own input number
/// `output`.
struct ValueRef {
  LayerId layer;
  int output = 0;

  static ValueRef model_input(int index) { return {LayerId{-1}, index}; }
  bool is_model_input() const { return layer.value < 0; }
  auto operator<=>(const ValueRef&) const = default;
};

/// One parameter (weight tensor) of a layer: its position in the layer's list of parameters.
struct ParameterRef {
  LayerId layer;
  int parameter = 0;
  auto operator<=>(const ParameterRef&) const = default;
};

/// Parameter `parameter` of the layer that holds this is not a weight of its own: it is the weight
/// `owner`, used twice, trained once, its gradient the sum over the uses.
struct WeightTie {
  int parameter = 0;
  ParameterRef owner;
  auto operator<=>(const WeightTie&) const = default;
};

struct LayerNode {
  std::string name;  ///< unique in the graph; letters, digits, '_', '-', '.', at most 200 bytes
  std::string kind;  ///< "conv2d", "linear", ...; for people and reports
  std::vector<ValueRef> inputs;
  int num_outputs = 1;
  /// Ascending by parameter; the owner is a parameter of an earlier layer and itself not tied.
  std::vector<WeightTie> ties = {};

  bool operator==(const LayerNode&) const = default;
};

/// Whether `name` may name a layer.
bool is_layer_name(std::string_view name);

class ModelGraph {
 public:
  ModelGraph() = default;

  /// Checks the layers and puts them into topological order (stable: an order that is already
  /// topological is kept). Throws ConfigError naming the layer for: a duplicate or bad name, an
  /// input that does not exist, a cycle (its layers are listed), a layer without outputs, an output
  /// that does not exist, more than 1,000,000 layers, a parameter tied twice, to a layer that does
  /// not come before it, or to one that is tied itself. O(layers + edges + ties).
  static ModelGraph build(int num_inputs, std::vector<LayerNode> layers,
                          std::vector<ValueRef> outputs);

  int num_inputs() const { return num_inputs_; }
  int num_layers() const { return static_cast<int>(layers_.size()); }
  /// In topological order; LayerId is the position in this list.
  const std::vector<LayerNode>& layers() const { return layers_; }
  const LayerNode& layer(LayerId id) const { return layers_.at(id.index()); }
  /// The model's results, as the loss sees them.
  const std::vector<ValueRef>& outputs() const { return outputs_; }
  /// Distinct layers that `id` reads from / that read from `id`, ascending.
  const std::vector<LayerId>& predecessors(LayerId id) const {
    return predecessors_.at(id.index());
  }
  const std::vector<LayerId>& successors(LayerId id) const { return successors_.at(id.index()); }
  /// The parameter whose weight this one is: itself unless it is tied. O(ties of the layer).
  ParameterRef owner(const ParameterRef& parameter) const;
  /// The layer of that name. Throws ConfigError naming it when there is none.
  LayerId find(const std::string& name) const;

  bool operator==(const ModelGraph& other) const {
    return num_inputs_ == other.num_inputs_ && layers_ == other.layers_ &&
           outputs_ == other.outputs_;
  }

 private:
  int num_inputs_ = 0;
  std::vector<LayerNode> layers_;
  std::vector<ValueRef> outputs_;
  std::vector<std::vector<LayerId>> predecessors_;
  std::vector<std::vector<LayerId>> successors_;
};

/// All uses of one tied weight: the owner first, then the layers that borrow it, ascending.
using TieGroup = std::vector<ParameterRef>;
/// The weights that have several uses, ascending by owner. O(layers + ties * log ties).
std::vector<TieGroup> tie_groups(const ModelGraph& graph);

/// A value made by a layer of stage `from` and read by a layer of the later stage `to`.
struct CrossingValue {
  ValueRef value;
  StageId from;
  StageId to;
  auto operator<=>(const CrossingValue&) const = default;
};
/// Each (value, consumer stage) pair once, ascending, given the stage of every layer; model inputs
/// are not included. Throws ConfigError when there is not one stage per layer or a value flows from
/// a later stage to an earlier one.
std::vector<CrossingValue> crossing_values(const ModelGraph& graph,
                                           const std::vector<StageId>& stage_of_layer);

}  // namespace penstock::graph

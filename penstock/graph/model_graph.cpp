#include "penstock/graph/model_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "penstock/util/error.h"

namespace penstock::graph {

namespace {

constexpr size_t kMaxLayers = 1'000'000;
constexpr size_t kMaxNameBytes = 200;
constexpr size_t kMaxCycleListed = 20;
constexpr size_t kMaxTies = 1000;

bool is_name_byte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.';
}

void check_name(const std::string& name, size_t position) {
  if (is_layer_name(name)) return;
  throw ConfigError(fmt::format(
      "layer {}: expected a name of 1 to {} letters, digits, '_', '-' or '.', found '{}'{}",
      position, kMaxNameBytes, name.substr(0, 60),
      name.size() > 60 ? fmt::format("... ({} bytes)", name.size()) : ""));
}

void check_value(const ValueRef& value, int num_inputs, const std::vector<LayerNode>& layers,
                 std::string_view reader) {
  if (value.is_model_input()) {
    if (value.layer.value == -1 && value.output >= 0 && value.output < num_inputs) return;
    throw ConfigError(fmt::format("{} reads model input {}, but the model has {} inputs", reader,
                                  value.output, num_inputs));
  }
  if (value.layer.index() >= layers.size()) {
    throw ConfigError(fmt::format("{} reads layer number {}, but there are {} layers", reader,
                                  value.layer.value, layers.size()));
  }
  const LayerNode& source = layers[value.layer.index()];
  if (value.output < 0 || value.output >= source.num_outputs) {
    throw ConfigError(fmt::format("{} reads output {} of layer '{}', which has {} outputs", reader,
                                  value.output, source.name, source.num_outputs));
  }
}

void check_layers(int num_inputs, const std::vector<LayerNode>& layers,
                  const std::vector<ValueRef>& outputs) {
  if (num_inputs < 0)
    throw ConfigError(
        fmt::format("expected a number of model inputs of at least 0, found {}", num_inputs));
  if (layers.size() > kMaxLayers)
    throw ConfigError(
        fmt::format("expected at most {} layers, found {}", kMaxLayers, layers.size()));
  std::unordered_set<std::string_view> names;
  names.reserve(layers.size());
  for (size_t i = 0; i < layers.size(); ++i) {
    check_name(layers[i].name, i);
    if (!names.insert(layers[i].name).second)
      throw ConfigError(fmt::format("two layers have the name '{}'", layers[i].name));
    if (layers[i].num_outputs < 1) {
      throw ConfigError(fmt::format("layer '{}': expected at least 1 output, found {}",
                                    layers[i].name, layers[i].num_outputs));
    }
  }
  for (const LayerNode& layer : layers) {
    const std::string reader = fmt::format("layer '{}'", layer.name);
    for (const ValueRef& input : layer.inputs) check_value(input, num_inputs, layers, reader);
    for (const WeightTie& tie : layer.ties) {
      if (tie.owner.layer.index() < layers.size()) continue;
      throw ConfigError(fmt::format("{} ties a weight to layer number {}, but there are {} layers",
                                    reader, tie.owner.layer.value, layers.size()));
    }
  }
  for (const ValueRef& output : outputs)
    check_value(output, num_inputs, layers, "the model's list of outputs");
}

/// Once the layers are in order: `layer` may borrow earlier layers' own weights only.
void check_ties(const std::vector<LayerNode>& layers, size_t layer) {
  const LayerNode& node = layers[layer];
  if (node.ties.size() > kMaxTies) {
    throw ConfigError(fmt::format("layer '{}': expected at most {} tied parameters, found {}",
                                  node.name, kMaxTies, node.ties.size()));
  }
  int last = -1;
  for (const WeightTie& tie : node.ties) {
    if (tie.parameter < 0 || tie.owner.parameter < 0) {
      throw ConfigError(fmt::format(
          "layer '{}' ties parameter {} to parameter {}, expected numbers of at least 0", node.name,
          tie.parameter, tie.owner.parameter));
    }
    if (tie.parameter <= last) {
      throw ConfigError(fmt::format(
          "layer '{}' ties parameter {} after parameter {}, expected each once, ascending",
          node.name, tie.parameter, last));
    }
    last = tie.parameter;
    if (tie.owner.layer.value < 0 || tie.owner.layer.index() >= layer) {
      throw ConfigError(
          fmt::format("layer '{}' ties its parameter {} to a layer that does not come before it",
                      node.name, tie.parameter));
    }
    const LayerNode& owner = layers[tie.owner.layer.index()];
    for (const WeightTie& other : owner.ties) {
      if (other.parameter != tie.owner.parameter) continue;
      throw ConfigError(
          fmt::format("layer '{}' ties its parameter {} to parameter {} of '{}', which is tied "
                      "itself: name its owner, '{}'",
                      node.name, tie.parameter, other.parameter, owner.name,
                      layers[other.owner.layer.index()].name));
    }
  }
}

/// One layer whose inputs are being visited, and the next of them.
struct Visit {
  size_t layer;
  size_t next_input = 0;
};

[[noreturn]] void report_cycle(const std::vector<LayerNode>& layers, const std::vector<Visit>& path,
                               size_t closing) {
  // The path runs from readers to what they read; data flows the other way.
  size_t first = 0;
  while (path[first].layer != closing) ++first;
  std::string list = layers[closing].name;
  size_t listed = 1;
  for (size_t i = path.size(); i-- > first + 1 && listed < kMaxCycleListed; ++listed)
    list += " -> " + layers[path[i].layer].name;
  const size_t length = path.size() - first;
  if (length > listed) list += fmt::format(" -> ... {} more", length - listed);
  throw ConfigError(fmt::format("the graph has a cycle: {} -> {}", list, layers[closing].name));
}

/// Positions in topological order: layers as listed, each preceded by those of its inputs that have
/// not come yet.
std::vector<size_t> topological_order(const std::vector<LayerNode>& layers) {
  enum class Mark : uint8_t { New, OnPath, Done };
  std::vector<Mark> marks(layers.size(), Mark::New);
  std::vector<size_t> order;
  order.reserve(layers.size());
  std::vector<Visit> path;  // explicit: a chain of a million layers would overflow the call stack
  const auto enter = [&](size_t layer) {
    marks[layer] = Mark::OnPath;
    path.push_back({layer});
  };
  for (size_t start = 0; start < layers.size(); ++start) {
    if (marks[start] == Mark::New) enter(start);
    while (!path.empty()) {
      Visit& visit = path.back();
      const std::vector<ValueRef>& inputs = layers[visit.layer].inputs;
      if (visit.next_input == inputs.size()) {
        marks[visit.layer] = Mark::Done;
        order.push_back(visit.layer);
        path.pop_back();
        continue;
      }
      const ValueRef& input = inputs[visit.next_input++];
      if (input.is_model_input()) continue;
      const size_t source = input.layer.index();
      if (marks[source] == Mark::OnPath) report_cycle(layers, path, source);
      if (marks[source] == Mark::New) enter(source);
    }
  }
  return order;
}

}  // namespace

bool is_layer_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxNameBytes &&
         std::all_of(name.begin(), name.end(), is_name_byte);
}

ModelGraph ModelGraph::build(int num_inputs, std::vector<LayerNode> layers,
                             std::vector<ValueRef> outputs) {
  check_layers(num_inputs, layers, outputs);
  const std::vector<size_t> order = topological_order(layers);
  std::vector<LayerId> new_ids(layers.size());
  for (size_t i = 0; i < order.size(); ++i) new_ids[order[i]] = LayerId{static_cast<int32_t>(i)};
  const auto renumber = [&](ValueRef& value) {
    if (!value.is_model_input()) value.layer = new_ids[value.layer.index()];
  };

  ModelGraph graph;
  graph.num_inputs_ = num_inputs;
  graph.layers_.reserve(layers.size());
  for (const size_t position : order) graph.layers_.push_back(std::move(layers[position]));
  for (LayerNode& layer : graph.layers_) {
    std::for_each(layer.inputs.begin(), layer.inputs.end(), renumber);
    for (WeightTie& tie : layer.ties) tie.owner.layer = new_ids[tie.owner.layer.index()];
  }
  for (size_t i = 0; i < graph.layers_.size(); ++i) check_ties(graph.layers_, i);
  graph.outputs_ = std::move(outputs);
  std::for_each(graph.outputs_.begin(), graph.outputs_.end(), renumber);

  // Consumers come in ascending order, so each list is sorted from the start and repeats are
  // neighbours.
  graph.successors_.resize(order.size());
  graph.predecessors_.resize(order.size());
  for (size_t consumer = 0; consumer < order.size(); ++consumer) {
    const LayerId id{static_cast<int32_t>(consumer)};
    for (const ValueRef& input : graph.layers_[consumer].inputs) {
      if (input.is_model_input()) continue;
      auto& readers = graph.successors_[input.layer.index()];
      if (readers.empty() || readers.back() != id) readers.push_back(id);
    }
  }
  for (size_t source = 0; source < order.size(); ++source) {
    for (const LayerId reader : graph.successors_[source])
      graph.predecessors_[reader.index()].push_back(LayerId{static_cast<int32_t>(source)});
  }
  return graph;
}

LayerId ModelGraph::find(const std::string& name) const {
  const auto found = std::find_if(layers_.begin(), layers_.end(),
                                  [&](const LayerNode& layer) { return layer.name == name; });
  if (found == layers_.end()) throw ConfigError(fmt::format("the model has no layer '{}'", name));
  return LayerId{static_cast<int32_t>(found - layers_.begin())};
}

ParameterRef ModelGraph::owner(const ParameterRef& parameter) const {
  for (const WeightTie& tie : layer(parameter.layer).ties) {
    if (tie.parameter == parameter.parameter) return tie.owner;
  }
  return parameter;
}

std::vector<TieGroup> tie_groups(const ModelGraph& graph) {
  std::map<ParameterRef, TieGroup> by_owner;
  for (size_t i = 0; i < graph.layers().size(); ++i) {
    for (const WeightTie& tie : graph.layers()[i].ties) {
      TieGroup& group = by_owner[tie.owner];
      if (group.empty()) group.push_back(tie.owner);
      group.push_back({LayerId{static_cast<int32_t>(i)}, tie.parameter});
    }
  }
  std::vector<TieGroup> groups;
  groups.reserve(by_owner.size());
  for (auto& [owner, group] : by_owner) groups.push_back(std::move(group));
  return groups;
}

std::vector<CrossingValue> crossing_values(const ModelGraph& graph,
                                           const std::vector<StageId>& stage_of_layer) {
  if (stage_of_layer.size() != graph.layers().size()) {
    throw ConfigError(fmt::format("expected a stage for each of the {} layers, found {}",
                                  graph.num_layers(), stage_of_layer.size()));
  }
  std::vector<CrossingValue> crossing;
  for (size_t consumer = 0; consumer < stage_of_layer.size(); ++consumer) {
    const StageId to = stage_of_layer[consumer];
    for (const ValueRef& input : graph.layers()[consumer].inputs) {
      if (input.is_model_input()) continue;
      const StageId from = stage_of_layer[input.layer.index()];
      if (from > to) {
        throw ConfigError(fmt::format(
            "layer '{}' of stage {} reads layer '{}' of the later stage {}",
            graph.layers()[consumer].name, to.value, graph.layer(input.layer).name, from.value));
      }
      if (from < to) crossing.push_back({input, from, to});
    }
  }
  std::sort(crossing.begin(), crossing.end());
  crossing.erase(std::unique(crossing.begin(), crossing.end()), crossing.end());
  return crossing;
}

}  // namespace penstock::graph

#include "penstock/imported/flat_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include "penstock/util/text/printable.h"

namespace penstock::imported {

using exported::Argument;
using exported::Graph;
using exported::GraphArgument;
using exported::Node;
using exported::TensorArgument;

namespace {

constexpr int kMaxDepth = 20;

/// Names of an inner graph -> names of the flat program.
using Names = std::map<std::string, std::string>;

void rename(std::string& name, const Names& names) {
  if (const auto found = names.find(name); found != names.end()) name = found->second;
}

void rename(Argument& argument, const Names& names) {
  std::visit(
      [&](auto& value) {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, TensorArgument>) {
          rename(value.name, names);
        } else if constexpr (std::is_same_v<T, std::vector<TensorArgument>>) {
          for (TensorArgument& one : value) rename(one.name, names);
        } else if constexpr (std::is_same_v<T, std::vector<std::optional<TensorArgument>>>) {
          for (auto& one : value) {
            if (one) rename(one->name, names);
          }
        } else if constexpr (std::is_same_v<T, exported::SymIntArgument> ||
                             std::is_same_v<T, exported::SymFloatArgument> ||
                             std::is_same_v<T, exported::SymBoolArgument>) {
          if (auto* name = std::get_if<std::string>(&value.value)) rename(*name, names);
        } else if constexpr (std::is_same_v<T, std::vector<exported::SymIntArgument>>) {
          for (auto& one : value) {
            if (auto* name = std::get_if<std::string>(&one.value)) rename(*name, names);
          }
        }
      },
      argument);
}

bool is_size(const Argument& argument) {
  return std::holds_alternative<exported::SymIntArgument>(argument) ||
         std::holds_alternative<exported::SymBoolArgument>(argument) ||
         std::holds_alternative<exported::SymFloatArgument>(argument);
}

bool only_checks(std::string_view target) {
  for (const std::string_view name :
       {"torch.ops.aten._assert_scalar.", "torch.ops.aten._assert_tensor_metadata.",
        "torch.ops.aten._assert_async.", "torch.ops.aten.sym_constrain_range.",
        "torch.ops.aten.sym_constrain_range_for_size."}) {
    if (target.starts_with(name)) return true;
  }
  return false;
}

/// The tensors that an argument names, flat.
std::vector<std::string> names_in(const Argument& argument) {
  if (const auto* one = std::get_if<TensorArgument>(&argument)) return {one->name};
  std::vector<std::string> names;
  if (const auto* many = std::get_if<std::vector<TensorArgument>>(&argument)) {
    for (const TensorArgument& one : *many) names.push_back(one.name);
  }
  return names;
}

class Flattener {
 public:
  Flattener(FlatProgram& flat, Reasons& reasons) : flat_(flat), reasons_(reasons) {}

  /// `names` gains the graph's own names.
  void graph(const Graph& graph, Names& names, bool gradient, int depth, bool inner) {
    const std::string prefix = inner ? fmt::format("inner{}_", ++num_inner_) : "";
    const auto own = [&](const std::string& name) {
      if (inner) names.try_emplace(name, prefix + name);
    };
    for (const auto& [name, meta] : graph.tensors) {
      own(name);
      std::string flat_name = name;
      rename(flat_name, names);
      flat_.tensors.try_emplace(flat_name, meta);
    }
    for (const auto& [name, size] : graph.sym_ints) {
      own(name);
      std::string flat_name = name;
      rename(flat_name, names);
      flat_.sizes.try_emplace(flat_name, size);
    }
    for (const Node& original : graph.nodes) {
      const bool has_sizes_only =
          !original.outputs.empty() &&
          std::all_of(original.outputs.begin(), original.outputs.end(), is_size);
      if (has_sizes_only || only_checks(original.target)) continue;
      Node node = original;
      for (auto& input : node.inputs) rename(input.value, names);
      for (Argument& output : node.outputs) rename(output, names);
      if (!inner_graph(node, names, gradient, depth))
        flat_.steps.push_back({.node = node, .gradient = gradient});
    }
  }

 private:
  /// Whether the node was an operator that runs a graph.
  bool inner_graph(const Node& node, Names& outer, bool gradient, int depth) {
    if (!node.target.starts_with("torch.ops.higher_order.")) return false;
    const GraphArgument* inner = nullptr;
    size_t place = 0;
    int num_graphs = 0;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const auto* graph = std::get_if<GraphArgument>(&node.inputs[i].value);
      if (graph == nullptr) continue;
      inner = graph;
      place = i;
      ++num_graphs;
    }
    const std::string_view name = std::string_view(node.target).substr(23);
    if (num_graphs != 1 || inner->graph == nullptr || depth >= kMaxDepth) {
      refuse(node);
      return true;
    }
    if (name == "wrap_with_set_grad_enabled" && place == 1 && first_bool(node).has_value()) {
      gradient = gradient && *first_bool(node);
    } else if (name == "wrap_with_autocast" && place == 4 && autocast_is_off(node)) {
      // Nothing changes inside.
    } else {
      refuse(node);
      return true;
    }
    lay_open(node, *inner->graph, place + 1, outer, gradient, depth);
    return true;
  }

  void refuse(const Node& node) {
    reasons_.push_back(
        fmt::format("{}: {} is not supported", place_of(node), printable(node.target)));
  }

  static std::optional<bool> first_bool(const Node& node) {
    const auto* value = std::get_if<bool>(&node.inputs.front().value);
    return value != nullptr ? std::optional<bool>(*value) : std::nullopt;
  }

  /// Arguments: device type, data type, enabled, cache, graph.
  static bool autocast_is_off(const Node& node) {
    const auto* enabled = std::get_if<bool>(&node.inputs[2].value);
    return enabled != nullptr && !*enabled;
  }

  void lay_open(const Node& node, const Graph& graph, size_t first_argument, Names& outer,
                bool gradient, int depth) {
    Names names;
    if (node.inputs.size() - first_argument != graph.inputs.size()) return refuse(node);
    for (size_t i = 0; i < graph.inputs.size(); ++i) {
      const auto* own = std::get_if<TensorArgument>(&graph.inputs[i]);
      const auto* given = std::get_if<TensorArgument>(&node.inputs[first_argument + i].value);
      const auto* own_size = std::get_if<exported::SymIntArgument>(&graph.inputs[i]);
      const auto* size =
          std::get_if<exported::SymIntArgument>(&node.inputs[first_argument + i].value);
      if (own != nullptr && given != nullptr) {
        names[own->name] = given->name;
      } else if (own_size != nullptr && size != nullptr &&
                 std::holds_alternative<std::string>(own_size->value) &&
                 std::holds_alternative<std::string>(size->value)) {
        names[std::get<std::string>(own_size->value)] = std::get<std::string>(size->value);
      } else {
        return refuse(node);
      }
    }
    std::vector<std::string> made;
    for (const Argument& output : node.outputs) {
      for (const std::string& name : names_in(output)) made.push_back(name);
    }
    std::vector<std::string> results;
    for (const Argument& output : graph.outputs) {
      for (const std::string& name : names_in(output)) results.push_back(name);
    }
    if (made.size() != results.size()) return refuse(node);
    for (size_t i = 0; i < made.size(); ++i) {
      // An input that is handed through: later steps mean the outer value.
      if (const auto found = names.find(results[i]); found != names.end())
        outer[made[i]] = found->second;
      else
        names[results[i]] = made[i];
    }
    this->graph(graph, names, gradient, depth + 1, true);
  }

  FlatProgram& flat_;
  Reasons& reasons_;
  int num_inner_ = 0;
};

/// "model.py:17" of the innermost line that is not PyTorch's own.
std::string source_line(const std::string& trace) {
  std::string best;
  size_t at = 0;
  while ((at = trace.find("File \"", at)) != std::string::npos) {
    at += 6;
    const size_t end = trace.find('"', at);
    if (end == std::string::npos) break;
    const std::string file = trace.substr(at, end - at);
    at = end;
    const size_t line = trace.find("line ", end);
    if (line == std::string::npos) break;
    const size_t stop = trace.find_first_not_of("0123456789", line + 5);
    if (!best.empty() && file.find("site-packages/torch/") != std::string::npos) continue;
    best = fmt::format("{}:{}", file.substr(file.rfind('/') + 1),
                       trace.substr(line + 5, stop == std::string::npos ? stop : stop - line - 5));
  }
  return best;
}

}  // namespace

std::string place_of(const exported::Node& node) {
  std::string name = node.name.empty() ? node.target : node.name;
  std::string details = node.modules.empty() ? "" : node.modules.back().path;
  const std::string line = source_line(node.stack_trace);
  if (!line.empty()) details += (details.empty() ? "" : ", ") + line;
  return printable(details.empty() ? fmt::format("'{}'", name)
                                   : fmt::format("'{}' ({})", name, details));
}

FlatProgram excerpt(const FlatProgram& program, const std::vector<size_t>& steps,
                    const std::vector<std::string>& names) {
  FlatProgram some;
  const auto add_tensor = [&](const std::string& name) {
    const auto found = program.tensors.find(name);
    if (found != program.tensors.end()) some.tensors.insert(*found);
  };
  const auto add = [&](const Argument& argument) {
    for (const std::string& name : names_in(argument)) add_tensor(name);
    if (const auto* several = std::get_if<std::vector<std::optional<TensorArgument>>>(&argument)) {
      for (const auto& one : *several) {
        if (one) add_tensor(one->name);
      }
    }
    const auto add_size = [&](const exported::SymIntArgument& size) {
      const auto* name = std::get_if<std::string>(&size.value);
      if (name == nullptr) return;
      const auto found = program.sizes.find(*name);
      if (found != program.sizes.end()) some.sizes.insert(*found);
    };
    if (const auto* size = std::get_if<exported::SymIntArgument>(&argument)) add_size(*size);
    if (const auto* sizes = std::get_if<std::vector<exported::SymIntArgument>>(&argument))
      std::for_each(sizes->begin(), sizes->end(), add_size);
  };
  for (const size_t s : steps) {
    Step step = program.steps[s];
    step.node.stack_trace.clear();
    if (!step.ordinal) step.ordinal = some.steps.size();
    for (const auto& input : step.node.inputs) add(input.value);
    for (const Argument& output : step.node.outputs) add(output);
    some.steps.push_back(std::move(step));
  }
  for (const std::string& name : names) add_tensor(name);
  return some;
}

FlatProgram flatten(const exported::Program& program, Reasons& reasons) {
  FlatProgram flat;
  Names names;
  Flattener(flat, reasons).graph(program.graph, names, true, 0, false);
  flat.outputs = program.graph.outputs;
  for (exported::Argument& output : flat.outputs) rename(output, names);
  return flat;
}

}  // namespace penstock::imported

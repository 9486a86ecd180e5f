#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <numeric>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "penstock/profile/profile.h"
#include "penstock/profile/saved_values.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/arithmetic.h"
#include "penstock/util/numbers/rounding.h"
#include "penstock/util/text/quoted.h"

namespace penstock::profile {

namespace {

using graph::LayerNode;
using graph::ValueRef;

constexpr std::string_view kSeparator = " -- ";
constexpr double kLargest = 0x1p62;
constexpr double kNsPerMs = 1e6;
/// An edge carries every output of its source, so a small file could ask for the product of two
/// large counts.
constexpr int64_t kMaxReads = 10'000'000;

struct Node {
  std::string_view id;
  bool is_input = false;
  std::string kind;
  LayerCost cost;
};

struct Edge {
  size_t from;  ///< positions in the list of nodes
  size_t to;
};

/// Where the parser is, for messages.
struct Location {
  std::string_view place;
  int64_t line;

  [[noreturn]] void fail(std::string_view message) const { throw ParseError(place, line, message); }
};

std::string_view trim(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

/// A number times `scale`, rounded to an integer.
int64_t read_number(std::string_view text, double scale, std::string_view key, const Location& at) {
  double value = 0;
  const std::string_view digits = trim(text);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc{} || end != digits.data() + digits.size() || !(value >= 0) ||
      !(value * scale <= kLargest)) {
    at.fail(fmt::format("{}: expected a number of at least 0, found {}", key, in_quotes(digits)));
  }
  return nearest(value * scale);
}

/// "123.0" or "[6291456.0; 131072.0]".
std::vector<int64_t> read_sizes(std::string_view text, std::string_view key, const Location& at) {
  text = trim(text);
  const bool is_list = text.starts_with('[');
  if (is_list && !text.ends_with(']'))
    at.fail(fmt::format("{}: expected a list such as [1.0; 2.0], found {}", key, in_quotes(text)));
  std::string_view rest = is_list ? text.substr(1, text.size() - 2) : text;
  std::vector<int64_t> sizes;
  while (true) {
    const size_t end = is_list ? rest.find(';') : std::string_view::npos;
    sizes.push_back(read_number(rest.substr(0, end), 1, key, at));
    if (end == std::string_view::npos) return sizes;
    rest.remove_prefix(end + 1);
  }
}

/// "forward_compute_time=2.2, backward_compute_time=2.7, activation_size=205520896.000,
/// parameter_size=0.000"
LayerCost read_costs(std::string_view text, const Location& at) {
  LayerCost cost;
  constexpr std::string_view kKeys[] = {"forward_compute_time", "backward_compute_time",
                                        "activation_size", "parameter_size"};
  for (const std::string_view key : kKeys) {
    const size_t end = std::min(text.find(','), text.size());
    const std::string_view field = trim(text.substr(0, end));
    if (!field.starts_with(key) || field.substr(key.size(), 1) != "=")
      at.fail(fmt::format("expected {}=..., found {}", key, in_quotes(field)));
    const std::string_view value = field.substr(key.size() + 1);
    if (key == kKeys[0]) cost.forward_ns = read_number(value, kNsPerMs, key, at);
    if (key == kKeys[1]) cost.backward_ns = read_number(value, kNsPerMs, key, at);
    if (key == kKeys[2]) cost.output_bytes = read_sizes(value, key, at);
    if (key == kKeys[3]) cost.weight_bytes = read_number(value, 1, key, at);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  if (!trim(text).empty())
    at.fail(fmt::format("expected the end of the line after parameter_size, found {}",
                        in_quotes(text)));
  return cost;
}

/// The description's first word: "Conv2d(3, 64, ...)" is a "conv2d".
std::string kind_of(std::string_view description) {
  std::string kind;
  for (const char c : description) {
    const bool upper = c >= 'A' && c <= 'Z';
    if (!upper && !(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && c != '_') break;
    kind += upper ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return kind.empty() ? "layer" : kind;
}

Node read_node(std::string_view line, const Location& at) {
  const size_t id_end = line.find(kSeparator);
  // The description may contain any text, also the separator.
  const size_t costs = line.find(" -- forward_compute_time=");
  if (id_end == std::string_view::npos || costs == std::string_view::npos || costs <= id_end) {
    at.fail(fmt::format("expected 'id -- description -- forward_compute_time=..., ...', found {}",
                        in_quotes(line)));
  }
  Node node;
  node.id = trim(line.substr(0, id_end));
  if (!graph::is_layer_name(node.id))
    at.fail(fmt::format("expected a node id of letters, digits, '_', '-' or '.', found {}",
                        in_quotes(node.id)));
  const std::string_view description =
      trim(line.substr(id_end + kSeparator.size(), costs - id_end - kSeparator.size()));
  node.is_input = description.starts_with("Input");
  node.kind = kind_of(description);
  std::string_view fields = line.substr(costs + kSeparator.size());
  // PipeDream's optimiser appends the stage it chose.
  if (const size_t stage = fields.find(" -- stage_id="); stage != std::string_view::npos)
    fields = fields.substr(0, stage);
  node.cost = read_costs(fields, at);
  return node;
}

struct GraphFile {
  std::vector<Node> nodes;
  std::vector<Edge> edges;
};

struct EdgeLine {
  std::string_view text;
  int64_t line;
};

GraphFile read_lines(std::string_view text, std::string_view place) {
  GraphFile file;
  std::vector<EdgeLine> edge_lines;
  std::unordered_map<std::string_view, size_t> positions;
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const Location at{place, number};
    if (trim(line).empty()) continue;
    if (line.front() == '\t' || line.front() == ' ') {
      edge_lines.push_back({trim(line), number});
      continue;
    }
    file.nodes.push_back(read_node(line, at));
    if (!positions.emplace(file.nodes.back().id, file.nodes.size() - 1).second) {
      at.fail(fmt::format("the node {} is described twice", in_quotes(file.nodes.back().id)));
    }
  }
  const auto position = [&](std::string_view id, const Location& at) {
    const auto found = positions.find(trim(id));
    if (found == positions.end())
      at.fail(fmt::format("no line describes the node {}", in_quotes(trim(id))));
    return found->second;
  };
  for (const EdgeLine& edge : edge_lines) {
    const Location at{place, edge.line};
    const size_t middle = edge.text.find(kSeparator);
    if (middle == std::string_view::npos)
      at.fail(fmt::format("expected an edge 'id -- id', found {}", in_quotes(edge.text)));
    file.edges.push_back({position(edge.text.substr(0, middle), at),
                          position(edge.text.substr(middle + kSeparator.size()), at)});
    if (const Node& to = file.nodes[file.edges.back().to]; to.is_input)
      at.fail(fmt::format("expected no edge into the input {}", in_quotes(to.id)));
  }
  return file;
}

/// "node9" comes before "node10": by the number at the end, then by the whole id.
auto order_of(std::string_view id) {
  const size_t last_letter = id.find_last_not_of("0123456789");
  std::string_view digits = id.substr(last_letter == std::string_view::npos ? 0 : last_letter + 1);
  digits.remove_prefix(std::min(digits.find_first_not_of('0'), digits.size()));
  return std::tuple(digits.size(), digits, id);
}

/// Positions of the nodes in the order of their ids: the order in which the profiled program made
/// them. The order in the file is arbitrary.
std::vector<size_t> in_id_order(const std::vector<Node>& nodes) {
  std::vector<size_t> order(nodes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return order_of(nodes[a].id) < order_of(nodes[b].id); });
  return order;
}

/// The values that an edge from this node carries; `number` counts model inputs or layers.
void append_values(const Node& node, size_t number, std::vector<ValueRef>& values) {
  if (node.is_input) return values.push_back(ValueRef::model_input(static_cast<int>(number)));
  for (size_t output = 0; output < node.cost.output_bytes.size(); ++output) {
    values.push_back({LayerId{static_cast<int32_t>(number)}, static_cast<int>(output)});
  }
}

graph::ModelGraph build_graph(const GraphFile& file) {
  std::vector<size_t> number(file.nodes.size());
  std::vector<LayerNode> layers;
  int num_inputs = 0;
  for (const size_t position : in_id_order(file.nodes)) {
    const Node& node = file.nodes[position];
    number[position] = node.is_input ? static_cast<size_t>(num_inputs++) : layers.size();
    if (!node.is_input)
      layers.push_back(
          {std::string(node.id), node.kind, {}, static_cast<int>(node.cost.output_bytes.size())});
  }
  int64_t reads = 0;
  for (const Edge& edge : file.edges)
    reads += static_cast<int64_t>(file.nodes[edge.from].cost.output_bytes.size());
  if (reads > kMaxReads)
    throw ConfigError(
        fmt::format("the edges carry {} values, expected at most {}", reads, kMaxReads));
  std::vector<bool> is_read(file.nodes.size());
  for (const Edge& edge : file.edges) {
    append_values(file.nodes[edge.from], number[edge.from], layers[number[edge.to]].inputs);
    is_read[edge.from] = true;
  }
  std::vector<ValueRef> outputs;
  for (const size_t position : in_id_order(file.nodes)) {
    const Node& node = file.nodes[position];
    if (!node.is_input && !is_read[position]) append_values(node, number[position], outputs);
  }
  return graph::ModelGraph::build(num_inputs, std::move(layers), std::move(outputs));
}

/// "profiles/vgg16.graph.txt" is a profile of vgg16.
std::string model_name(std::string_view place) {
  const size_t slash = place.find_last_of('/');
  const std::string_view name = slash == std::string_view::npos ? place : place.substr(slash + 1);
  return std::string(name.substr(0, name.find('.')));
}

/// What the modules of PyTorch save, by the names in descriptions; others are taken to save all.
LayerSaves saves_by_kind(const LayerNode& layer) {
  const auto is_one_of = [&](std::initializer_list<std::string_view> kinds) {
    return std::find(kinds.begin(), kinds.end(), layer.kind) != kinds.end();
  };
  if (is_one_of({"view", "size", "__getitem__"})) return saves_of(layer, false, false, true);
  if (is_one_of({"add", "concat"})) return saves_of(layer, false, false);
  if (is_one_of({"relu", "sigmoid", "tanh", "softmax", "dropout"}))
    return saves_of(layer, false, true);
  if (is_one_of({"conv2d", "linear", "batchnorm2d", "maxpool2d", "avgpool2d", "embedding"}))
    return saves_of(layer, true, false);
  return saves_of(layer, true, true);
}

/// The file has no memory, only sizes of outputs: those that the backward pass needs count.
void count_saved_values(Profile& profile) {
  std::vector<LayerSaves> saves;
  for (const LayerNode& layer : profile.graph.layers()) saves.push_back(saves_by_kind(layer));
  const std::vector<int64_t> saved =
      saved_bytes(profile.graph, saves, [&](const ValueRef& value) -> int64_t {
        if (value.is_model_input()) return 0;  // not known
        const LayerCost& maker = profile.costs[value.layer.index()];
        return maker.output_bytes[static_cast<size_t>(value.output)];
      });
  for (size_t l = 0; l < saved.size(); ++l) profile.costs[l].stash_bytes = saved[l];
}

}  // namespace

Profile parse_pipedream_graph(std::string_view text, std::string_view place) {
  GraphFile file = read_lines(text, place);
  Profile profile;
  profile.model = model_name(place);
  profile.source = kGraphFile;
  try {
    profile.graph = build_graph(file);
    std::unordered_map<std::string_view, LayerCost*> costs;
    for (Node& node : file.nodes) costs.emplace(node.id, &node.cost);
    for (const LayerNode& layer : profile.graph.layers())
      profile.costs.push_back(std::move(*costs.at(layer.name)));
    validate(profile);
    count_saved_values(profile);
  } catch (const ConfigError& error) {
    throw ParseError(place, 0, error.what());
  }
  return profile;
}

}  // namespace penstock::profile

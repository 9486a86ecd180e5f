#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <climits>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "penstock/profile/profile.h"
#include "penstock/profile/profile_document.h"
#include "penstock/util/error.h"
#include "penstock/util/files/files.h"
#include "penstock/util/files/json.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::profile {

namespace {

using graph::LayerNode;
using graph::ModelGraph;
using graph::ValueRef;

constexpr int64_t kVersion = 1;
constexpr int64_t kMaxLayers = 1'000'000;
constexpr int64_t kMaxInputs = 1'000'000;

using LayerPositions = std::unordered_map<std::string, int32_t>;

/// A value is written as [layer name, output], the model's own input number k as ["@k", 0].
Json write_value(const ValueRef& value, const ModelGraph& graph) {
  if (value.is_model_input()) return Json::array({fmt::format("@{}", value.output), 0});
  return Json::array({graph.layer(value.layer).name, value.output});
}

Json write_values(const std::vector<ValueRef>& values, const ModelGraph& graph) {
  Json list = Json::array();
  for (const ValueRef& value : values) list.push_back(write_value(value, graph));
  return list;
}

/// [parameter, owner layer, owner parameter, bytes] per tied weight.
Json write_ties(const LayerNode& layer, const LayerCost& cost, const ModelGraph& graph) {
  Json list = Json::array();
  for (size_t k = 0; k < layer.ties.size(); ++k) {
    const graph::WeightTie& tie = layer.ties[k];
    list.push_back(Json::array({tie.parameter, graph.layer(tie.owner.layer).name,
                                tie.owner.parameter, cost.tied_bytes[k]}));
  }
  return list;
}

/// Positions of what is saved: {"inputs": [0], "outputs": []}, and "view_of" where there are views.
Json write_saves(const LayerSaves& saves) {
  const auto positions = [](const std::vector<bool>& are_saved) {
    Json list = Json::array();
    for (size_t i = 0; i < are_saved.size(); ++i) {
      if (are_saved[i]) list.push_back(i);
    }
    return list;
  };
  Json json{{"inputs", positions(saves.inputs)}, {"outputs", positions(saves.outputs)}};
  if (std::ranges::any_of(saves.view_of, [](int input) { return input >= 0; }))
    json["view_of"] = saves.view_of;
  return json;
}

Json write_team(const TensorShare& team) {
  Json json{{"spread", team.spread},
            {"spread_stash", team.spread_stash},
            {"units", team.units},
            {"sums", team.sums},
            {"sum_bytes", team.sum_bytes},
            {"back_sums", team.back_sums},
            {"back_sum_bytes", team.back_sum_bytes}};
  if (team.sequence) {
    json["sequence"] = {{"work", team.sequence->work},
                        {"stash", team.sequence->stash},
                        {"sums", team.sequence->sums},
                        {"sum_bytes", team.sequence->sum_bytes}};
  }
  return json;
}

std::optional<SequenceShare> read_sequence(const JsonReader& reader) {
  const auto own = reader.find("sequence");
  if (!own) return std::nullopt;
  return SequenceShare{.work = own->at("work").number(),
                       .stash = own->at("stash").number(),
                       .sums = own->integer_or("sums", 0, 0),
                       .sum_bytes = own->integer_or("sum_bytes", 0, 0)};
}

TensorShare read_team(const JsonReader& reader) {
  return {.spread = reader.at("spread").number(),
          .spread_stash = reader.at("spread_stash").number(),
          .units = reader.integer_or("units", 0, 0),
          .sums = reader.integer_or("sums", 0, 0),
          .sum_bytes = reader.integer_or("sum_bytes", 0, 0),
          .back_sums = reader.integer_or("back_sums", 0, 0),
          .back_sum_bytes = reader.integer_or("back_sum_bytes", 0, 0),
          .sequence = read_sequence(reader)};
}

Json write_layer(const LayerNode& layer, const LayerCost& cost, const ModelGraph& graph) {
  Json json{{"name", layer.name},
            {"kind", layer.kind},
            {"inputs", write_values(layer.inputs, graph)},
            {"forward_ns", cost.forward_ns},
            {"backward_ns", cost.backward_ns},
            {"backward_weight_ns", cost.backward_weight_ns},
            {"accumulate_ns", cost.accumulate_ns},
            {"step_ns", cost.step_ns},
            {"forward_spread_ns", cost.forward_spread_ns},
            {"backward_spread_ns", cost.backward_spread_ns},
            {"output_bytes", cost.output_bytes},
            {"weight_bytes", cost.weight_bytes},
            {"stash_bytes", cost.stash_bytes}};
  if (cost.short_weight_bytes > 0) json["short_weight_bytes"] = cost.short_weight_bytes;
  if (cost.constant_bytes > 0) json["constant_bytes"] = cost.constant_bytes;
  if (cost.working_bytes > 0) json["working_bytes"] = cost.working_bytes;
  if (cost.saves != LayerSaves{}) json["saves"] = write_saves(cost.saves);
  if (!cost.strided_outputs.empty()) json["strided_outputs"] = cost.strided_outputs;
  if (cost.loss_ns > 0) json["loss_ns"] = cost.loss_ns;
  for (const WeightMatrix& matrix : cost.matrices)
    json["matrices"].push_back({matrix.rows, matrix.columns});
  if (cost.team != TensorShare{}) json["team"] = write_team(cost.team);
  if (!layer.ties.empty()) json["ties"] = write_ties(layer, cost, graph);
  return json;
}

ValueRef read_value(const JsonReader& reader, const LayerPositions& positions, int num_inputs) {
  const auto parts = reader.elements(2);
  if (parts.size() != 2)
    reader.fail("expected [layer name, output number] or [\"@input number\", 0]");
  const std::string source = parts[0].text();
  if (source.starts_with('@')) {
    int input = -1;
    std::from_chars(source.data() + 1, source.data() + source.size(), input);
    // Compared with the exact text: "@01" or "@1x" is not an input.
    if (input < 0 || input >= num_inputs || source != fmt::format("@{}", input)) {
      parts[0].fail(fmt::format("expected one of the model's {} inputs, found \"{}\"", num_inputs,
                                source.substr(0, 60)));
    }
    parts[1].integer(0, 0);
    return ValueRef::model_input(input);
  }
  const auto found = positions.find(source);
  if (found == positions.end())
    parts[0].fail(fmt::format("there is no layer \"{}\"", source.substr(0, 60)));
  return {LayerId{found->second}, static_cast<int>(parts[1].integer(0, INT_MAX))};
}

std::vector<ValueRef> read_values(const JsonReader& reader, const LayerPositions& positions,
                                  int num_inputs) {
  std::vector<ValueRef> values;
  for (const JsonReader& element : reader.elements())
    values.push_back(read_value(element, positions, num_inputs));
  return values;
}

void read_ties(const JsonReader& reader, const LayerPositions& positions, LayerNode& layer,
               LayerCost& cost) {
  constexpr size_t kParts = 4;
  for (const JsonReader& element : reader.elements()) {
    const auto parts = element.elements(kParts);
    if (parts.size() != kParts)
      element.fail("expected [parameter, owner layer, owner parameter, bytes]");
    const auto owner = positions.find(parts[1].text());
    if (owner == positions.end())
      parts[1].fail(fmt::format("there is no layer \"{}\"", parts[1].text().substr(0, 60)));
    layer.ties.push_back(
        {static_cast<int>(parts[0].integer(0, INT_MAX)),
         {LayerId{owner->second}, static_cast<int>(parts[2].integer(0, INT_MAX))}});
    cost.tied_bytes.push_back(parts[3].integer(0));
  }
}

LayerSaves read_saves(const JsonReader& reader, const LayerNode& layer) {
  const auto count = static_cast<size_t>(layer.num_outputs);
  LayerSaves saves = saves_of(layer, false, false);
  const auto read = [&](const char* key, std::vector<bool>& are_saved) {
    for (const JsonReader& position : reader.at(key).elements())
      are_saved[static_cast<size_t>(position.integer(0, std::ssize(are_saved) - 1))] = true;
  };
  read("inputs", saves.inputs);
  read("outputs", saves.outputs);
  const auto views = reader.find("view_of");
  if (!views) return saves;
  const std::vector<JsonReader> inputs = views->elements();
  if (inputs.size() != count)
    views->fail(fmt::format("{} inputs for {} outputs", inputs.size(), count));
  for (size_t o = 0; o < count; ++o)
    saves.view_of[o] = static_cast<int>(inputs[o].integer(-1, std::ssize(layer.inputs) - 1));
  return saves;
}

LayerCost read_cost(const JsonReader& reader) {
  LayerCost cost;
  for (const JsonReader& bytes : reader.at("output_bytes").elements())
    cost.output_bytes.push_back(bytes.integer(0));
  cost.forward_ns = reader.at("forward_ns").integer(0);
  cost.backward_ns = reader.at("backward_ns").integer(0);
  cost.weight_bytes = reader.at("weight_bytes").integer(0);
  cost.short_weight_bytes = reader.integer_or("short_weight_bytes", 0, 0);
  cost.constant_bytes = reader.integer_or("constant_bytes", 0, 0);
  cost.working_bytes = reader.integer_or("working_bytes", 0, 0);
  cost.backward_weight_ns = reader.integer_or("backward_weight_ns", 0, 0);
  cost.accumulate_ns = reader.integer_or("accumulate_ns", 0, 0);
  cost.step_ns = reader.integer_or("step_ns", 0, 0);
  cost.loss_ns = reader.integer_or("loss_ns", 0, 0);
  cost.forward_spread_ns = reader.integer_or("forward_spread_ns", 0, 0);
  cost.backward_spread_ns = reader.integer_or("backward_spread_ns", 0, 0);
  if (const auto strided = reader.find("strided_outputs")) {
    for (const JsonReader& output : strided->elements())
      cost.strided_outputs.push_back(
          static_cast<int>(output.integer(0, std::ssize(cost.output_bytes) - 1)));
  }
  if (const auto matrices = reader.find("matrices")) {
    for (const JsonReader& matrix : matrices->elements()) {
      const auto sizes = matrix.elements(2);
      if (sizes.size() != 2) matrix.fail("expected [rows, columns] of a weight");
      cost.matrices.push_back({sizes[0].integer(1), sizes[1].integer(1)});
    }
  }
  if (const auto team = reader.find("team")) cost.team = read_team(*team);
  const int64_t outputs = std::accumulate(cost.output_bytes.begin(), cost.output_bytes.end(),
                                          int64_t{0}, saturating_add);
  cost.stash_bytes = reader.integer_or("stash_bytes", outputs, 0);
  return cost;
}

LayerPositions read_positions(const std::vector<JsonReader>& layers) {
  LayerPositions positions;
  positions.reserve(layers.size());
  for (const JsonReader& layer : layers) {
    const JsonReader name = layer.at("name");
    if (!positions.emplace(name.text(), static_cast<int32_t>(positions.size())).second) {
      name.fail(fmt::format("two layers have the name \"{}\"", name.text().substr(0, 60)));
    }
  }
  return positions;
}

void read_layers(const JsonReader& root, Profile& profile) {
  const auto num_inputs = static_cast<int>(root.at("num_inputs").integer(0, kMaxInputs));
  const auto readers = root.at("layers").elements(kMaxLayers);
  const LayerPositions positions = read_positions(readers);
  std::vector<LayerNode> layers;
  std::vector<LayerCost> costs;
  for (const JsonReader& reader : readers) {
    costs.push_back(read_cost(reader));
    LayerNode layer;
    layer.name = reader.at("name").text();
    layer.kind = reader.text_or("kind", "");
    layer.inputs = read_values(reader.at("inputs"), positions, num_inputs);
    layer.num_outputs = static_cast<int>(costs.back().output_bytes.size());
    if (const auto saves = reader.find("saves")) costs.back().saves = read_saves(*saves, layer);
    if (const auto ties = reader.find("ties")) read_ties(*ties, positions, layer, costs.back());
    layers.push_back(std::move(layer));
  }
  profile.graph = ModelGraph::build(num_inputs, std::move(layers),
                                    read_values(root.at("outputs"), positions, num_inputs));
  // The graph puts its layers into topological order, and the costs get the same order.
  profile.costs.reserve(costs.size());
  for (const LayerNode& layer : profile.graph.layers())
    profile.costs.push_back(std::move(costs[static_cast<size_t>(positions.at(layer.name))]));
}

PassTimes read_pass(const JsonReader& reader) {
  return {.mean_ns = reader.at("mean_ns").integer(0),
          .spread = reader.at("spread").number(),
          .error = reader.at("error").number(),
          .stretches = static_cast<int>(reader.integer_or("stretches", 0, 0, INT_MAX))};
}

Json write_lengths(const std::vector<LengthGroup>& lengths) {
  Json list = Json::array();
  for (const LengthGroup& group : lengths)
    list.push_back({{"share", group.share}, {"input_shapes", group.input_shapes}});
  return list;
}

std::vector<LengthGroup> read_lengths(const JsonReader& reader) {
  std::vector<LengthGroup> lengths;
  for (const JsonReader& element : reader.elements()) {
    LengthGroup group{.share = element.at("share").number(), .input_shapes = {}};
    for (const JsonReader& shape : element.at("input_shapes").elements(kMaxInputs)) {
      group.input_shapes.emplace_back();
      for (const JsonReader& size : shape.elements())
        group.input_shapes.back().push_back(size.integer(1));
    }
    lengths.push_back(std::move(group));
  }
  return lengths;
}

/// JSON documents start with a brace; graph.txt starts with a node's id.
bool looks_like_json(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n\xEF\xBB\xBF");
  return first == std::string_view::npos || text[first] == '{' || text[first] == '[';
}

}  // namespace

Json detail::document_of(const Profile& profile) {
  validate(profile);
  Json layers = Json::array();
  for (size_t i = 0; i < profile.costs.size(); ++i)
    layers.push_back(write_layer(profile.graph.layers()[i], profile.costs[i], profile.graph));
  Json document = {{"model", profile.model},
                   {"device", profile.device},
                   {"source", profile.source},
                   {"precision", to_string(profile.precision)},
                   {"batch_size", profile.batch_size},
                   {"samples", profile.samples},
                   {"copy_bandwidth_bytes_per_s", profile.copy_bandwidth_bytes_per_s},
                   {"num_inputs", profile.graph.num_inputs()},
                   {"layers", std::move(layers)},
                   {"outputs", write_values(profile.graph.outputs(), profile.graph)}};
  if (profile.pass.mean_ns > 0) {
    document["pass"] = {{"mean_ns", profile.pass.mean_ns},
                        {"spread", profile.pass.spread},
                        {"error", profile.pass.error},
                        {"stretches", profile.pass.stretches}};
  }
  if (profile.hand_over_ns > 0) document["hand_over_ns"] = profile.hand_over_ns;
  if (profile.device_graphs) document["device_graphs"] = true;
  if (!profile.lengths.empty()) document["lengths"] = write_lengths(profile.lengths);
  return document;
}

std::string to_json(const Profile& profile) {
  Json document = {{"format", "penstock-profile"}, {"version", kVersion}};
  document.update(detail::document_of(profile));
  return to_text(document);
}

Profile parse_profile(std::string_view json, std::string_view place) {
  const Json document = parse_json(json, place);
  const JsonReader root(document, std::string(place));
  if (root.find("first_layer"))
    root.fail("it has some of the model's layers: expected a whole profile, join the shares first");
  check_format(root, "profile", kVersion);
  return detail::profile_in(root, place);
}

Profile detail::profile_in(const JsonReader& root, std::string_view place) {
  Profile profile;
  profile.model = root.text_or("model", "");
  profile.device = root.text_or("device", "");
  profile.source = root.text_or("source", "");
  profile.batch_size = root.integer_or("batch_size", 0, 0);
  profile.samples = static_cast<int>(root.integer_or("samples", 0, 0, INT_MAX));
  profile.copy_bandwidth_bytes_per_s = root.integer_or("copy_bandwidth_bytes_per_s", 0, 0);
  profile.hand_over_ns = root.integer_or("hand_over_ns", 0, 0);
  if (const auto graphs = root.find("device_graphs")) profile.device_graphs = graphs->boolean();
  if (const auto pass = root.find("pass")) profile.pass = read_pass(*pass);
  if (const auto lengths = root.find("lengths")) profile.lengths = read_lengths(*lengths);
  try {
    profile.precision = parse_precision(root.text_or("precision", "float32"));
    read_layers(root, profile);
    validate(profile);
  } catch (const ConfigError& error) {
    throw ParseError(place, 0, error.what());
  }
  return profile;
}

Profile load_profile(const std::filesystem::path& path) {
  const std::string text = read_file(path);
  return looks_like_json(text) ? parse_profile(text, path.string())
                               : parse_pipedream_graph(text, path.string());
}

}  // namespace penstock::profile

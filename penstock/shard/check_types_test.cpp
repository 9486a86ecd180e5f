// Sound models pass, and every one of many seeded changes that would compute something else is
// refused.
#include "penstock/shard/check_types.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "penstock/model/sequence_builder.h"
#include "penstock/model/works_on_parts.h"
#include "penstock/model/zoo.h"
#include "penstock/shard/part_layer.h"
#include "penstock/shard/team_layers.h"
#include "penstock/util/error.h"

namespace penstock::shard {
namespace {

using graph::LayerNode;
using graph::ValueRef;

constexpr ShardOptions kEverything{.only_worthwhile = false};

std::shared_ptr<model::Model> zoo_model(const model::ModelSpec& spec) {
  return std::make_shared<model::Model>(model::make_model(spec));
}

ShardedModel in_stages(const std::shared_ptr<model::Model>& model, const std::vector<int>& teams,
                       bool sequence = false) {
  std::vector<StageId> stages;
  const auto layers = static_cast<size_t>(model->graph().num_layers());
  for (size_t l = 0; l < layers; ++l)
    stages.push_back(StageId{static_cast<int32_t>(l * teams.size() / layers)});
  ShardOptions options = kEverything;
  options.sequence.assign(teams.size(), sequence);
  return shard(model, stages, teams, options);
}

/// A value that is read as it is, too, beside a pair of layers.
std::shared_ptr<model::Model> residual() {
  model::ModelBuilder net("residual");
  model::Value x = net.linear(net.input({12}), {.features = 16});
  for (int i = 0; i < 3; ++i)
    x = net.add(x, net.linear(net.tanh(net.linear(x, {.features = 24})), {.features = 16}));
  return std::make_shared<model::Model>(net.build(x));
}

/// Likewise, at each place of a sequence: parts of the places are gathered for the pair and added.
std::shared_ptr<model::Model> post_norm() {
  model::SequenceBuilder net("post_norm");
  model::Value x = net.layer_norm(net.linear(net.input({12, 10}), {.features = 16}));
  for (int i = 0; i < 3; ++i) {
    const model::Value y = net.gelu(net.linear(x, {.features = 24}));
    x = net.layer_norm(net.add(x, net.linear(y, {.features = 16})));
  }
  return std::make_shared<model::Model>(net.build(x));
}

/// Recurrences, whose members meet inside of a layer.
std::shared_ptr<model::Model> recurrent() {
  model::SequenceBuilder net("recurrent");
  model::Value x = net.layer_norm(net.linear(net.input({12, 10}), {.features = 16}));
  for (int i = 0; i < 3; ++i) {
    const model::Value y = net.lstm(x, {.features = 24, .weight_dropout = 0.2});
    x = net.layer_norm(net.add(x, net.linear(net.tanh(y), {.features = 16})));
  }
  return std::make_shared<model::Model>(net.build(x));
}

std::vector<std::shared_ptr<model::Model>> models() {
  return {zoo_model({.name = "mlp", .input_shape = {20}, .classes = 12, .width = 24, .depth = 4}),
          zoo_model({.name = "gpt",
                     .input_shape = {12},
                     .classes = 24,
                     .width = 24,
                     .depth = 2,
                     .heads = 4,
                     .dropout = 0.1,
                     .untied = true}),
          zoo_model({.name = "lenet5"}),
          residual(),
          post_norm(),
          recurrent()};
}

TEST(CheckTypes, AcceptsWhatShardMakes) {
  for (const auto& model : models()) {
    for (const std::vector<int>& teams :
         {std::vector<int>{2}, {3}, {2, 2}, {4, 2}, {2, 4}, {1, 3}, {3, 2}}) {
      for (const bool sequence : {false, true}) {
        EXPECT_EQ(check_types(in_stages(model, teams, sequence)), std::vector<std::string>{})
            << model->name();
      }
    }
  }
}

/// A model for teams, taken apart, so that something of it can be changed.
struct Parts {
  explicit Parts(const ShardedModel& sharded) : from(sharded) {
    const graph::ModelGraph& graph = sharded.model.graph();
    nodes = graph.layers();
    outputs = graph.outputs();
    for (int32_t l = 0; l < graph.num_layers(); ++l) {
      layers.push_back(sharded.model.shared_layer(LayerId{l}));
      parts.push_back(*sharded.model.part(LayerId{l}));
    }
    types = sharded.types;
    stages = sharded.stage_of_layer;
  }

  ShardedModel build() const {
    model::Model all("changed",
                     graph::ModelGraph::build(from.model.graph().num_inputs(), nodes, outputs),
                     layers, from.model.input_shapes());
    all.set_parts(std::make_shared<model::Model>(*from.model.whole()), parts);
    return {.model = std::move(all),
            .stage_of_layer = stages,
            .shares = {},
            .regions = from.regions,
            .types = types};
  }

  bool is(size_t layer, std::string_view kind) const { return layers[layer]->kind() == kind; }
  /// Readers of the layer's output read this instead.
  void bypass(size_t layer) {
    const ValueRef own{LayerId{static_cast<int32_t>(layer)}, 0};
    const auto replace = [&](ValueRef& value) {
      if (value == own) value = nodes[layer].inputs[0];
    };
    for (LayerNode& node : nodes) {
      for (ValueRef& value : node.inputs) replace(value);
    }
    for (ValueRef& value : outputs) replace(value);
  }

  const ShardedModel& from;
  std::vector<LayerNode> nodes;
  std::vector<ValueRef> outputs;
  std::vector<SharedLayer> layers;
  std::vector<model::LayerPart> parts;
  std::vector<LayerTypes> types;
  std::vector<StageId> stages;
};

/// Changes something of the layer, if it can; says what.
using Mutation = std::string (*)(Parts& parts, size_t layer, std::mt19937& random);

std::string leave_out(Parts& parts, size_t layer, std::mt19937&) {
  if (!parts.layers[layer]->kind().starts_with("team_") || parts.nodes[layer].inputs.size() != 1 ||
      parts.is(layer, "team_without_gradient"))
    return "";
  parts.bypass(layer);
  return "left out";
}

std::string do_nothing_instead(Parts& parts, size_t layer, std::mt19937&) {
  if (!parts.is(layer, "team_sum_forward") && !parts.is(layer, "team_sum_backward")) return "";
  parts.layers[layer] = make_without_gradient();
  parts.nodes[layer].kind = "team_without_gradient";
  return "does nothing";
}

std::string sum_the_other_way(Parts& parts, size_t layer, std::mt19937&) {
  if (parts.is(layer, "team_sum_forward"))
    parts.layers[layer] = make_sum_backward();
  else if (parts.is(layer, "team_sum_backward"))
    parts.layers[layer] = make_sum_forward();
  else
    return "";
  return "sums in the other pass";
}

std::string another_slice(Parts& parts, size_t layer, std::mt19937& random) {
  std::vector<model::TensorPart*> slices;
  for (model::TensorPart& part : parts.parts[layer].parameters) {
    if (!part.is_whole()) slices.push_back(&part);
  }
  if (slices.empty()) return "";
  model::TensorPart& slice = *slices[random() % slices.size()];
  model::TensorPart::Run& run = slice.runs[random() % slice.runs.size()];
  const int64_t whole = slice.whole[static_cast<size_t>(slice.dimension)];
  const int64_t begin = static_cast<int64_t>(random()) % (whole - run.length + 1);
  if (begin == run.begin) return "";
  run.begin = begin;
  return "another slice";
}

std::string one_block(Parts& parts, size_t layer, std::mt19937&) {
  for (model::TensorPart& part : parts.parts[layer].parameters) {
    if (part.runs.size() < 2) continue;
    int64_t length = 0;
    for (const auto& run : part.runs) length += run.length;
    part.runs = {{parts.parts[layer].member * length, length}};
    return "one run instead of blocks";
  }
  return "";
}

std::string bias_of_every_member(Parts& parts, size_t layer, std::mt19937&) {
  if (!parts.is(layer, "team_bias")) return "";
  // Added before the sum.
  const auto sum = static_cast<size_t>(parts.nodes[layer].inputs[0].layer.value);
  parts.bypass(layer);
  parts.nodes[layer].inputs = parts.nodes[sum].inputs;
  parts.nodes[sum].inputs = {{LayerId{static_cast<int32_t>(layer)}, 0}};
  std::swap(parts.nodes[layer], parts.nodes[sum]);
  std::swap(parts.layers[layer], parts.layers[sum]);
  std::swap(parts.parts[layer], parts.parts[sum]);
  std::swap(parts.types[layer], parts.types[sum]);
  for (size_t l : {layer, sum}) {
    for (ValueRef& value : parts.nodes[l].inputs) {
      if (value.layer.index() == layer) value.layer = LayerId{static_cast<int32_t>(sum)};
    }
  }
  // Who read the bias's output before reads the sum's now.
  for (size_t l = layer + 1; l < parts.nodes.size(); ++l) {
    for (ValueRef& value : parts.nodes[l].inputs) {
      if (value.layer.index() == sum) value.layer = LayerId{static_cast<int32_t>(layer)};
    }
  }
  return "bias before the sum";
}

std::string bias_left_out(Parts& parts, size_t layer, std::mt19937&) {
  if (!parts.is(layer, "team_bias")) return "";
  parts.bypass(layer);
  parts.layers[layer] = make_without_gradient();
  parts.parts[layer].parameters.clear();
  parts.parts[layer].whole.reset();
  parts.types[layer].weights.clear();
  return "no bias";
}

std::string read_without_sum(Parts& parts, size_t layer, std::mt19937&) {
  for (ValueRef& value : parts.nodes[layer].inputs) {
    if (value.is_model_input() || !parts.is(value.layer.index(), "team_sum_backward")) continue;
    value = parts.nodes[value.layer.index()].inputs[0];
    return "gradient not summed";
  }
  return "";
}

std::string skip_reads_the_summed(Parts& parts, size_t layer, std::mt19937&) {
  // A skip connection whose gradient would be summed, too.
  if (!parts.is(layer, "team_sum_backward")) return "";
  const ValueRef source = parts.nodes[layer].inputs[0];
  for (size_t l = layer + 1; l < parts.nodes.size(); ++l) {
    if (!parts.is(l, "add")) continue;
    for (ValueRef& value : parts.nodes[l].inputs) {
      if (value != source) continue;
      value = {LayerId{static_cast<int32_t>(layer)}, 0};
      return "skip connection summed";
    }
  }
  return "";
}

std::string other_member(Parts& parts, size_t layer, std::mt19937&) {
  for (ValueRef& value : parts.nodes[layer].inputs) {
    if (value.is_model_input()) continue;
    const model::LayerPart& own = parts.parts[value.layer.index()];
    for (size_t l = 0; l < layer; ++l) {
      const model::LayerPart& other = parts.parts[l];
      if (l == value.layer.index() || other.member == own.member || other.whole != own.whole ||
          !own.whole || parts.layers[l]->kind() != parts.layers[value.layer.index()]->kind() ||
          parts.stages[l] == parts.stages[value.layer.index()] ||
          parts.stages[value.layer.index()] != parts.stages[layer])
        continue;
      value.layer = LayerId{static_cast<int32_t>(l)};
      return "reads another member's value";
    }
  }
  return "";
}

std::string weight_of_another(Parts& parts, size_t layer, std::mt19937&) {
  if (parts.parts[layer].parameters.empty()) return "";
  const int team = parts.parts[layer].team;
  if (team == 1) return "";
  parts.parts[layer].member = (parts.parts[layer].member + 1) % team;
  return "says that it is another member";
}

std::string gather_without_sum(Parts& parts, size_t layer, std::mt19937& random) {
  if (!parts.is(layer, "team_gather_sum")) return "";
  parts.layers[layer] = make_sequence_gather(parts.parts[layer].team);
  parts.nodes[layer].kind = "team_gather";
  if (random() % 2 == 0) parts.types[layer].outputs = {Type::equal()};
  return "gathers, and sums no gradient";
}

std::string part_without_sum(Parts& parts, size_t layer, std::mt19937& random) {
  if (!parts.is(layer, "team_sum_part")) return "";
  parts.layers[layer] = make_sequence_part(parts.parts[layer].team);
  parts.nodes[layer].kind = "team_part";
  if (random() % 2 == 0) parts.types[layer].inputs = {Type::equal()};
  return "cuts, and sums nothing";
}

/// The gradients of a norm, a table of places or a bias, on a part of the places.
std::string weights_without_sum(Parts& parts, size_t layer, std::mt19937& random) {
  auto& weights = parts.types[layer].weights;
  if (weights.empty() || weights[0].kind != Kind::Pending) return "";
  if (random() % 3 == 0) {
    weights.assign(weights.size(), Type::equal());
    return "weights said to be equal";
  }
  const SharedLayer whole = parts.from.model.whole()->shared_layer(*parts.parts[layer].whole);
  parts.layers[layer] =
      parts.is(layer, "team_bias")
          ? make_bias(parts.parts[layer].parameters[0].whole[0], 2)
          : make_part_layer(
                {.code = whole, .whole = whole, .parameters = parts.parts[layer].parameters});
  if (random() % 2 == 0) weights.assign(weights.size(), Type::equal());
  return "gradients of whole weights not summed";
}

std::string other_dimension(Parts& parts, size_t layer, std::mt19937&) {
  for (auto* types : {&parts.types[layer].inputs, &parts.types[layer].outputs}) {
    for (Type& type : *types) {
      if (!parts.from.regions.is_sequence(type)) continue;
      type.dimension = 2;
      return "places said to be features";
    }
  }
  return "";
}

std::string reads_all_places(Parts& parts, size_t layer, std::mt19937&) {
  // What is gathered for a product, by this layer or the next, where a part of the places is read.
  while (layer < parts.nodes.size() && !parts.is(layer, "team_gather_sum")) ++layer;
  if (layer == parts.nodes.size()) return "";
  const ValueRef source = parts.nodes[layer].inputs[0];
  for (size_t l = layer + 1; l < parts.nodes.size(); ++l) {
    for (ValueRef& value : parts.nodes[l].inputs) {
      if (value != source || parts.is(l, "team_gather_sum")) continue;
      value = {LayerId{static_cast<int32_t>(layer)}, 0};
      return "reads all places";
    }
  }
  return "";
}

std::string drops_a_gradient(Parts& parts, size_t layer, std::mt19937&) {
  // On all members, inside of a stage, where the layer does nothing else.
  if (!parts.is(layer, "add")) return "";
  const std::optional<LayerId> whole = parts.parts[layer].whole;
  for (size_t l = 0; l < parts.nodes.size(); ++l) {
    if (parts.parts[l].whole != whole) continue;
    // The second operand's gradient ends: the first operand is read twice.
    parts.nodes[l].inputs[1] = parts.nodes[l].inputs[0];
  }
  return "adds a value to itself";
}

std::string another_function(Parts& parts, size_t layer, std::mt19937&) {
  const char* const other = parts.is(layer, "tanh")   ? "relu"
                            : parts.is(layer, "relu") ? "tanh"
                                                      : "";
  if (*other == 0) return "";
  model::ModelBuilder net("one");
  const model::Value x = net.input({4});
  const model::Model one = net.build(parts.is(layer, "tanh") ? net.relu(x, "f") : net.tanh(x, "f"));
  const std::optional<LayerId> whole = parts.parts[layer].whole;
  for (size_t l = 0; l < parts.nodes.size(); ++l) {
    if (parts.parts[l].whole != whole) continue;
    parts.layers[l] = one.shared_layer(LayerId{0});
    parts.nodes[l].kind = other;
  }
  return "another function on all members";
}

/// An LSTM whose code is that of another member, or that gathers others' units.
std::string other_units(Parts& parts, size_t layer, std::mt19937& random) {
  if (!parts.is(layer, "lstm")) return "";
  const model::LayerPart& part = parts.parts[layer];
  const Type& rows = parts.types[layer].weights[0];
  if (!rows.is_part()) return "";
  const SharedLayer whole = parts.from.model.whole()->shared_layer(*part.whole);
  const Member own{parts.from.regions, part.team, part.member};
  const Member other{parts.from.regions, part.team, (part.member + 1) % part.team};
  const bool gathers = random() % 2 == 0;
  std::vector<int64_t> lengths = own.lengths(rows);
  if (gathers) lengths[0] -= 4, lengths[1] += 4;
  parts.layers[layer] = make_part_layer(
      {.code = dynamic_cast<const model::WorksOnParts&>(*whole).on_part(
           {0, rows.blocks[0] * 4, (gathers ? own : other).part(rows, {}, 0).runs, lengths}),
       .whole = whole,
       .parameters = part.parameters});
  return "other hidden units";
}

std::string gates_of_others(Parts& parts, size_t layer, std::mt19937& random) {
  if (!parts.is(layer, "lstm") || !parts.types[layer].weights[0].is_part()) return "";
  LayerTypes& types = parts.types[layer];
  switch (random() % 4) {
    case 0:
      types.inputs = {Type::equal()};
      return "the gradient of its input is not summed";
    case 1:
      types.outputs = {Type::part(2, types.weights[0].region, {types.weights[0].blocks[0]})};
      return "hidden states said to be parts";
    case 2:
      types.weights[1].blocks = {4 * types.weights[1].blocks[0]};
      return "recurrent rows in one block";
    default:
      types.weights[1 + random() % 3] = Type::equal();
      return "rows of all members";
  }
}

constexpr std::pair<const char*, Mutation> kMutations[] = {
    {"other_units", other_units},
    {"gates_of_others", gates_of_others},
    {"drops_a_gradient", drops_a_gradient},
    {"another_function", another_function},
    {"gather_without_sum", gather_without_sum},
    {"part_without_sum", part_without_sum},
    {"weights_without_sum", weights_without_sum},
    {"other_dimension", other_dimension},
    {"reads_all_places", reads_all_places},
    {"leave_out", leave_out},
    {"do_nothing_instead", do_nothing_instead},
    {"sum_the_other_way", sum_the_other_way},
    {"another_slice", another_slice},
    {"one_block", one_block},
    {"bias_of_every_member", bias_of_every_member},
    {"bias_left_out", bias_left_out},
    {"read_without_sum", read_without_sum},
    {"skip_reads_the_summed", skip_reads_the_summed},
    {"other_member", other_member},
    {"weight_of_another", weight_of_another}};

TEST(CheckTypes, RefusesTwoThousandChanges) {
  std::vector<ShardedModel> sound;
  for (const auto& model : models()) {
    for (const std::vector<int>& teams : {std::vector<int>{2}, {3}, {2, 2}, {4, 2}}) {
      for (const bool sequence : {false, true}) sound.push_back(in_stages(model, teams, sequence));
    }
  }
  std::mt19937 random(48);
  std::map<std::string, int> made;
  int all = 0;
  for (int tries = 0; all < 2000 && tries < 200'000; ++tries) {
    const ShardedModel& sharded = sound[random() % sound.size()];
    const auto& [name, mutate] = kMutations[random() % std::size(kMutations)];
    Parts parts(sharded);
    const size_t layer = random() % parts.nodes.size();
    const std::string what = mutate(parts, layer, random);
    if (what.empty()) continue;
    ++all;
    ++made[name];
    try {
      const ShardedModel changed = parts.build();
      EXPECT_FALSE(check_types(changed).empty())
          << sharded.model.name() << ", layer " << sharded.model.graph().layers()[layer].name
          << ": " << what;
    } catch (const ConfigError&) {
      // Its sizes do not fit.
    }
  }
  EXPECT_EQ(all, 2000);
  for (const auto& [name, mutate] : kMutations) EXPECT_GE(made[name], 5) << name;
}

TEST(CheckTypes, SaysLayerOperatorAndBothTypes) {
  const ShardedModel sharded = in_stages(models().front(), {2});
  Parts parts(sharded);
  size_t sum = 0;
  while (!parts.is(sum, "team_sum_forward")) ++sum;
  parts.bypass(sum);
  const std::vector<std::string> errors = check_types(parts.build());
  ASSERT_FALSE(errors.empty());
  EXPECT_EQ(errors.front(),
            "layer 'fc2.bias-m0' (team_bias) reads 'fc2-m0': expected equal, found partial");
}

}  // namespace
}  // namespace penstock::shard

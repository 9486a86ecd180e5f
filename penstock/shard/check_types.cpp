#include "penstock/shard/check_types.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "penstock/model/known_code.h"
#include "penstock/model/works_on_parts.h"
#include "penstock/shard/check_wiring.h"
#include "penstock/shard/team_layers.h"

#include "penstock/shard/part_layer.h"

namespace penstock::shard {
namespace {

using graph::LayerNode;
using graph::ValueRef;
using model::LayerPart;
using model::TensorPart;

/// Parts of the same tensor: along the same dimension, in the same units and blocks.
bool same_part(const Regions& regions, const Type& a, const Type& b) {
  return a.is_part() && b.is_part() && regions.are_joined(a.region, b.region) &&
         a.blocks == b.blocks;
}

bool all_equal(const std::vector<Type>& types) {
  return std::all_of(types.begin(), types.end(),
                     [](const Type& type) { return type.kind == Kind::Equal; });
}

bool is_part_along(const Type& type, size_t dimension) {
  return type.is_part() && type.dimension == dimension;
}

/// What one operator may do. `sizes`: dimensions of its first input and output, with the batch.
struct Operation {
  const LayerTypes& types;
  const Regions& regions;
  std::vector<int64_t> input;
  std::vector<int64_t> output;

  bool is_whole() const {
    return all_equal(types.inputs) && all_equal(types.weights) && all_equal(types.buffers) &&
           all_equal(types.outputs);
  }
  const Type& in() const { return types.inputs.at(0); }
  const Type& out() const { return types.outputs.at(0); }
};

/// y = f(W x) + b, for parts of W along what it makes and what it reads.
bool is_product(const Operation& operation, size_t made, size_t read, size_t in_dimension,
                size_t out_dimension) {
  if (operation.is_whole()) return true;
  const std::vector<Type>& weights = operation.types.weights;
  if (weights.empty()) return false;
  if (operation.in().kind == Kind::Pending) {
    const bool bias = weights.size() == 1 || (is_part_along(weights[1], 0) &&
                                              same_part(operation.regions, weights[0], weights[1]));
    return is_part_along(weights[0], made) && is_part_along(operation.out(), out_dimension) &&
           same_part(operation.regions, weights[0], operation.out()) && bias;
  }
  // A bias would be added by every member.
  return weights.size() == 1 && is_part_along(operation.in(), in_dimension) &&
         is_part_along(weights[0], read) &&
         same_part(operation.regions, weights[0], operation.in()) &&
         operation.out().kind == Kind::Partial;
}

/// All inputs, and what it makes of them, in the same parts; weights of channels likewise.
bool is_passed(const Operation& operation, std::optional<size_t> dimension) {
  if (operation.is_whole()) return true;
  const Type& out = operation.out();
  if (!out.is_part() || (dimension && out.dimension != *dimension)) return false;
  const auto fits = [&](const Type& type) {
    return is_part_along(type, out.dimension) && same_part(operation.regions, type, out);
  };
  const auto of_channels = [&](const Type& type) {
    return is_part_along(type, 0) && same_part(operation.regions, type, out);
  };
  const LayerTypes& types = operation.types;
  return std::all_of(types.inputs.begin(), types.inputs.end(), fits) &&
         std::all_of(types.weights.begin(), types.weights.end(), of_channels) &&
         std::all_of(types.buffers.begin(), types.buffers.end(), of_channels);
}

bool is_table(const Operation& operation) {
  return operation.is_whole() ||
         (operation.in().kind == Kind::Equal && operation.types.weights.size() == 1 &&
          is_part_along(operation.types.weights[0], 0) &&
          operation.types.weights[0].blocks.size() == 1 && operation.out().kind == Kind::Partial);
}

bool is_flattened(const Operation& operation) {
  if (operation.is_whole()) return true;
  const Type& in = operation.in();
  const Type& out = operation.out();
  if (operation.regions.is_sequence(in) || !is_part_along(in, 1) || !is_part_along(out, 1) ||
      !operation.regions.are_joined(in.region, out.region) || in.blocks.size() != out.blocks.size())
    return false;
  int64_t pixels = 1;
  for (size_t d = 2; d < operation.input.size(); ++d) pixels *= operation.input[d];
  for (size_t b = 0; b < in.blocks.size(); ++b) {
    if (in.blocks[b] * pixels != out.blocks[b]) return false;
  }
  return true;
}

bool is_concatenated(const Operation& operation) {
  if (operation.is_whole()) return true;
  std::vector<int64_t> blocks;
  for (const Type& type : operation.types.inputs) {
    if (!is_part_along(type, 1) ||
        !operation.regions.are_joined(type.region, operation.out().region))
      return false;
    blocks.insert(blocks.end(), type.blocks.begin(), type.blocks.end());
  }
  return is_part_along(operation.out(), 1) && operation.out().blocks == blocks;
}

/// Rows of the four gates, side by side, for whole hidden units; hidden states are gathered inside.
bool is_lstm(const Operation& operation) {
  if (operation.is_whole()) return true;
  const std::vector<Type>& weights = operation.types.weights;
  const std::vector<int64_t> gates(4, operation.output.back());
  const auto fits = [&](const Type& type) {
    return is_part_along(type, 0) && type.blocks == gates &&
           operation.regions.are_joined(type.region, weights[0].region);
  };
  return weights.size() == 4 && std::all_of(weights.begin(), weights.end(), fits) &&
         operation.types.inputs.size() == 1 && operation.in().kind == Kind::Pending &&
         operation.out().kind == Kind::Equal;
}

/// Queries, keys and values in blocks, divided by whole heads.
bool is_attention(const Operation& operation) {
  if (operation.is_whole()) return true;
  const Type& in = operation.in();
  const Type& out = operation.out();
  return is_part_along(in, 2) && is_part_along(out, 2) && out.blocks.size() == 1 &&
         in.blocks == std::vector<int64_t>(3, out.blocks[0]) &&
         operation.regions.are_joined(in.region, out.region);
}

/// The same at each place, on a member's part of the places of a sequence: the gradients of its
/// whole weights are still to be summed.
bool is_at_places(const Operation& operation) {
  if (operation.is_whole()) return true;
  const Type& out = operation.out();
  const LayerTypes& types = operation.types;
  return operation.regions.is_sequence(out) && out.dimension == 1 && operation.output.size() == 3 &&
         types.inputs.size() == 1 && operation.in() == out &&
         std::all_of(types.weights.begin(), types.weights.end(),
                     [](const Type& type) { return type.kind == Kind::Pending; });
}

/// Between all places of a sequence and a member's part of them.
bool goes_at_places(const Operation& operation, Kind from, Kind to) {
  if (operation.types.inputs.size() != 1 || !operation.types.weights.empty()) return false;
  const Type& part = to == Kind::Part ? operation.out() : operation.in();
  const bool is_fixed = operation.regions.is_sequence(part, Regions::Lengths::Fixed);
  return operation.in().kind == from && operation.out().kind == to &&
         (part.dimension == 1 || is_fixed) && operation.regions.is_sequence(part);
}

bool goes(const Operation& operation, Kind from, Kind to) {
  return operation.types.inputs.size() == 1 && operation.in().kind == from &&
         operation.out().kind == to && operation.types.weights.empty();
}

using Signature = std::function<bool(const Operation&)>;

const std::map<std::string, Signature, std::less<>>& signatures() {
  const auto linear = [](size_t made, size_t read) {
    return [=](const Operation& o) {
      return is_product(o, made, read, o.input.size() - 1, o.output.size() - 1);
    };
  };
  const Signature any = [](const Operation& o) { return is_passed(o, {}); };
  const Signature channels = [](const Operation& o) { return is_passed(o, 1); };
  static const std::map<std::string, Signature, std::less<>> table = {
      {"linear", linear(0, 1)},
      {"linear_transposed", linear(1, 0)},
      {"conv2d", [](const Operation& o) { return is_product(o, 0, 1, 1, 1); }},
      {"embedding", is_table},
      {"relu", any},
      {"tanh", any},
      {"gelu", any},
      {"dropout", any},
      {"add", any},
      {"locked_dropout", [](const Operation& o) { return is_passed(o, 2); }},
      {"batch_norm2d", channels},
      {"max_pool2d", channels},
      {"avg_pool2d", channels},
      {"adaptive_avg_pool2d", channels},
      {"flatten", is_flattened},
      {"concat", is_concatenated},
      {"lstm", is_lstm},
      {"causal_attention", is_attention},
      {"team_sum_forward", [](const Operation& o) { return goes(o, Kind::Partial, Kind::Equal); }},
      {"team_sum_backward", [](const Operation& o) { return goes(o, Kind::Equal, Kind::Pending); }},
      {"team_gather", [](const Operation& o) { return goes(o, Kind::Part, Kind::Equal); }},
      {"team_gather_sum",
       [](const Operation& o) { return goes_at_places(o, Kind::Part, Kind::Pending); }},
      {"team_part", [](const Operation& o) { return goes_at_places(o, Kind::Equal, Kind::Part); }},
      {"team_sum_part",
       [](const Operation& o) { return goes_at_places(o, Kind::Partial, Kind::Part); }},
      {"team_bias", is_at_places},
      {"layer_norm", is_at_places},
      {"position_embedding", is_at_places},
  };
  return table;
}

std::string list_of(const std::vector<Type>& types) {
  std::string text;
  for (const Type& type : types)
    text += fmt::format("{}{}", text.empty() ? "" : ", ", to_string(type));
  return text.empty() ? "nothing" : text;
}

class Check {
 public:
  explicit Check(const ShardedModel& sharded)
      : sharded_(sharded), model_(sharded.model), graph_(sharded.model.graph()) {}

  std::vector<std::string> run() {
    for (int32_t l = 0; l < graph_.num_layers(); ++l) {
      const LayerId id{l};
      const auto& inputs = graph_.layer(id).inputs;
      gradients_.push_back(!model_.layer(id).parameters().empty() ||
                           std::any_of(inputs.begin(), inputs.end(), [this](const ValueRef& input) {
                             return has_gradient(input);
                           }));
      if (part(id).whole) teams_[*part(id).whole] = part(id).team;
      check_inputs(id);
      check_operator(id);
      check_weights(id);
    }
    check_outputs();
    check_readers();
    check_members();
    check_all_weights();
    return std::move(errors_);
  }

 private:
  const LayerTypes& types(LayerId id) const { return sharded_.types[id.index()]; }
  const LayerPart& part(LayerId id) const { return *model_.part(id); }
  std::string kind(LayerId id) const { return model_.layer(id).kind(); }
  /// Member 0's stage.
  int32_t team_of(LayerId id) const {
    return sharded_.stage_of_layer[id.index()].value - part(id).member;
  }
  std::string name(LayerId id) const {
    return fmt::format("layer '{}' ({})", graph_.layer(id).name, kind(id));
  }
  template <class... Args>
  void add(fmt::format_string<Args...> text, Args&&... args) {
    errors_.push_back(fmt::format(text, std::forward<Args>(args)...));
  }

  Type made(const ValueRef& value) const {
    if (value.is_model_input()) return Type::equal();
    const auto& outputs = types(value.layer).outputs;
    return outputs.at(static_cast<size_t>(value.output));
  }

  bool has_gradient(const ValueRef& value) const {
    return !value.is_model_input() && gradients_[value.layer.index()];
  }

  void check_inputs(LayerId id) {
    const LayerNode& node = graph_.layer(id);
    const std::vector<Type>& read = types(id).inputs;
    if (read.size() != node.inputs.size())
      return add("{}: {} types for {} inputs", name(id), read.size(), node.inputs.size());
    for (size_t i = 0; i < read.size(); ++i) {
      const ValueRef& value = node.inputs[i];
      const Type found = made(value);
      const std::string from =
          value.is_model_input() ? "the model's input" : "'" + graph_.layer(value.layer).name + "'";
      // Nobody asks for the gradient.
      const bool is_free =
          found.kind == Kind::Equal && read[i].kind == Kind::Pending && !has_gradient(value);
      const bool is_same = found.kind == read[i].kind && found.dimension == read[i].dimension &&
                           (!found.is_part() || same_part(sharded_.regions, found, read[i]));
      if (!is_same && !is_free)
        add("{} reads {}: expected {}, found {}", name(id), from, to_string(read[i]),
            to_string(found));
      if (value.is_model_input()) continue;
      const bool is_own = team_of(value.layer) == team_of(id);
      if (is_own && part(value.layer).member != part(id).member)
        add("{} of member {} reads '{}' of member {}", name(id), part(id).member,
            graph_.layer(value.layer).name, part(value.layer).member);
      if (!is_own && found.kind != Kind::Equal)
        add("{} reads {} of another stage: expected equal, found {}", name(id), from,
            to_string(found));
    }
  }

  std::vector<int64_t> sizes_of(const ValueRef& value) const {
    model::Shape shape = value.is_model_input()
                             ? model_.input_shapes()[static_cast<size_t>(value.output)]
                             : model_.output_shapes(value.layer)[static_cast<size_t>(value.output)];
    shape.insert(shape.begin(), 1);
    return shape;
  }

  /// The whole layer, where it knows its own rules.
  const Shardable* shardable(LayerId id) const {
    const std::optional<LayerId> whole = part(id).whole;
    return whole ? dynamic_cast<const Shardable*>(&model_.whole()->layer(*whole)) : nullptr;
  }

  void check_operator(LayerId id) {
    const LayerNode& node = graph_.layer(id);
    const auto found = signatures().find(kind(id));
    Operation operation{types(id), sharded_.regions, {}, sizes_of({id, 0})};
    if (!node.inputs.empty()) operation.input = sizes_of(node.inputs[0]);
    if (const Shardable* const whole = shardable(id)) {
      const Member member{sharded_.regions, part(id).team, part(id).member};
      for (const std::string& error : whole->check(model_.layer(id), types(id), member))
        add("{}: {}", name(id), error);
      return;
    }
    check_divisions(id);
    if (found == signatures().end() ? operation.is_whole() : found->second(operation)) return;
    add("{} cannot make {} of {} with weights that are {}", name(id),
        list_of(operation.types.outputs), list_of(operation.types.inputs),
        list_of(operation.types.weights));
  }

  /// What a gather joins lies in one block, member by member; heads stay whole.
  void check_divisions(LayerId id) {
    const LayerTypes& own = types(id);
    const Member member{sharded_.regions, part(id).team, part(id).member};
    const bool sums = kind(id) == "team_gather_sum";
    if ((sums || kind(id) == "team_gather") && own.inputs.at(0).is_part() &&
        !sharded_.regions.is_sequence(own.inputs[0], Regions::Lengths::Varying)) {
      const Type& type = own.inputs[0];
      const model::Division division{static_cast<int64_t>(type.dimension), member.lengths(type)};
      const LayerPtr expected = sums ? make_gather_sum(division) : make_gather(division);
      const auto& found = dynamic_cast<const model::KnownCode&>(model_.layer(id));
      if (type.blocks.size() != 1 ||
          found.code() != dynamic_cast<const model::KnownCode&>(*expected).code())
        add("{} does '{}': expected one block, divided as the members have it", name(id),
            found.code());
    }
    const std::optional<LayerId> whole = part(id).whole;
    const auto* const works =
        whole ? dynamic_cast<const model::WorksOnParts*>(&model_.whole()->layer(*whole)) : nullptr;
    if (works == nullptr || works->units() == 0 || own.inputs.empty() || !own.inputs[0].is_part())
      return;
    const int64_t units = sharded_.regions.units(own.inputs[0].region);
    if (units == 0 || works->units() % units != 0)
      add("{}: {} heads are divided into {} units, which cut a head", name(id), works->units(),
          units);
  }

  void check_weights(LayerId id) {
    const auto specs = model_.layer(id).parameters();
    const auto buffers = model_.layer(id).buffers();
    check_parts(id, "weight", specs, part(id).parameters, types(id).weights);
    check_parts(id, "buffer", buffers, part(id).buffers, types(id).buffers);
    check_weight_gradients(id);
  }

  /// Gradients of weights that see a part of the places are summed, and no others.
  void check_weight_gradients(LayerId id) {
    if (shardable(id) != nullptr) return;  // its own check
    const auto& weights = types(id).weights;
    const bool is_pending = std::any_of(weights.begin(), weights.end(), [](const Type& type) {
      return type.kind == Kind::Pending;
    });
    const auto* const layer = dynamic_cast<const SumsWeightGradients*>(&model_.layer(id));
    const bool sums = layer != nullptr && layer->sums_weight_gradients();
    if (is_pending != sums)
      add("{}: its weights are {}, and the layer {} their gradients over the team", name(id),
          list_of(weights), sums ? "sums" : "does not sum");
  }

  void check_parts(LayerId id, const char* what, const std::vector<model::ParameterSpec>& specs,
                   const std::vector<TensorPart>& parts, const std::vector<Type>& declared) {
    if (specs.size() != parts.size() || declared.size() != parts.size())
      return add("{}: {} {}s, {} parts, {} types", name(id), specs.size(), what, parts.size(),
                 declared.size());
    const Member member{sharded_.regions, part(id).team, part(id).member};
    for (size_t p = 0; p < parts.size(); ++p) {
      if (specs[p].shape != parts[p].sizes())
        add("{}: {} {} has other sizes than its part", name(id), what, specs[p].name);
      if (declared[p].kind != Kind::Equal && declared[p].kind != Kind::Part &&
          declared[p].kind != Kind::Pending)
        add("{}: {} {} is {}", name(id), what, specs[p].name, to_string(declared[p]));
      const TensorPart expected = member.part(declared[p], parts[p].whole, parts[p].number);
      if (expected != parts[p])
        add("{}: {} {} is not the part that member {} of {} has of it", name(id), what,
            specs[p].name, member.number, member.team);
    }
  }

  void check_outputs() {
    for (const ValueRef& value : graph_.outputs()) {
      const Type type = made(value);
      const bool is_taken =
          sharded_.output_parts && type.is_part() && type.blocks.size() == 1 &&
          static_cast<int64_t>(type.dimension) == sharded_.output_parts->dimension;
      if (type.kind != Kind::Equal && !is_taken)
        add("the model's output '{}': expected equal, found {}", graph_.layer(value.layer).name,
            to_string(made(value)));
    }
  }

  /// No work is for nothing that is not so in the whole model.
  void check_readers() {
    std::set<LayerId> read;
    for (const ValueRef& value : graph_.outputs()) read.insert(value.layer);
    const graph::ModelGraph& whole = model_.whole()->graph();
    for (int32_t l = graph_.num_layers() - 1; l >= 0; --l) {
      const LayerId id{l};
      if (!graph_.successors(id).empty() || read.count(id) > 0) continue;
      const std::optional<LayerId> origin = part(id).whole;
      const bool was_output =
          origin && std::any_of(whole.outputs().begin(), whole.outputs().end(),
                                [&](const ValueRef& value) { return value.layer == *origin; });
      if (origin && whole.successors(*origin).empty() && !was_output) continue;
      add("{}: nobody reads what it makes", name(id));
    }
  }

  /// Members of a team have the same layers in the same order, so that they meet.
  void check_members() {
    std::map<int32_t, std::map<int, std::vector<LayerId>>> teams;  // by member 0's stage
    for (int32_t l = 0; l < graph_.num_layers(); ++l) {
      const LayerId id{l};
      teams[team_of(id)][part(id).member].push_back(id);
    }
    for (const auto& [stage, members] : teams) {
      const auto meetings = [&](const std::vector<LayerId>& layers) {
        std::vector<LayerId> found;
        for (const LayerId id : layers) {
          const std::string rule = kind(id);
          // Between stages members differ, and do not meet.
          if (rule != "team_join" && rule != "team_without_gradient") found.push_back(id);
        }
        return found;
      };
      const std::vector<LayerId> first = meetings(members.begin()->second);
      if (static_cast<int>(members.size()) != part(first.front()).team)
        add("stage {} has layers of {} members, its team has {}", stage, members.size(),
            part(first.front()).team);
      for (const auto& [member, layers] : members) {
        const std::vector<LayerId> own = meetings(layers);
        for (size_t i = 0; i < std::max(own.size(), first.size()); ++i) {
          if (i < own.size() && i < first.size() && is_alike(own[i], first[i])) continue;
          add("member {} of stage {} does {} where member 0 does {}", member, stage,
              i < own.size() ? name(own[i]) : "nothing",
              i < first.size() ? name(first[i]) : "nothing");
          break;
        }
      }
    }
  }

  bool is_alike(LayerId a, LayerId b) const {
    const LayerTypes& own = types(a);
    const LayerTypes& other = types(b);
    return kind(a) == kind(b) && part(a).whole == part(b).whole && own.inputs == other.inputs &&
           own.outputs == other.outputs && own.weights == other.weights;
  }

  /// Members of the team that has the whole model's layer.
  int team_of_whole(LayerId whole) const {
    const auto found = teams_.find(whole);
    return found == teams_.end() ? -1 : found->second;
  }

  /// Every weight of the whole model once per member.
  void check_all_weights() {
    const model::Model& whole = *model_.whole();
    std::map<std::pair<int32_t, size_t>, std::map<int, int>> uses;
    for (int32_t l = 0; l < graph_.num_layers(); ++l) {
      const LayerPart& own = part(LayerId{l});
      if (!own.whole) {
        if (!own.parameters.empty()) add("{}: weights of no layer", name(LayerId{l}));
        continue;
      }
      for (const TensorPart& parameter : own.parameters)
        ++uses[{own.whole->value, parameter.number}][own.member];
    }
    for (int32_t l = 0; l < whole.graph().num_layers(); ++l) {
      const auto specs = whole.layer(LayerId{l}).parameters();
      for (size_t p = 0; p < specs.size(); ++p) {
        const auto& members = uses[{l, p}];
        const bool once = std::all_of(members.begin(), members.end(),
                                      [](const auto& use) { return use.second == 1; });
        if (static_cast<int>(members.size()) != team_of_whole(LayerId{l}) || !once)
          add("layer '{}': every member needs its weight {} once",
              whole.graph().layer(LayerId{l}).name, specs[p].name);
      }
    }
  }

  const ShardedModel& sharded_;
  const model::Model& model_;
  const graph::ModelGraph& graph_;
  std::vector<bool> gradients_;   ///< by layer: whether its outputs have one
  std::map<LayerId, int> teams_;  ///< by layer of the whole model
  std::vector<std::string> errors_;
};

}  // namespace

std::vector<std::string> check_types(const ShardedModel& sharded) {
  std::vector<std::string> errors = Check(sharded).run();
  for (std::string& error : check_wiring(sharded)) errors.push_back(std::move(error));
  return errors;
}

}  // namespace penstock::shard

#include "penstock/shard/check_wiring.h"

#include <fmt/format.h>

#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "penstock/model/known_code.h"
#include "penstock/model/works_on_parts.h"
#include "penstock/shard/layer_rules.h"

namespace penstock::shard {
namespace {

using graph::ParameterRef;
using graph::ValueRef;
using model::LayerPart;

constexpr const char* kNoGradient = "team_without_gradient";

/// What a member sees of a value of this type: of a sequence its length is known at run time.
model::InputPart seen_part(const Type& type, const Member& member) {
  const auto dimension = static_cast<int64_t>(type.dimension);
  if (member.regions.is_sequence(type)) return {.dimension = dimension};
  int64_t whole = 0;
  for (const int64_t block : type.blocks) whole += block;
  return {dimension, whole, member.part(type, {}, 0).runs, member.lengths(type)};
}

std::string code_of(const model::Layer& layer) {
  const auto* const known = dynamic_cast<const model::KnownCode*>(&layer);
  return known != nullptr ? known->code() : layer.kind();
}

class Wiring {
 public:
  explicit Wiring(const ShardedModel& sharded)
      : sharded_(sharded),
        model_(sharded.model),
        graph_(sharded.model.graph()),
        whole_(*sharded.model.whole()) {}

  std::vector<std::string> run() {
    for (int32_t l = 0; l < graph_.num_layers(); ++l) {
      const LayerId id{l};
      origins_.push_back(find_origin(id));
      check_inputs(id);
      check_code(id);
      check_ties(id);
      check_borders(id);
    }
    check_outputs();
    check_gradients();
    return std::move(errors_);
  }

 private:
  const LayerPart& part(LayerId id) const { return *model_.part(id); }
  int32_t team_of(LayerId id) const {
    return sharded_.stage_of_layer[id.index()].value - part(id).member;
  }
  std::string kind(LayerId id) const { return model_.layer(id).kind(); }
  std::string name(LayerId id) const {
    return fmt::format("layer '{}' ({})", graph_.layer(id).name, kind(id));
  }
  std::string name(const ValueRef& whole) const {
    return whole.is_model_input() ? fmt::format("input {} of the model", whole.output)
                                  : "'" + whole_.graph().layer(whole.layer).name + "'";
  }
  template <class... Args>
  void add(fmt::format_string<Args...> text, Args&&... args) {
    errors_.push_back(fmt::format(text, std::forward<Args>(args)...));
  }

  /// The value of the whole model that a value stands for.
  ValueRef origin(const ValueRef& value) const {
    if (value.is_model_input()) return value;
    ValueRef own = origins_[value.layer.index()];
    if (part(value.layer).whole) own.output = value.output;
    return own;
  }

  /// Of what the layer makes: its whole layer's, or what it passes on.
  ValueRef find_origin(LayerId id) const {
    if (const std::optional<LayerId> whole = part(id).whole) return {*whole, 0};
    return origin(graph_.layer(id).inputs.at(0));
  }

  void check_inputs(LayerId id) {
    const auto& inputs = graph_.layer(id).inputs;
    const std::optional<LayerId> whole = part(id).whole;
    if (!whole || kind(id) == "team_bias") {
      // All stand for one value; a bias is that of what it is added to.
      const ValueRef expected = whole ? ValueRef{*whole, 0} : origins_[id.index()];
      for (const ValueRef& input : inputs) {
        if (origin(input) != expected)
          add("{} reads {}: expected {}", name(id), name(origin(input)), name(expected));
      }
      return;
    }
    const auto& expected = whole_.graph().layer(*whole).inputs;
    if (inputs.size() != expected.size())
      return add("{} reads {} values, the whole layer {}", name(id), inputs.size(),
                 expected.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (origin(inputs[i]) != expected[i])
        add("{} reads {} as input {}: expected {}", name(id), name(origin(inputs[i])), i,
            name(expected[i]));
    }
  }

  /// The same operation as the whole layer, on the part that the types say.
  void check_code(LayerId id) {
    const std::optional<LayerId> whole = part(id).whole;
    if (!whole || kind(id) == "team_bias") return;
    const model::Layer& layer = whole_.layer(*whole);
    if (layer.kind() != kind(id)) return add("{}: the whole layer is {}", name(id), layer.kind());
    if (dynamic_cast<const Shardable*>(&layer) != nullptr) return;  // its own check
    const std::string expected = expected_code(id, layer);
    const std::string found = code_of(model_.layer(id));
    if (found != expected) add("{} does '{}': expected '{}'", name(id), found, expected);
  }

  std::string expected_code(LayerId id, const model::Layer& layer) const {
    const auto* const works = dynamic_cast<const model::WorksOnParts*>(&layer);
    const LayerTypes& types = sharded_.types[id.index()];
    const Type* seen = nullptr;
    if (!types.inputs.empty() && types.inputs[0].is_part()) seen = &types.inputs[0];
    if (!types.weights.empty() && types.weights[0].is_part()) seen = &types.weights[0];
    if (works == nullptr || seen == nullptr) return code_of(layer);
    return code_of(*works->on_part(
        seen_part(*seen, Member{sharded_.regions, part(id).team, part(id).member})));
  }

  void check_ties(LayerId id) {
    const auto& parts = part(id).parameters;
    if (!part(id).whole) return;
    for (size_t p = 0; p < parts.size(); ++p) {
      const ParameterRef whole{*part(id).whole, static_cast<int>(parts[p].number)};
      const ParameterRef expected = whole_.graph().owner(whole);
      const ParameterRef owner = graph_.owner({id, static_cast<int>(p)});
      const LayerPart& home = part(owner.layer);
      const ParameterRef found{
          *home.whole,
          static_cast<int>(home.parameters[static_cast<size_t>(owner.parameter)].number)};
      if (found != expected || home.member != part(id).member)
        add("{}: its weight is that of '{}', member {}: expected '{}', member {}", name(id),
            whole_.graph().layer(found.layer).name, home.member,
            whole_.graph().layer(expected.layer).name, part(id).member);
    }
  }

  /// Where a value comes from another stage, one member gives each of its makers a gradient.
  void check_borders(LayerId id) {
    const bool ends = kind(id) == kNoGradient;
    for (const ValueRef& input : graph_.layer(id).inputs) {
      if (input.is_model_input()) continue;
      const bool crosses = team_of(input.layer) != team_of(id);
      const int maker = part(input.layer).member;
      const int makers = part(input.layer).team;
      if (ends && (!crosses || part(id).member < makers))
        add("{}: the gradient of {} ends here, and no other member gives it", name(id),
            name(origin(input)));
      if (!crosses || ends) continue;
      given_[{input, team_of(id)}].insert(part(id).member);
      if (maker % part(id).team != part(id).member)
        add("{} of member {} reads {} of member {} of the stage before: expected that of {}",
            name(id), part(id).member, name(origin(input)), maker, maker % part(id).team);
    }
  }

  /// Every member of a stage gets the gradient of what another stage reads.
  void check_gradients() {
    std::map<std::tuple<ValueRef, int32_t>, std::pair<std::set<int>, int>> makers;
    for (const auto& [read, readers] : given_) {
      const ValueRef& value = read.first;
      if (!needs_gradient(origin(value))) continue;
      auto& [members, team] = makers[{origin(value), read.second}];
      members.insert(part(value.layer).member);
      team = part(value.layer).team;
    }
    for (const auto& [read, members] : makers) {
      if (static_cast<int>(members.first.size()) == members.second) continue;
      add("{} is read by another stage from {} of its {} members: the others get no gradient",
          name(std::get<0>(read)), members.first.size(), members.second);
    }
  }

  bool needs_gradient(const ValueRef& whole) {
    if (whole.is_model_input()) return false;
    while (trained_.size() <= whole.layer.index()) {
      const LayerId id{static_cast<int32_t>(trained_.size())};
      bool trained = !whole_.layer(id).parameters().empty();
      for (const ValueRef& input : whole_.graph().layer(id).inputs)
        trained = trained || (!input.is_model_input() && trained_[input.layer.index()]);
      trained_.push_back(trained);
    }
    return trained_[whole.layer.index()];
  }

  /// Each member's, in the order of the whole model's.
  void check_outputs() {
    const auto& expected = whole_.graph().outputs();
    for (size_t o = 0; o < graph_.outputs().size(); ++o) {
      const ValueRef found = origin(graph_.outputs()[o]);
      if (found != expected[o % expected.size()])
        add("output {} of the model is {}: expected {}", o, name(found),
            name(expected[o % expected.size()]));
    }
  }

  const ShardedModel& sharded_;
  const model::Model& model_;
  const graph::ModelGraph& graph_;
  const model::Model& whole_;
  std::vector<ValueRef> origins_;  ///< by layer
  std::vector<bool> trained_;      ///< by layer of the whole model
  /// Values of other stages that are read with a gradient, by reading team: by which members.
  std::map<std::pair<ValueRef, int32_t>, std::set<int>> given_;
  std::vector<std::string> errors_;
};

}  // namespace

std::vector<std::string> check_wiring(const ShardedModel& sharded) { return Wiring(sharded).run(); }

}  // namespace penstock::shard

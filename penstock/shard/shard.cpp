#include "penstock/shard/shard.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "penstock/shard/layer_rules.h"
#include "penstock/shard/team_layers.h"
#include "penstock/util/error.h"

namespace penstock::shard {
namespace {

using graph::LayerNode;
using graph::ParameterRef;
using graph::ValueRef;
using model::LayerPart;

/// Builds the layers of all members, in the order of the whole model's.
class Expansion {
 public:
  Expansion(const std::shared_ptr<const model::Model>& model, const std::vector<StageId>& stages,
            const std::vector<int>& teams, const ShardOptions& options)
      : whole_(model), stages_(stages), teams_(teams), options_(options) {
    int32_t first = 0;
    for (const int size : teams) {
      first_stage_.push_back(first);
      first += size;
    }
    for (const StageId stage : stages) team_of_layer_.push_back(teams.at(stage.index()));
    check_ties();
    placement_ = infer(*model, stages, team_of_layer_, options);
    find_gradients();
  }

  ShardedModel run() {
    const graph::ModelGraph& graph = whole_->graph();
    for (int32_t l = 0; l < graph.num_layers(); ++l) {
      for (int m = 0; m < team_of(LayerId{l}); ++m) add_layer(LayerId{l}, m);
    }
    std::vector<ValueRef> outputs;
    const StageId last = stage_of_outputs();
    for (int m = 0; m < teams_[last.index()]; ++m) {
      for (const ValueRef& value : graph.outputs()) outputs.push_back(output_of(value, m));
    }
    model::Model all(
        whole_->name(),
        graph::ModelGraph::build(graph.num_inputs(), std::move(nodes_), std::move(outputs)),
        std::move(layers_), whole_->input_shapes());
    copy_settings(all);
    return {.model = std::move(all),
            .stage_of_layer = std::move(stage_of_layer_),
            .shares = shares(),
            .output_parts = std::move(output_parts_),
            .regions = placement_.regions,
            .types = std::move(types_)};
  }

 private:
  /// A value as a member of a stage has it.
  struct Held {
    ValueRef value;  ///< of the whole model
    StageId stage;
    int member = 0;
    Kind read_as = Kind::Equal;
    auto operator<=>(const Held&) const = default;
  };

  int team_of(LayerId layer) const { return team_of_layer_[layer.index()]; }

  void check_ties() const {
    const graph::ModelGraph& graph = whole_->graph();
    for (const graph::TieGroup& group : graph::tie_groups(graph)) {
      for (const ParameterRef& use : group) {
        const LayerId first = group.front().layer;
        if (team_of(use.layer) == team_of(first)) continue;
        throw ConfigError(fmt::format(
            "layers '{}' and '{}' share a weight, and their stages' teams have {} and {} members: "
            "expected teams of one size",
            graph.layer(first).name, graph.layer(use.layer).name, team_of(first),
            team_of(use.layer)));
      }
    }
  }

  /// Which values depend on a trained weight: only their gradients are asked for.
  void find_gradients() {
    const graph::ModelGraph& graph = whole_->graph();
    for (int32_t l = 0; l < graph.num_layers(); ++l) {
      const LayerId id{l};
      const auto& inputs = graph.layer(id).inputs;
      needs_gradient_.push_back(!whole_->layer(id).parameters().empty() ||
                                std::any_of(inputs.begin(), inputs.end(),
                                            [&](const ValueRef& v) { return needs_gradient(v); }));
    }
  }
  bool needs_gradient(const ValueRef& value) const {
    return !value.is_model_input() && needs_gradient_[value.layer.index()];
  }

  struct NewLayer {
    std::string name;
    SharedLayer layer;
    std::vector<ValueRef> inputs;
    StageId stage;  ///< of the whole model
    LayerPart part;
    LayerTypes types;
    std::vector<graph::WeightTie> ties = {};
  };

  LayerId add(NewLayer layer) {
    const LayerId id{static_cast<int32_t>(nodes_.size())};
    if (teams_[layer.stage.index()] > 1) layer.name += fmt::format("-m{}", layer.part.member);
    nodes_.push_back({.name = std::move(layer.name),
                      .kind = layer.layer->kind(),
                      .inputs = std::move(layer.inputs),
                      .num_outputs = layer.layer->num_outputs(),
                      .ties = std::move(layer.ties)});
    layers_.push_back(std::move(layer.layer));
    stage_of_layer_.push_back(StageId{first_stage_[layer.stage.index()] + layer.part.member});
    parts_.push_back(std::move(layer.part));
    types_.push_back(std::move(layer.types));
    return id;
  }

  LayerId add_between(const std::string& name, SharedLayer layer, std::vector<ValueRef> inputs,
                      const Held& held, LayerTypes types) {
    return add({.name = name,
                .layer = std::move(layer),
                .inputs = std::move(inputs),
                .stage = held.stage,
                .part = {.team = teams_[held.stage.index()], .member = held.member},
                .types = std::move(types)});
  }

  std::string name_of(const ValueRef& value) const {
    if (value.is_model_input()) return fmt::format("input{}", value.output);
    const std::string& layer = whole_->graph().layer(value.layer).name;
    return value.output == 0 ? layer : fmt::format("{}.{}", layer, value.output);
  }

  /// How a member of its own stage has what a layer makes, without anything between.
  Kind made_as(const ValueRef& value) const {
    return placement_.regions.is_sequence(placement_.values.at(value)) ? Kind::Part : Kind::Equal;
  }

  /// How a member reads a value of this type.
  Kind read_as(const Type& type) const {
    if (placement_.regions.is_sequence(type)) return Kind::Part;
    return type.kind == Kind::Pending ? Kind::Pending : Kind::Equal;
  }

  /// All places of a value whose places its stage has in parts.
  ValueRef gathered(const Held& wanted) {
    Held part = wanted;
    part.read_as = Kind::Part;
    const bool sums = wanted.read_as == Kind::Pending;
    const Type& type = placement_.values.at(wanted.value);
    const LayerTypes types{.inputs = {type}, .outputs = {sums ? Type::pending() : Type::equal()}};
    return {add_between(name_of(wanted.value) + (sums ? ".gather_sum" : ".gather"),
                        gather_of(type, wanted, sums), {held(part)}, wanted, types),
            0};
  }

  LayerPtr gather_of(const Type& type, const Held& wanted, bool sums) const {
    const int members = teams_[wanted.stage.index()];
    if (!placement_.regions.is_sequence(type, Regions::Lengths::Fixed))
      return sums ? make_sequence_gather_sum(members) : make_sequence_gather(members);
    const Member member{placement_.regions, members, wanted.member};
    model::Division division{static_cast<int64_t>(type.dimension), member.lengths(type)};
    return sums ? make_gather_sum(std::move(division)) : make_gather(std::move(division));
  }

  /// The member's places of an equal value.
  ValueRef cut(const Held& wanted, const Type& type) {
    Held equal = wanted;
    equal.read_as = Kind::Equal;
    return held_[wanted] = {
               add_between(name_of(wanted.value) + ".part",
                           make_sequence_part(teams_[wanted.stage.index()]), {held(equal)}, wanted,
                           {.inputs = {Type::equal()}, .outputs = {type}}),
               0};
  }

  /// The value as the member reads it, with what it takes to bring it there.
  ValueRef held(const Held& wanted) {
    if (wanted.value.is_model_input()) return wanted.value;
    const auto found = held_.find(wanted);
    if (found != held_.end()) return found->second;
    return held_[wanted] = brought(wanted);
  }

  ValueRef brought(const Held& wanted) {
    const bool is_own = stages_[wanted.value.layer.index()] == wanted.stage;
    if (is_own && made_as(wanted.value) == Kind::Part) return gathered(wanted);
    Held equal = wanted;
    if (wanted.read_as == Kind::Pending) {
      equal.read_as = Kind::Equal;
      const ValueRef value = held(equal);
      if (!needs_gradient(wanted.value)) return value;
      return {add_between(name_of(wanted.value) + ".sum_backward", make_sum_backward(), {value},
                          wanted, {.inputs = {Type::equal()}, .outputs = {Type::pending()}}),
              0};
    }
    // Made by another stage: each member there has it.
    const StageId from = stages_[wanted.value.layer.index()];
    const int makers = teams_[from.index()];
    const int readers = teams_[wanted.stage.index()];
    Held source{wanted.value, from, wanted.member % makers, Kind::Equal};
    std::vector<ValueRef> sources{held(source)};
    if (!needs_gradient(wanted.value)) return sources.front();
    const LayerTypes types{.inputs = {Type::equal()}, .outputs = {Type::equal()}};
    const std::string name =
        fmt::format("{}.to_stage{}", name_of(wanted.value), wanted.stage.value);
    if (wanted.member >= makers)
      return {add_between(name, make_without_gradient(), std::move(sources), wanted, types), 0};
    for (source.member = wanted.member + readers; source.member < makers; source.member += readers)
      sources.push_back(held(source));
    if (sources.size() == 1) return sources.front();
    const auto count = static_cast<int>(sources.size());
    return {add_between(name, make_join(count), std::move(sources), wanted,
                        {.inputs = std::vector<Type>(static_cast<size_t>(count), Type::equal()),
                         .outputs = {Type::equal()}}),
            0};
  }

  void add_layer(LayerId id, int member) {
    const SharedLayer layer = whole_->shared_layer(id);
    const LayerNode& node = whole_->graph().layer(id);
    const LayerTypes& types = placement_.layers[id.index()];
    const StageId stage = stages_[id.index()];
    std::vector<ValueRef> inputs;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const Held wanted{node.inputs[i], stage, member, read_as(types.inputs[i])};
      const bool is_cut = wanted.read_as == Kind::Part && held_.count(wanted) == 0;
      inputs.push_back(is_cut ? cut(wanted, types.inputs[i]) : held(wanted));
    }
    LayerId last{};
    std::vector<LayerId> made;
    for (const Piece& piece : pieces_of(id, layer, types, member)) {
      std::vector<ValueRef> sources;
      for (const Piece::Source& source : piece.inputs) {
        sources.push_back(source.piece
                              ? ValueRef{made[*source.piece], static_cast<int>(source.number)}
                              : inputs[source.number]);
      }
      const bool is_between = piece.layer->kind().starts_with("team_sum");
      last = add({.name = node.name + piece.suffix,
                  .layer = piece.layer,
                  .inputs = std::move(sources),
                  .stage = stage,
                  .part = {.team = teams_[stage.index()],
                           .member = member,
                           .whole = is_between ? std::nullopt : std::optional(id),
                           .parameters = piece.parameters,
                           .buffers = piece.buffers},
                  .types = piece.types,
                  .ties = ties_of(id, piece, member)});
      made.push_back(last);
      for (size_t p = 0; p < piece.parameters.size(); ++p) {
        homes_[{ParameterRef{id, static_cast<int>(piece.parameters[p].number)}, member}] = {
            last, static_cast<int>(p)};
      }
    }
    for (int o = 0; o < node.num_outputs; ++o)
      held_[{{id, o}, stage, member, made_as({id, o})}] = {last, o};
  }

  std::vector<Piece> pieces_of(LayerId id, const SharedLayer& layer, const LayerTypes& types,
                               int member) const {
    const LayerShapes shapes = shapes_of(*whole_, id);
    if (!is_whole(types)) {
      return rule_of(*layer).pieces(layer, types, {shapes.inputs, shapes.outputs},
                                    {placement_.regions, team_of(id), member});
    }
    Piece piece{.layer = layer, .types = types};
    for (size_t i = 0; i < types.inputs.size(); ++i) piece.inputs.push_back({{}, i});
    const auto add_whole = [](const std::vector<model::ParameterSpec>& specs,
                              std::vector<model::TensorPart>& parts) {
      for (const model::ParameterSpec& spec : specs)
        parts.push_back({.whole = spec.shape, .number = parts.size()});
    };
    add_whole(layer->parameters(), piece.parameters);
    add_whole(layer->buffers(), piece.buffers);
    return {std::move(piece)};
  }

  std::vector<graph::WeightTie> ties_of(LayerId id, const Piece& piece, int member) const {
    std::vector<graph::WeightTie> ties;
    for (size_t p = 0; p < piece.parameters.size(); ++p) {
      const ParameterRef own{id, static_cast<int>(piece.parameters[p].number)};
      const ParameterRef owner = whole_->graph().owner(own);
      if (owner == own) continue;
      ties.push_back({static_cast<int>(p), homes_.at({owner, member})});
    }
    return ties;
  }

  StageId stage_of_outputs() const {
    StageId last{0};
    for (const ValueRef& value : whole_->graph().outputs()) {
      if (!value.is_model_input()) last = std::max(last, stages_[value.layer.index()]);
    }
    return last;
  }

  bool stays_in_parts(const ValueRef& value, const Type& type) const {
    return options_.keeps_output_parts && whole_->graph().outputs().size() == 1 &&
           type.blocks.size() == 1 &&
           type.dimension == whole_->output_shapes(value.layer)[0].size();
  }

  /// Every output of the model: whole, or what the loss takes.
  ValueRef output_of(const ValueRef& value, int member) {
    if (value.is_model_input()) return value;
    const Held wanted{value, stages_[value.layer.index()], member % team_of(value.layer),
                      Kind::Equal};
    const ValueRef own = held(wanted);
    const Type& type = placement_.values.at(value);
    if (!type.is_part() || placement_.regions.is_sequence(type)) return own;
    const Member part{placement_.regions, team_of(value.layer), wanted.member};
    model::Division division{static_cast<int64_t>(type.dimension), part.lengths(type)};
    if (stays_in_parts(value, type)) {
      output_parts_ = std::move(division);
      return own;
    }
    return {add_between(name_of(value) + ".gather", make_gather(std::move(division)), {own}, wanted,
                        {.inputs = {type}, .outputs = {Type::equal()}}),
            0};
  }

  void copy_settings(model::Model& all) {
    all.set_inputs(whole_->inputs());
    all.set_extra_state(whole_->extra_state());
    all.set_adapters(whole_->adapters());
    all.set_auxiliary_weights(whole_->auxiliary_weights());
    if (whole_->takes_channels_last()) all.set_takes_channels_last();
    if (whole_->returns_loss()) all.set_returns_loss();
    all.set_parts(whole_, std::move(parts_));
  }

  std::vector<Shares> shares() const {
    std::vector<Shares> all(teams_.size());
    const graph::ModelGraph& graph = whole_->graph();
    for (int32_t l = 0; l < graph.num_layers(); ++l) {
      const LayerId id{l};
      Shares& own = all[stages_[id.index()].index()];
      const LayerTypes& types = placement_.layers[id.index()];
      const auto specs = whole_->layer(id).parameters();
      for (size_t p = 0; p < specs.size(); ++p) {
        int64_t numbers = 1;
        for (const int64_t size : specs[p].shape) numbers *= size;
        const ParameterRef parameter{id, static_cast<int>(p)};
        if (graph.owner(parameter) != parameter) continue;
        own.numbers += numbers;
        if (types.weights[p].is_part()) own.spread_numbers += numbers;
      }
    }
    for (const auto& [parameter, why] : placement_.why_whole) {
      all[stages_[parameter.layer.index()].index()].whole_layers.push_back(
          fmt::format("{}: {}", graph.layer(parameter.layer).name, why));
    }
    return all;
  }

  const std::shared_ptr<const model::Model>& whole_;
  const std::vector<StageId>& stages_;
  const std::vector<int>& teams_;
  const ShardOptions& options_;
  std::optional<model::Division> output_parts_;
  std::vector<int32_t> first_stage_;
  std::vector<int> team_of_layer_;
  Placement placement_;
  std::vector<bool> needs_gradient_;
  // Of the model for teams, by layer.
  std::vector<LayerNode> nodes_;
  std::vector<SharedLayer> layers_;
  std::vector<StageId> stage_of_layer_;
  std::vector<LayerPart> parts_;
  std::vector<LayerTypes> types_;
  std::map<Held, ValueRef> held_;
  /// Where a member has a weight of the whole model.
  std::map<std::pair<ParameterRef, int>, ParameterRef> homes_;
};

}  // namespace

ShardedModel shard(const std::shared_ptr<const model::Model>& model,
                   const std::vector<StageId>& stage_of_layer, const std::vector<int>& teams,
                   const ShardOptions& options) {
  return Expansion(model, stage_of_layer, teams, options).run();
}

}  // namespace penstock::shard

#include "penstock/shard/infer.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "penstock/model/shapes.h"
#include "penstock/util/check.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::shard {
namespace {

using graph::ParameterRef;
using graph::ValueRef;
using model::Shape;

struct Candidate {
  std::vector<int64_t> blocks;
  std::optional<Region> region = {};  ///< once a walk has come to it
};

/// Exchanges inside of a layer come one after another, and each takes about as long as a worker
/// needs to read so many weights: some ten microseconds.
constexpr int64_t kWeightsPerExchange = 1 << 15;

int64_t numbers_of(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, saturating_mul);
}

class Inference {
 public:
  Inference(const model::Model& model, const std::vector<StageId>& stage_of_layer,
            const std::vector<int>& team_of_layer, const ShardOptions& options)
      : model_(model), stages_(stage_of_layer), teams_(team_of_layer), options_(options) {
    tied_ = graph::tie_groups(model.graph());
    for (int32_t l = 0; l < model.graph().num_layers(); ++l) find_candidates(LayerId{l});
    drop_ties_of_unequal_teams();
  }

  Placement run() {
    Placement found;
    found.layers.resize(static_cast<size_t>(model_.graph().num_layers()));
    LayerId next{0};
    for (;;) {
      try {
        walk(found, next);
        check_ties(found);
        check_units(found);
        check_outputs(found);
        const std::vector<Refused> unworthy = not_worthwhile(found);
        if (unworthy.empty()) break;
        next = LayerId{model_.graph().num_layers()};
        for (const Refused& refused : unworthy)
          next = std::min(next, drop(found.regions, refused.region, refused.why));
      } catch (const Refused& refused) {
        next = drop(found.regions, refused.region, refused.why);
      } catch (const InBlocks& wanted) {
        next = reblock(found.regions, wanted);
      }
    }
    found.why_whole = std::move(why_whole_);
    return found;
  }

 private:
  /// While one layer's types are found.
  class LayerWalk final : public Walk {
   public:
    LayerWalk(Inference& inference, Regions& regions, LayerId layer)
        : Walk(regions), inference_(inference), layer_(layer) {}
    std::optional<Type> spread(size_t parameter) override {
      return inference_.spread({layer_, static_cast<int>(parameter)}, regions());
    }
    int team() const override { return inference_.teams_[layer_.index()]; }
    std::optional<Type> sequence(const Shape& shape) override {
      return inference_.sequence(layer_, shape, regions());
    }
    std::optional<Type> fixed_sequence(int64_t places) override {
      return inference_.fixed_sequence(layer_, places, regions());
    }

   private:
    Inference& inference_;
    LayerId layer_;
  };

  void find_candidates(LayerId id) {
    if (teams_[id.index()] == 1) return;
    const SharedLayer layer = model_.shared_layer(id);
    const auto specs = layer->parameters();
    for (const size_t parameter : rule_of(*layer).candidates(layer)) {
      // Which dimension the rows are is the rule's to know: that of what the layer makes.
      const auto* const own = dynamic_cast<const Shardable*>(layer.get());
      const bool transposed = layer->kind() == "linear_transposed";
      const size_t dimension = own != nullptr ? own->row_dimension(parameter) : transposed ? 1 : 0;
      const int64_t rows = specs.at(parameter).shape.at(dimension);
      if (rows >= teams_[id.index()])
        candidates_[{id, static_cast<int>(parameter)}] = {.blocks = {rows}};
    }
  }

  /// All uses of a weight are divided alike, or none.
  void drop_ties_of_unequal_teams() {
    for (const graph::TieGroup& group : tied_) {
      const int team = teams_[group.front().layer.index()];
      const bool fit = std::all_of(group.begin(), group.end(), [&](const ParameterRef& use) {
        return teams_[use.layer.index()] == team;
      });
      if (fit) continue;
      for (const ParameterRef& use : group)
        drop(use, "it is shared with a stage whose team has another size");
    }
  }

  void drop(const ParameterRef& candidate, const std::string& why) {
    if (candidates_.erase(candidate) > 0) why_whole_[candidate] = why;
  }

  /// Returns the first layer whose types may be others now.
  LayerId drop(const Regions& regions, Region region, const std::string& why) {
    std::vector<ParameterRef> dropped;
    for (const auto& [parameter, candidate] : candidates_) {
      if (candidate.region && regions.are_joined(*candidate.region, region))
        dropped.push_back(parameter);
    }
    PENSTOCK_CHECK(!dropped.empty(), "no candidate of a refused region:", why);
    for (const ParameterRef& parameter : dropped) drop(parameter, why);
    return dropped.front().layer;
  }

  /// As drop().
  LayerId reblock(Regions& regions, const InBlocks& wanted) {
    const int64_t length = std::accumulate(wanted.blocks.begin(), wanted.blocks.end(), int64_t{0});
    std::optional<LayerId> first;
    for (auto& [parameter, candidate] : candidates_) {
      if (!candidate.region || !regions.are_joined(*candidate.region, wanted.region)) continue;
      const int64_t rows =
          std::accumulate(candidate.blocks.begin(), candidate.blocks.end(), int64_t{0});
      if (rows != length || candidate.blocks == wanted.blocks) continue;
      // Blocks are only made finer: otherwise two readers might take turns for ever.
      if (candidate.blocks.size() >= wanted.blocks.size()) continue;
      candidate.blocks = wanted.blocks;
      for (const int64_t block : candidate.blocks) regions.divide(*candidate.region, block);
      if (!first) first = parameter.layer;
    }
    if (first) return *first;
    return drop(regions, wanted.region, "what reads it needs other blocks of its rows");
  }

  std::optional<Type> spread(const ParameterRef& parameter, Regions& regions) {
    const auto found = candidates_.find(parameter);
    if (found == candidates_.end()) return {};
    Candidate& candidate = found->second;
    if (!candidate.region) {
      candidate.region = regions.make();
      for (const int64_t block : candidate.blocks) regions.divide(*candidate.region, block);
    }
    return Type::part(0, *candidate.region, candidate.blocks);
  }

  /// Places of one length are divided alike in the whole stage.
  std::optional<Type> sequence(LayerId layer, const Shape& shape, Regions& regions) {
    const StageId stage = stages_[layer.index()];
    if (shape.size() != 2 || !divides_sequences(stage)) return {};
    const int64_t places = shape[0];
    const int team = teams_[layer.index()];
    if (places % team != 0) {
      throw ConfigError(fmt::format(
          "layer '{}' makes sequences of {} places, which stage {}'s team of {} cannot share out "
          "(sequence parallelism): expected a multiple of {}",
          model_.graph().layer(layer).name, places, stage.value, team, team));
    }
    return region_of_places({stage, places, Regions::Lengths::Varying}, regions);
  }

  std::optional<Type> fixed_sequence(LayerId layer, int64_t places, Regions& regions) {
    const StageId stage = stages_[layer.index()];
    if (!divides_sequences(stage) || places < teams_[layer.index()]) return {};
    return region_of_places({stage, places, Regions::Lengths::Fixed}, regions);
  }

  bool divides_sequences(StageId stage) const {
    return stage.index() < options_.sequence.size() && options_.sequence[stage.index()];
  }

  using Sequence = std::tuple<StageId, int64_t, Regions::Lengths>;

  Type region_of_places(const Sequence& sequence, Regions& regions) {
    const auto [stage, places, lengths] = sequence;
    const auto [found, is_new] = sequences_.try_emplace(sequence);
    if (is_new) found->second = regions.make_sequence(places, lengths);
    return Type::part(1, found->second, {places});
  }

  /// From this layer on: types before it stay.
  void walk(Placement& found, LayerId first) {
    const graph::ModelGraph& graph = model_.graph();
    for (int32_t l = first.value; l < graph.num_layers(); ++l) {
      const LayerId id{l};
      const graph::LayerNode& node = graph.layer(id);
      const SharedLayer layer = model_.shared_layer(id);
      std::vector<Type> inputs;
      for (const ValueRef& value : node.inputs) {
        Type type = type_of(found, value, id);
        // What comes in parts of its places is gathered.
        if (!takes(rule_of(*layer), found.regions, type)) type = Type::equal();
        inputs.push_back(std::move(type));
      }
      const LayerShapes shapes = shapes_of(model_, id);
      LayerWalk own(*this, found.regions, id);
      LayerTypes& types = found.layers[id.index()];
      types = rule_of(*layer).infer(layer, inputs, {shapes.inputs, shapes.outputs}, own);
      for (int o = 0; o < node.num_outputs; ++o)
        found.values[{id, o}] = types.outputs.at(static_cast<size_t>(o));
    }
  }

  static bool takes(const Rule& rule, const Regions& regions, const Type& type) {
    using Lengths = Regions::Lengths;
    return !regions.is_sequence(type) ||
           rule.takes_sequences(regions.is_sequence(type, Lengths::Fixed) ? Lengths::Fixed
                                                                          : Lengths::Varying);
  }

  /// Of a value as the layer's stage has it.
  Type type_of(const Placement& found, const ValueRef& value, LayerId reader) const {
    if (value.is_model_input()) return Type::equal();
    const Type& type = found.values.at(value);
    if (!type.is_part() || stages_[value.layer.index()] == stages_[reader.index()]) return type;
    if (found.regions.is_sequence(type)) return Type::equal();
    throw Refused{type.region, "the stage ends between the layers that would share its parts"};
  }

  void check_ties(Placement& found) {
    for (const graph::TieGroup& group : tied_) {
      const Type& first = weight_type(found, group.front());
      for (const ParameterRef& use : group) {
        const Type& type = weight_type(found, use);
        if (type.kind == first.kind && type.dimension == first.dimension &&
            type.blocks == first.blocks) {
          if (type.is_part()) found.regions.join(type.region, first.region);
          continue;
        }
        const Type& part = type.is_part() ? type : first;
        throw Refused{part.region, "another layer shares the weight and cannot have its parts"};
      }
    }
  }

  static const Type& weight_type(const Placement& found, const ParameterRef& parameter) {
    return found.layers[parameter.layer.index()].weights.at(
        static_cast<size_t>(parameter.parameter));
  }

  void check_units(const Placement& found) const {
    for (size_t l = 0; l < found.layers.size(); ++l) {
      for (const Type& type : found.layers[l].weights) {
        if (!type.is_part() || found.regions.can_divide(type.region, teams_[l])) continue;
        throw Refused{type.region, fmt::format("it has {} units (heads) for {} members",
                                               found.regions.units(type.region), teams_[l])};
      }
    }
  }

  /// What members exchange for a sample because of a region, against its weights.
  std::vector<Refused> not_worthwhile(const Placement& found) const {
    std::vector<Refused> refused;
    if (!options_.only_worthwhile) return refused;
    std::map<Region, int64_t> weights;
    std::map<Region, int64_t> exchanged;
    const graph::ModelGraph& graph = model_.graph();
    for (size_t l = 0; l < found.layers.size(); ++l) {
      const LayerId id{static_cast<int32_t>(l)};
      const LayerTypes& types = found.layers[l];
      std::optional<Region> region;
      const auto specs = model_.layer(id).parameters();
      for (size_t p = 0; p < types.weights.size(); ++p) {
        if (!types.weights[p].is_part()) continue;
        region = found.regions.leader(types.weights[p].region);
        weights[*region] = saturating_add(weights[*region], numbers_of(specs[p].shape));
      }
      if (!region) continue;
      exchanged[*region] = saturating_add(exchanged[*region],
                                          saturating_mul(types.inside.count, kWeightsPerExchange));
      const auto add = [&](const Shape& shape) {
        exchanged[*region] = saturating_add(exchanged[*region], numbers_of(shape));
      };
      const LayerShapes shapes = shapes_of(model_, id);
      for (size_t i = 0; i < types.inputs.size(); ++i) {
        if (types.inputs[i].kind == Kind::Pending) add(shapes.inputs[i]);
      }
      const bool sums =
          types.outputs[0].kind == Kind::Equal || found.regions.is_sequence(types.outputs[0]);
      const bool gathers = !sums && types.outputs[0].is_part() &&
                           std::any_of(graph.outputs().begin(), graph.outputs().end(),
                                       [&](const ValueRef& output) { return output.layer == id; });
      if (sums || (gathers && !options_.keeps_output_parts)) add(shapes.outputs[0]);
    }
    for (const auto& [region, numbers] : exchanged) {
      if (numbers > weights[region])
        refused.push_back(
            {region, fmt::format("members would exchange {} numbers for each sample, for {} of "
                                 "weights",
                                 numbers, weights[region])});
    }
    return refused;
  }

  /// Outputs are gathered member by member: several blocks would lie in another order.
  void check_outputs(const Placement& found) const {
    for (const ValueRef& value : model_.graph().outputs()) {
      if (value.is_model_input()) continue;
      const Type& type = found.values.at(value);
      if (type.is_part() && type.blocks.size() > 1)
        throw Refused{type.region, "it is an output of the model in several blocks"};
      if (type.is_part() && found.regions.is_copied(type.region, teams_[value.layer.index()]))
        throw Refused{type.region, "several members have the same part of the model's output"};
    }
  }

  const model::Model& model_;
  const std::vector<StageId>& stages_;
  const std::vector<int>& teams_;
  const ShardOptions options_;
  std::map<ParameterRef, Candidate> candidates_;  ///< that are spread
  std::map<ParameterRef, std::string> why_whole_;
  std::vector<graph::TieGroup> tied_;
  std::map<Sequence, Region> sequences_;  ///< by stage and length
};

}  // namespace

LayerShapes shapes_of(const model::Model& model, LayerId id) {
  LayerShapes shapes{.outputs = model.output_shapes(id)};
  for (const ValueRef& value : model.graph().layer(id).inputs) {
    const auto output = static_cast<size_t>(value.output);
    shapes.inputs.push_back(value.is_model_input() ? model.input_shapes()[output]
                                                   : model.output_shapes(value.layer)[output]);
  }
  return shapes;
}

Placement infer(const model::Model& model, const std::vector<StageId>& stage_of_layer,
                const std::vector<int>& team_of_layer, const ShardOptions& options) {
  return Inference(model, stage_of_layer, team_of_layer, options).run();
}

}  // namespace penstock::shard

#include "penstock/shard/layer_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <utility>

#include "penstock/model/works_on_parts.h"
#include "penstock/shard/part_layer.h"
#include "penstock/shard/team_layers.h"
#include "penstock/util/check.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::shard {
namespace {

using model::Shape;
using Shapes = Shardable::Shapes;

int64_t whole_length(const Type& type) {
  return std::accumulate(type.blocks.begin(), type.blocks.end(), int64_t{0});
}

std::vector<Type> all_equal(size_t count) { return std::vector<Type>(count, Type::equal()); }

LayerTypes whole_types(const model::Layer& layer, size_t inputs) {
  return {.inputs = all_equal(inputs),
          .weights = all_equal(layer.parameters().size()),
          .buffers = all_equal(layer.buffers().size()),
          .outputs = all_equal(static_cast<size_t>(layer.num_outputs()))};
}

[[noreturn]] void refuse(const model::Layer& layer, const Type& part) {
  throw Refused{part.region, fmt::format("{} does not take parts along dimension {}", layer.kind(),
                                         part.dimension)};
}

/// Dimension of a value, with the batch, that is the last one of this shape.
size_t last_of(const Shape& shape) { return shape.size(); }

std::vector<std::optional<PartLength>> lengths_of(const std::vector<Type>& types,
                                                  const Member& member) {
  std::vector<std::optional<PartLength>> lengths;
  for (const Type& type : types) {
    std::optional<PartLength>& length = lengths.emplace_back();
    if (type.is_part()) length = {type.dimension, whole_length(type), member.length(type)};
  }
  return lengths;
}

/// The work that is not the member's: of the first part that there is.
double share_of(const LayerTypes& types, const Member& member) {
  for (const auto* list : {&types.weights, &types.inputs, &types.outputs}) {
    for (const Type& type : *list) {
      if (type.is_part())
        return static_cast<double>(member.length(type)) / static_cast<double>(whole_length(type));
    }
  }
  return 1;
}

std::vector<model::TensorPart> parts_of(const std::vector<model::ParameterSpec>& specs,
                                        const std::vector<Type>& types, const Member& member) {
  std::vector<model::TensorPart> parts;
  for (size_t i = 0; i < specs.size(); ++i)
    parts.push_back(member.part(types[i], specs[i].shape, i));
  return parts;
}

bool has_pending(const std::vector<Type>& types) {
  return std::any_of(types.begin(), types.end(),
                     [](const Type& type) { return type.kind == Kind::Pending; });
}

/// What the member has of the layer's work, in one piece.
Piece piece_of(const SharedLayer& layer, const LayerTypes& types, const Member& member,
               SharedLayer code) {
  Piece piece{.suffix = "", .layer = nullptr};
  for (size_t i = 0; i < types.inputs.size(); ++i) piece.inputs.push_back({{}, i});
  piece.parameters = parts_of(layer->parameters(), types.weights, member);
  piece.buffers = parts_of(layer->buffers(), types.buffers, member);
  piece.types = types;
  piece.layer = make_part_layer({.code = std::move(code),
                                 .whole = layer,
                                 .parameters = piece.parameters,
                                 .buffers = piece.buffers,
                                 .inputs = lengths_of(types.inputs, member),
                                 .outputs = lengths_of(types.outputs, member),
                                 .share = share_of(types, member),
                                 .sums_gradients = has_pending(types.weights)});
  return piece;
}

/// The layer's code for the part of its input or, of a table, of its rows.
SharedLayer on_part(const SharedLayer& layer, const Type& type, const Member& member) {
  const auto* const works = dynamic_cast<const model::WorksOnParts*>(layer.get());
  if (works == nullptr) return layer;
  const auto dimension = static_cast<int64_t>(type.dimension);
  // Its length is known at run time.
  if (member.regions.is_sequence(type)) return works->on_part({.dimension = dimension});
  const model::TensorPart part = member.part(type, {}, 0);
  return works->on_part({dimension, whole_length(type), part.runs, member.lengths(type)});
}

/// What the first piece makes, `partial`, summed to `made`, equal or a part of the places, and the
/// bias (parameter 1), if there is one, added once.
void add_sum(std::vector<Piece>& pieces, const SharedLayer& layer, const Type& made,
             const Member& member, size_t bias_dimension) {
  const bool is_whole = made.kind == Kind::Equal;
  pieces.push_back({.suffix = ".sum",
                    .layer = is_whole ? make_sum_forward() : make_sequence_sum_part(member.team),
                    .inputs = {{0, 0}},
                    .types = {.inputs = {Type::partial()}, .outputs = {made}}});
  const std::vector<model::ParameterSpec> specs = layer->parameters();
  if (specs.size() < 2) return;
  Piece& first = pieces.front();
  first.parameters.pop_back();
  first.types.weights.pop_back();
  pieces.push_back(
      {.suffix = ".bias",
       .layer = make_bias(specs[1].shape[0], static_cast<int64_t>(bias_dimension), !is_whole),
       .inputs = {{1, 0}},
       .parameters = {{.whole = specs[1].shape, .number = 1}},
       .types = {.inputs = {made},
                 .weights = {is_whole ? Type::equal() : Type::pending()},
                 .outputs = {made}}});
}

/// The member's layer does the same with its part of the first input.
class OnePieceRule : public Rule {
 public:
  std::vector<Piece> pieces(const SharedLayer& layer, const LayerTypes& types, const Shapes&,
                            const Member& member) const override {
    return {piece_of(layer, types, member, on_part(layer, types.inputs[0], member))};
  }
};

/// Nothing: all inputs are equal.
std::optional<Type> first_part(const std::vector<Type>& inputs) {
  const auto part =
      std::find_if(inputs.begin(), inputs.end(), [](const Type& type) { return type.is_part(); });
  return part == inputs.end() ? std::nullopt : std::optional(*part);
}

class WholeRule final : public OnePieceRule {
 public:
  LayerTypes infer(const SharedLayer& layer, const std::vector<Type>& inputs, const Shapes&,
                   Walk&) const override {
    for (const Type& input : inputs) {
      if (input.is_part()) refuse(*layer, input);
    }
    return whole_types(*layer, inputs.size());
  }
};

class OwnRule final : public Rule {
 public:
  std::vector<size_t> candidates(const SharedLayer& layer) const override {
    return own(layer).candidates();
  }
  bool takes_sequences(Regions::Lengths lengths) const override {
    return lengths == Regions::Lengths::Fixed;
  }
  LayerTypes infer(const SharedLayer& layer, const std::vector<Type>& inputs, const Shapes& shapes,
                   Walk& walk) const override {
    return own(layer).infer(inputs, shapes, walk);
  }
  std::vector<Piece> pieces(const SharedLayer& layer, const LayerTypes& types, const Shapes& shapes,
                            const Member& member) const override {
    return own(layer).pieces(types, shapes, member);
  }

 private:
  static const Shardable& own(const SharedLayer& layer) {
    return dynamic_cast<const Shardable&>(*layer);
  }
};

/// A product with a weight, parameter 0, and a bias, parameter 1: with rows in parts it makes parts
/// of features or channels of a whole input ("column parallel"); of an input in such parts it makes
/// a partial sum ("row parallel").
class ProductRule final : public Rule {
 public:
  /// Dimensions of the weight: of what it makes, and of what it reads.
  ProductRule(size_t made, size_t read, bool is_convolution)
      : made_(made), read_(read), is_convolution_(is_convolution) {}

  std::vector<size_t> candidates(const SharedLayer&) const override { return {0}; }

  LayerTypes infer(const SharedLayer& layer, const std::vector<Type>& inputs, const Shapes& shapes,
                   Walk& walk) const override {
    LayerTypes types = whole_types(*layer, 1);
    const Type& input = inputs[0];
    const size_t dimension = is_convolution_ ? 1 : last_of(shapes.inputs[0]);
    if (input.is_part()) {
      if (input.dimension != dimension || is_grouped(*layer, shapes)) refuse(*layer, input);
      types.inputs = {input};
      types.weights[0] = Type::part(read_, input.region, input.blocks);
      if (std::optional<Type> sequence = walk.sequence(shapes.outputs[0]))
        types.outputs = {std::move(*sequence)};
      return types;
    }
    std::optional<Type> spread = walk.spread(0);
    if (!spread || is_grouped(*layer, shapes)) return types;
    types.inputs = {Type::pending()};
    types.weights[0] = Type::part(made_, spread->region, spread->blocks);
    if (types.weights.size() > 1) types.weights[1] = Type::part(0, spread->region, spread->blocks);
    types.outputs = {Type::part(is_convolution_ ? 1 : last_of(shapes.outputs[0]), spread->region,
                                spread->blocks)};
    return types;
  }

  std::vector<Piece> pieces(const SharedLayer& layer, const LayerTypes& types, const Shapes& shapes,
                            const Member& member) const override {
    if (!types.inputs[0].is_part()) return {piece_of(layer, types, member, layer)};
    LayerTypes product = types;
    product.outputs = {Type::partial()};
    const bool has_bias = types.weights.size() > 1;
    std::vector<Piece> pieces{piece_of(layer, product, member, layer)};
    add_sum(pieces, layer, types.outputs[0], member,
            is_convolution_ ? 1 : last_of(shapes.outputs[0]));
    if (!has_bias) return pieces;
    // The product without its bias.
    pieces.front().layer = make_part_layer({.code = layer,
                                            .whole = layer,
                                            .parameters = pieces.front().parameters,
                                            .inputs = lengths_of(types.inputs, member),
                                            .outputs = lengths_of({Type::equal()}, member),
                                            .share = share_of(types, member)});
    return pieces;
  }

 private:
  bool is_grouped(const model::Layer& layer, const Shapes& shapes) const {
    return is_convolution_ && layer.parameters()[0].shape[1] != shapes.inputs[0][0];
  }

  size_t made_;
  size_t read_;
  bool is_convolution_;
};

/// A table whose rows, the vocabulary, may be in parts.
class TableRule final : public Rule {
 public:
  std::vector<size_t> candidates(const SharedLayer&) const override { return {0}; }
  LayerTypes infer(const SharedLayer& layer, const std::vector<Type>& inputs, const Shapes& shapes,
                   Walk& walk) const override {
    if (inputs[0].is_part()) refuse(*layer, inputs[0]);
    LayerTypes types = whole_types(*layer, 1);
    if (std::optional<Type> spread = walk.spread(0)) {
      // A run of rows for each member.
      if (spread->blocks.size() > 1) refuse(*layer, *spread);
      types.weights = {std::move(*spread)};
      if (std::optional<Type> sequence = walk.sequence(shapes.outputs[0]))
        types.outputs = {std::move(*sequence)};
    }
    return types;
  }
  std::vector<Piece> pieces(const SharedLayer& layer, const LayerTypes& types, const Shapes&,
                            const Member& member) const override {
    LayerTypes rows = types;
    rows.outputs = {Type::partial()};
    std::vector<Piece> pieces{
        piece_of(layer, rows, member, on_part(layer, rows.weights[0], member))};
    add_sum(pieces, layer, types.outputs[0], member, 0);
    return pieces;
  }
};

/// Does the same with each number, or with all numbers at one place along some dimensions: parts
/// along those stay parts.
class PassRule final : public OnePieceRule {
 public:
  /// 0: along any dimension; otherwise along this one.
  explicit PassRule(size_t dimension) : dimension_(dimension) {}
  bool takes_sequences(Regions::Lengths lengths) const override {
    return dimension_ == 0 && lengths == Regions::Lengths::Varying;
  }

  LayerTypes infer(const SharedLayer& layer, const std::vector<Type>& inputs, const Shapes&,
                   Walk& walk) const override {
    LayerTypes types = whole_types(*layer, inputs.size());
    const std::optional<Type> part = first_part(inputs);
    if (!part) return types;
    const auto sequence = std::find_if(inputs.begin(), inputs.end(), [&](const Type& type) {
      return walk.regions().is_sequence(type);
    });
    if (sequence != inputs.end()) return on_places(types, inputs, *sequence, *layer, walk);
    if (dimension_ != 0 && part->dimension != dimension_) refuse(*layer, *part);
    for (const Type& input : inputs) {
      if (!input.is_part() || input.dimension != part->dimension) refuse(*layer, *part);
      if (input.blocks != part->blocks) {
        if (input.blocks.size() > part->blocks.size()) throw InBlocks{part->region, input.blocks};
        throw InBlocks{input.region, part->blocks};
      }
      walk.regions().join(input.region, part->region);
    }
    types.inputs = inputs;
    types.outputs.assign(types.outputs.size(), *part);
    // Of channels.
    for (auto* list : {&types.weights, &types.buffers})
      list->assign(list->size(), Type::part(0, part->region, part->blocks));
    return types;
  }

 private:
  /// Equal inputs are cut to the same places.
  static LayerTypes on_places(LayerTypes types, const std::vector<Type>& inputs,
                              const Type& sequence, const model::Layer& layer, Walk& walk) {
    for (const Type& input : inputs) {
      if (input.is_part() && !walk.regions().is_sequence(input)) refuse(layer, input);
      PENSTOCK_CHECK(!input.is_part() || input == sequence, "two lengths meet in", layer.kind());
    }
    types.inputs.assign(types.inputs.size(), sequence);
    types.outputs.assign(types.outputs.size(), sequence);
    return types;
  }

  size_t dimension_;
};

/// Does the same at each place of a sequence, with weights that are whole: on a part of the places
/// their gradients are still to be summed.
class PlacesRule final : public OnePieceRule {
 public:
  bool takes_sequences(Regions::Lengths lengths) const override {
    return lengths == Regions::Lengths::Varying;
  }
  LayerTypes infer(const SharedLayer& layer, const std::vector<Type>& inputs, const Shapes&,
                   Walk& walk) const override {
    LayerTypes types = whole_types(*layer, inputs.size());
    const Type& input = inputs.at(0);
    if (!input.is_part()) return types;
    if (!walk.regions().is_sequence(input)) refuse(*layer, input);
    types.inputs = {input};
    types.weights.assign(types.weights.size(), Type::pending());
    types.outputs = {input};
    return types;
  }
};

/// [channels, height, width] becomes [numbers]: the channels stay together.
class FlattenRule final : public OnePieceRule {
 public:
  LayerTypes infer(const SharedLayer& layer, const std::vector<Type>& inputs, const Shapes& shapes,
                   Walk&) const override {
    LayerTypes types = whole_types(*layer, 1);
    if (!inputs[0].is_part()) return types;
    if (inputs[0].dimension != 1 || shapes.outputs[0].size() != 1) refuse(*layer, inputs[0]);
    types.inputs = inputs;
    types.outputs = inputs;
    const Shape& in = shapes.inputs[0];
    const int64_t pixels =
        std::accumulate(in.begin() + 1, in.end(), int64_t{1}, std::multiplies<>());
    for (int64_t& block : types.outputs[0].blocks) block *= pixels;
    return types;
  }
};

/// Side by side along the part's dimension: the blocks, too.
class ConcatRule final : public OnePieceRule {
 public:
  LayerTypes infer(const SharedLayer& layer, const std::vector<Type>& inputs, const Shapes&,
                   Walk& walk) const override {
    LayerTypes types = whole_types(*layer, inputs.size());
    const std::optional<Type> part = first_part(inputs);
    if (!part) return types;
    std::vector<int64_t> blocks;
    for (const Type& input : inputs) {
      if (!input.is_part() || input.dimension != 1) refuse(*layer, *part);
      walk.regions().join(input.region, part->region);
      blocks.insert(blocks.end(), input.blocks.begin(), input.blocks.end());
    }
    types.inputs = inputs;
    types.outputs = {Type::part(1, part->region, std::move(blocks))};
    return types;
  }
};

/// Whole heads of queries, keys and values, which lie side by side.
class AttentionRule final : public OnePieceRule {
 public:
  LayerTypes infer(const SharedLayer& layer, const std::vector<Type>& inputs, const Shapes& shapes,
                   Walk& walk) const override {
    LayerTypes types = whole_types(*layer, 1);
    if (!inputs[0].is_part()) return types;
    if (inputs[0].dimension != 2) refuse(*layer, inputs[0]);
    const int64_t width = shapes.outputs[0][1];
    const std::vector<int64_t> blocks(3, width);
    if (inputs[0].blocks != blocks) throw InBlocks{inputs[0].region, blocks};
    walk.regions().divide(inputs[0].region,
                          dynamic_cast<const model::WorksOnParts&>(*layer).units());
    types.inputs = inputs;
    types.outputs = {Type::part(2, inputs[0].region, {width})};
    return types;
  }
};

/// Hidden units, with their rows of all four gates (model/layers/lstm_sequence.h). Members read all
/// of the input, and gather hidden states place by place.
class LstmRule final : public Rule {
 public:
  std::vector<size_t> candidates(const SharedLayer&) const override { return {0}; }
  LayerTypes infer(const SharedLayer& layer, const std::vector<Type>& inputs, const Shapes& shapes,
                   Walk& walk) const override {
    if (inputs[0].is_part()) refuse(*layer, inputs[0]);
    LayerTypes types = whole_types(*layer, 1);
    const std::optional<Type> spread = walk.spread(0);
    if (!spread) return types;
    const int64_t places = shapes.outputs[0][0];
    const int64_t units = shapes.outputs[0][1];
    const std::vector<int64_t> gates(4, units);
    if (spread->blocks != gates) throw InBlocks{spread->region, gates};
    types.inputs = {Type::pending()};
    types.weights.assign(types.weights.size(), Type::part(0, spread->region, gates));
    types.inside = {places, saturating_mul(places, units)};
    return types;
  }
  std::vector<Piece> pieces(const SharedLayer& layer, const LayerTypes& types, const Shapes&,
                            const Member& member) const override {
    return {piece_of(layer, types, member, on_part(layer, types.weights[0], member))};
  }
};

using Rules = std::map<std::string, std::unique_ptr<const Rule>, std::less<>>;

Rules make_rules() {
  Rules rules;
  rules["linear"] = std::make_unique<ProductRule>(0, 1, false);
  rules["linear_transposed"] = std::make_unique<ProductRule>(1, 0, false);
  rules["conv2d"] = std::make_unique<ProductRule>(0, 1, true);
  rules["embedding"] = std::make_unique<TableRule>();
  for (const char* kind : {"relu", "tanh", "gelu", "dropout", "add"})
    rules[kind] = std::make_unique<PassRule>(0);
  for (const char* kind : {"layer_norm", "position_embedding"})
    rules[kind] = std::make_unique<PlacesRule>();
  rules["locked_dropout"] = std::make_unique<PassRule>(2);
  for (const char* kind : {"batch_norm2d", "max_pool2d", "avg_pool2d", "adaptive_avg_pool2d"})
    rules[kind] = std::make_unique<PassRule>(1);
  rules["flatten"] = std::make_unique<FlattenRule>();
  rules["concat"] = std::make_unique<ConcatRule>();
  rules["lstm"] = std::make_unique<LstmRule>();
  rules["causal_attention"] = std::make_unique<AttentionRule>();
  return rules;
}

}  // namespace

const Rule& rule_of(const model::Layer& layer) {
  static const Rules rules = make_rules();
  static const OwnRule own;
  static const WholeRule whole;
  if (dynamic_cast<const Shardable*>(&layer) != nullptr) return own;
  const auto found = rules.find(layer.kind());
  return found == rules.end() ? static_cast<const Rule&>(whole) : *found->second;
}

bool is_whole(const LayerTypes& types) {
  for (const auto* list : {&types.inputs, &types.weights, &types.buffers, &types.outputs}) {
    for (const Type& type : *list) {
      if (type != Type::equal()) return false;
    }
  }
  return true;
}

}  // namespace penstock::shard

#include "penstock/shard/tensor_shares.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <vector>

#include "penstock/shard/layer_rules.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::shard {
namespace {

using graph::ValueRef;

int64_t numbers_in(const model::Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, saturating_mul);
}

bool has_part(const std::vector<Type>& types) {
  return std::any_of(types.begin(), types.end(), [](const Type& type) { return type.is_part(); });
}

/// Of the layer's trained numbers; of its work, where it has none.
double spread_of(const std::vector<model::ParameterSpec>& specs, const LayerTypes& types) {
  int64_t all = 0;
  int64_t spread = 0;
  for (size_t p = 0; p < specs.size(); ++p) {
    const int64_t numbers = numbers_in(specs[p].shape);
    all = saturating_add(all, numbers);
    if (types.weights[p].is_part()) spread = saturating_add(spread, numbers);
  }
  if (all == 0) return has_part(types.inputs) || has_part(types.outputs) ? 1 : 0;
  return static_cast<double>(spread) / static_cast<double>(all);
}

/// Members gather hidden states inside of the layer; of an LSTM's four gates, its cells and its
/// hidden states they have parts of all but the last.
void add_exchanges(const Exchanges& inside, int64_t bytes, profile::TensorShare& share) {
  // A gather takes half of the exchanges of a sum, and half of its bytes.
  share.sums = share.back_sums = inside.count / 2 + inside.count % 2;
  share.sum_bytes = share.back_sum_bytes = bytes / 2 + bytes % 2;
  share.spread_stash = 5.0 / 6;
}

int64_t units_of(const Regions& regions, const LayerTypes& types) {
  for (const auto* list : {&types.weights, &types.inputs, &types.outputs}) {
    for (const Type& type : *list) {
      if (type.is_part()) return regions.units(type.region);
    }
  }
  return 0;
}

/// What a layer's operations save, and what a member of two has of it.
struct Saved {
  double whole = 0;
  double own = 0;
};

/// Of inputs or outputs; those that are saved, or all where none is named.
void add_values(const std::vector<model::Shape>& shapes, const std::vector<Type>& types,
                const std::vector<bool>& are_saved, Saved& saved) {
  for (size_t i = 0; i < shapes.size(); ++i) {
    if (i < are_saved.size() && !are_saved[i]) continue;
    const auto numbers = static_cast<double>(numbers_in(shapes[i]));
    saved.whole += numbers;
    saved.own += types[i].is_part() ? numbers / 2 : numbers;
  }
}

int64_t numbers_in(const std::vector<model::Shape>& shapes) {
  int64_t numbers = 0;
  for (const model::Shape& shape : shapes) numbers = saturating_add(numbers, numbers_in(shape));
  return numbers;
}

/// Numbers of one sample that the layer keeps for its backward pass beside inputs and outputs.
double kept_inside(const model::Layer& layer, const LayerShapes& shapes) {
  constexpr int64_t kBytes = 4;  // of a number in work()
  const int64_t all = layer.work(shapes.inputs, shapes.outputs, 1).stash_bytes / kBytes;
  return static_cast<double>(std::max<int64_t>(0, all - numbers_in(shapes.outputs)));
}

/// The part of what the layer saves that is divided. Layers of programs know what their members
/// keep; others keep as large a part of it as of their values.
double spread_stash_of(const std::shared_ptr<const model::Layer>& layer, const LayerTypes& types,
                       const LayerShapes& shapes, const Regions& regions,
                       const profile::LayerSaves& saves) {
  if (is_whole(types)) return 0;
  const profile::LayerWork work = layer->work(shapes.inputs, shapes.outputs, 1);
  Saved saved;
  const bool is_known = !saves.inputs.empty() || !saves.outputs.empty();
  if (is_known || work.saves_inputs) add_values(shapes.inputs, types.inputs, saves.inputs, saved);
  if (is_known || work.saves_outputs)
    add_values(shapes.outputs, types.outputs, saves.outputs, saved);
  const double inside = kept_inside(*layer, shapes);
  const bool is_divided =
      has_part(types.inputs) || has_part(types.outputs) || has_part(types.weights);
  double own = is_divided ? inside / 2 : inside;
  if (const auto* program = dynamic_cast<const Shardable*>(layer.get())) {
    const Member member{regions, 2, 0};
    const std::vector<Piece> pieces =
        program->pieces(types, {shapes.inputs, shapes.outputs}, member);
    LayerShapes member_shapes = shapes;
    for (size_t o = 0; o < types.outputs.size(); ++o) {
      if (types.outputs[o].is_part() && types.outputs[o].dimension > 0)
        member_shapes.outputs[o].at(types.outputs[o].dimension - 1) =
            member.length(types.outputs[o]);
    }
    own = std::min(inside, kept_inside(*pieces.front().layer, member_shapes));
  }
  saved.whole += inside;
  saved.own += own;
  if (saved.whole <= 0) return has_part(types.outputs) ? 1 : 0;
  return std::clamp(2 * (1 - saved.own / saved.whole), 0.0, 1.0);
}

/// What is otherwise with the places of sequences shared out; `found` with them.
profile::SequenceShare sequence_share(const model::Model& model, LayerId id, const Placement& found,
                                      double spread, int64_t number_bytes,
                                      const profile::LayerSaves& saves) {
  const LayerTypes& types = found.layers[id.index()];
  profile::SequenceShare share{.work = spread};
  const auto is_at_places = [&](const Type& type) { return found.regions.is_sequence(type); };
  if (spread == 0 && std::any_of(types.outputs.begin(), types.outputs.end(), is_at_places))
    share.work = 1;
  share.stash =
      spread_stash_of(model.shared_layer(id), types, shapes_of(model, id), found.regions, saves);
  const auto specs = model.layer(id).parameters();
  for (size_t p = 0; p < specs.size(); ++p) {
    if (types.weights[p].kind != Kind::Pending) continue;
    ++share.sums;
    share.sum_bytes =
        saturating_add(share.sum_bytes, saturating_mul(number_bytes, numbers_in(specs[p].shape)));
  }
  return share;
}

/// Whether any value of the model is in parts of places.
bool has_sequences(const Placement& found) {
  return std::any_of(found.values.begin(), found.values.end(),
                     [&](const auto& value) { return found.regions.is_sequence(value.second); });
}

/// Nothing where teams of two cannot share out the model's places.
std::optional<Placement> with_sequences(const model::Model& model, ShardOptions options) {
  const auto layers = static_cast<size_t>(model.graph().num_layers());
  options.sequence = {true};
  try {
    Placement found = infer(model, std::vector<StageId>(layers, StageId{0}),
                            std::vector<int>(layers, 2), options);
    if (has_sequences(found)) return found;
  } catch (const ConfigError&) {  // a length that two do not share out
  }
  return std::nullopt;
}

/// `saves`: by layer, what it was found to save; empty: as the layers say.
std::vector<profile::TensorShare> shares_of(const model::Model& model, int64_t batch,
                                            int64_t number_bytes, const ShardOptions& options,
                                            const std::vector<profile::LayerSaves>& saves) {
  const auto layers = static_cast<size_t>(model.graph().num_layers());
  const Placement found =
      infer(model, std::vector<StageId>(layers, StageId{0}), std::vector<int>(layers, 2), options);
  const auto bytes_of = [&](const model::Shape& shape) {
    return saturating_mul(saturating_mul(batch, number_bytes), numbers_in(shape));
  };
  const std::optional<Placement> places = with_sequences(model, options);
  std::vector<profile::TensorShare> shares(layers);
  std::set<ValueRef> summed_back;
  for (size_t l = 0; l < layers; ++l) {
    const LayerId id{static_cast<int32_t>(l)};
    const LayerTypes& types = found.layers[l];
    profile::TensorShare& share = shares[l];
    const profile::LayerSaves own = l < saves.size() ? saves[l] : profile::LayerSaves{};
    share.spread = spread_of(model.layer(id).parameters(), types);
    share.spread_stash =
        spread_stash_of(model.shared_layer(id), types, shapes_of(model, id), found.regions, own);
    if (places)
      share.sequence = sequence_share(model, id, *places, share.spread, number_bytes, own);
    share.units = units_of(found.regions, types);
    if (types.inside.count > 0) {
      add_exchanges(types.inside, bytes_of({types.inside.numbers}), share);
    } else if (has_part(types.weights) && !has_part(types.outputs)) {
      for (const model::Shape& shape : model.output_shapes(id)) {
        ++share.sums;
        share.sum_bytes = saturating_add(share.sum_bytes, bytes_of(shape));
      }
    }
    const auto& inputs = model.graph().layer(id).inputs;
    const LayerShapes shapes = shapes_of(model, id);
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (types.inputs[i].kind != Kind::Pending || inputs[i].is_model_input() ||
          !summed_back.insert(inputs[i]).second)
        continue;
      ++share.back_sums;
      share.back_sum_bytes = saturating_add(share.back_sum_bytes, bytes_of(shapes.inputs[i]));
    }
  }
  return shares;
}

}  // namespace

std::vector<profile::TensorShare> tensor_shares(const model::Model& model, int64_t batch,
                                                int64_t number_bytes, const ShardOptions& options) {
  return shares_of(model, batch, number_bytes, options, {});
}

void add_tensor_shares(profile::Profile& profile, const model::Model& model) {
  std::vector<profile::LayerSaves> saves;
  for (const profile::LayerCost& cost : profile.costs) saves.push_back(cost.saves);
  const std::vector<profile::TensorShare> shares =
      shares_of(model, profile.batch_size, bytes_of(float_type(profile.precision)),
                {.keeps_output_parts = true}, saves);
  for (size_t l = 0; l < shares.size() && l < profile.costs.size(); ++l)
    profile.costs[l].team = shares[l];
}

}  // namespace penstock::shard

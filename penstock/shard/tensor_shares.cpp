#include "penstock/shard/tensor_shares.h"

#include <algorithm>
#include <numeric>
#include <set>

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

}  // namespace

std::vector<profile::TensorShare> tensor_shares(const model::Model& model, int64_t batch,
                                                int64_t number_bytes, const ShardOptions& options) {
  const auto layers = static_cast<size_t>(model.graph().num_layers());
  const Placement found =
      infer(model, std::vector<StageId>(layers, StageId{0}), std::vector<int>(layers, 2), options);
  const auto bytes_of = [&](const model::Shape& shape) {
    return saturating_mul(saturating_mul(batch, number_bytes), numbers_in(shape));
  };
  std::vector<profile::TensorShare> shares(layers);
  std::set<ValueRef> summed_back;
  for (size_t l = 0; l < layers; ++l) {
    const LayerId id{static_cast<int32_t>(l)};
    const LayerTypes& types = found.layers[l];
    profile::TensorShare& share = shares[l];
    share.spread = spread_of(model.layer(id).parameters(), types);
    share.spread_stash = has_part(types.outputs) ? 1 : 0;
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

void add_tensor_shares(profile::Profile& profile, const model::Model& model) {
  const std::vector<profile::TensorShare> shares =
      tensor_shares(model, profile.batch_size, bytes_of(float_type(profile.precision)),
                    {.keeps_output_parts = true});
  for (size_t l = 0; l < shares.size() && l < profile.costs.size(); ++l)
    profile.costs[l].team = shares[l];
}

}  // namespace penstock::shard

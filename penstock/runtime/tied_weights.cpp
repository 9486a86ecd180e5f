#include "penstock/runtime/tied_weights.h"

#include <algorithm>

namespace penstock::runtime {

namespace {

bool counts_in_team(const model::Model& model, LayerId layer, size_t parameter) {
  const model::LayerPart* const part = model.part(layer);
  return part == nullptr || part->counts(parameter);
}

}  // namespace

TiedWeights find_tied_weights(const model::Model& model, const std::vector<StageId>& stage_of_layer,
                              const std::vector<const StageModule*>& stages) {
  TiedWeights result;
  for (const StageModule* stage : stages)
    result.stages.push_back({.inside = {},
                             .across = {},
                             .counts = std::vector<bool>(stage->weight_offsets().back(), true)});
  const auto layer_place = [&](const graph::ParameterRef& parameter) {
    const StageModule& stage = *stages[stage_of_layer[parameter.layer.index()].index()];
    const auto found =
        std::lower_bound(stage.layers().begin(), stage.layers().end(), parameter.layer);
    return static_cast<size_t>(found - stage.layers().begin());
  };
  for (const graph::TieGroup& group : graph::tie_groups(model.graph())) {
    const StageId home = stage_of_layer[group.front().layer.index()];
    const bool inside = std::all_of(group.begin(), group.end(), [&](const auto& use) {
      return stage_of_layer[use.layer.index()] == home;
    });
    if (inside) result.stages[home.index()].inside.emplace_back();
    for (size_t copy = 0; copy < group.size(); ++copy) {
      const StageId holder = stage_of_layer[group[copy].layer.index()];
      StageTies& stage = result.stages[holder.index()];
      const StageModule& module = *stages[holder.index()];
      const size_t layer = layer_place(group[copy]);
      const auto parameter = static_cast<size_t>(group[copy].parameter);
      const size_t weight = module.weight_offsets()[layer] + parameter;
      if (copy > 0 || !inside) stage.counts[weight] = false;
      if (copy == 0 && !inside)
        result.groups.push_back({.copies = group.size(),
                                 .weight = module.first_model_weight(layer) + parameter,
                                 .counts = counts_in_team(model, group[copy].layer, parameter)});
      if (inside)
        stage.inside.back().push_back(weight);
      else
        stage.across.push_back({result.groups.size() - 1, copy, weight});
    }
  }
  for (size_t s = 0; s < stages.size(); ++s) {
    for (size_t i = 0; i < stages[s]->layers().size(); ++i) {
      const size_t first = stages[s]->weight_offsets()[i];
      for (size_t w = first; w < stages[s]->weight_offsets()[i + 1]; ++w) {
        if (!counts_in_team(model, stages[s]->layers()[i], w - first))
          result.stages[s].counts[w] = false;
      }
    }
  }
  return result;
}

}  // namespace penstock::runtime

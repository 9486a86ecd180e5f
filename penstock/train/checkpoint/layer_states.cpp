#include "penstock/train/checkpoint/layer_states.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "penstock/util/error.h"

namespace penstock::train {

namespace {

/// Replicas that train by themselves (runtime/round_layout.h) have other states than those of one
/// optimiser.
void check_same_copies(const LayerState& state, const std::vector<std::string>& states) {
  const std::string common = "outer.weights";
  const bool has = state.optimizer.contains(common);
  const bool needs = std::find(states.begin(), states.end(), common) != states.end();
  if (state.weights.empty() || has == needs) return;
  throw ConfigError(
      fmt::format("the checkpoint was made {} the synchronisation diloco, under which each copy of "
                  "the pipeline "
                  "has weights of its own: resume with the same synchronisation",
                  has ? "under" : "without"));
}

/// States of a kind that a layer should have, and those that it has.
template <class IsOfKind>
std::pair<int64_t, int64_t> counted(const LayerState& state, const std::vector<std::string>& states,
                                    IsOfKind is_of_kind) {
  return {std::count_if(states.begin(), states.end(), is_of_kind),
          std::count_if(state.optimizer.begin(), state.optimizer.end(),
                        [&](const auto& entry) { return is_of_kind(entry.first); })};
}

/// What PowerSGD keeps (runtime/low_rank_state.h) belongs to as many replicas.
void check_same_factors(const LayerState& state, const std::vector<std::string>& states) {
  const auto [needs, has] = counted(
      state, states, [](const std::string& name) { return name.starts_with("powersgd.error"); });
  if (state.weights.empty() || has == needs) return;
  const auto text = [](int64_t replicas) {
    return replicas == 0 ? std::string("without the synchronisation powersgd")
                         : fmt::format("under powersgd with {} replicas", replicas);
  };
  throw ConfigError(
      fmt::format("the checkpoint was made {}, and this run is {}, where each replica has an error "
                  "of its own: resume with the same synchronisation and as many replicas",
                  text(has), text(needs)));
}

/// Where each copy of a pipeline has weights of its own.
void check_number_of_copies(const LayerState& state, const std::vector<std::string>& states) {
  const auto [expected, found] = counted(state, states, [](const std::string& name) {
    return name.starts_with("replica") && name.ends_with(".weights");
  });
  if (state.weights.empty() || found == expected) return;
  throw ConfigError(fmt::format(
      "under the synchronisation diloco each copy of the pipeline has weights of its "
      "own: expected a checkpoint of {} copies, found {}; resume with as many copies as "
      "it was made with",
      expected, found));
}

}  // namespace

runtime::LayerSnapshot to_snapshot(const LayerState& state, const std::vector<std::string>& states,
                                   std::string_view name) {
  runtime::LayerSnapshot layer{
      .here = state.here, .weights = state.weights, .buffers = state.buffers};
  check_same_copies(state, states);
  check_same_factors(state, states);
  check_number_of_copies(state, states);
  if (!state.weights.empty() && state.optimizer.size() != states.size()) {
    throw ConfigError(
        fmt::format("the checkpoint holds {} optimiser state(s) per weight, '{}' as it is set here "
                    "keeps {}: resume with the same settings",
                    state.optimizer.size(), name, states.size()));
  }
  for (const std::string& kept : states) {
    const auto found = state.optimizer.find(kept);
    if (found == state.optimizer.end() && !state.weights.empty()) {
      throw ConfigError(
          fmt::format("the checkpoint has no optimiser state '{}': resume with the optimiser that "
                      "it was made with",
                      kept));
    }
    layer.optimizer_state.push_back(found == state.optimizer.end() ? model::Tensors{}
                                                                   : found->second);
  }
  return layer;
}

LayerState to_state(runtime::LayerSnapshot layer, const std::vector<std::string>& states) {
  LayerState state{
      .here = layer.here, .weights = std::move(layer.weights), .buffers = std::move(layer.buffers)};
  for (size_t s = 0; layer.here && s < states.size(); ++s)
    state.optimizer[states[s]] = std::move(layer.optimizer_state[s]);
  return state;
}

}  // namespace penstock::train

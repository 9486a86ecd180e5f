#include "penstock/profile/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "penstock/util/error.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::profile {

namespace {

/// Of a pass, relative to its mean; what is measured stays far below.
constexpr double kMostSpread = 1e6;

void validate(const LayerCost& cost, const graph::LayerNode& layer) {
  const auto refuse_negative = [&](std::string_view key, int64_t value) {
    if (value < 0)
      throw ConfigError(
          fmt::format("layer '{}': expected {} of at least 0, found {}", layer.name, key, value));
  };
  refuse_negative("forward_ns", cost.forward_ns);
  refuse_negative("backward_ns", cost.backward_ns);
  refuse_negative("backward_weight_ns", cost.backward_weight_ns);
  if (cost.backward_weight_ns > cost.backward_ns) {
    throw ConfigError(
        fmt::format("layer '{}': expected backward_weight_ns of at most backward_ns, {}, found {}",
                    layer.name, cost.backward_ns, cost.backward_weight_ns));
  }
  refuse_negative("accumulate_ns", cost.accumulate_ns);
  refuse_negative("step_ns", cost.step_ns);
  refuse_negative("loss_ns", cost.loss_ns);
  const int64_t passes_ns = saturating_add(cost.forward_ns, cost.backward_ns);
  if (cost.loss_ns > passes_ns) {
    throw ConfigError(fmt::format(
        "layer '{}': expected loss_ns of at most forward_ns + backward_ns, {}, found {}",
        layer.name, passes_ns, cost.loss_ns));
  }
  refuse_negative("forward_spread_ns", cost.forward_spread_ns);
  refuse_negative("backward_spread_ns", cost.backward_spread_ns);
  refuse_negative("weight_bytes", cost.weight_bytes);
  refuse_negative("short_weight_bytes", cost.short_weight_bytes);
  refuse_negative("stash_bytes", cost.stash_bytes);
  refuse_negative("constant_bytes", cost.constant_bytes);
  refuse_negative("working_bytes", cost.working_bytes);
  if (cost.short_weight_bytes > cost.weight_bytes) {
    throw ConfigError(
        fmt::format("layer '{}': expected short_weight_bytes of at most weight_bytes, {}, found {}",
                    layer.name, cost.weight_bytes, cost.short_weight_bytes));
  }
  if (cost.saves != LayerSaves{} &&
      (cost.saves.inputs.size() != layer.inputs.size() ||
       cost.saves.outputs.size() != static_cast<size_t>(layer.num_outputs) ||
       cost.saves.view_of.size() != cost.saves.outputs.size())) {
    throw ConfigError(
        fmt::format("layer '{}': expected saves for its {} inputs and {} outputs, found {} and {}",
                    layer.name, layer.inputs.size(), layer.num_outputs, cost.saves.inputs.size(),
                    cost.saves.outputs.size()));
  }
  for (const int64_t bytes : cost.output_bytes) refuse_negative("output_bytes", bytes);
  if (cost.output_bytes.size() != static_cast<size_t>(layer.num_outputs)) {
    throw ConfigError(fmt::format("layer '{}': expected output_bytes for its {} outputs, found {}",
                                  layer.name, layer.num_outputs, cost.output_bytes.size()));
  }
}

void validate_team(const TensorShare& team, const graph::LayerNode& layer) {
  const auto refuse = [&](std::string_view what, const std::string& expected, auto found) {
    throw ConfigError(fmt::format("layer '{}': expected {} of a team {}, found {}", layer.name,
                                  what, expected, found));
  };
  const SequenceShare sequence = team.sequence.value_or(SequenceShare{});
  for (const auto& [name, share] : {std::pair{"spread", team.spread},
                                    {"spread_stash", team.spread_stash},
                                    {"sequence.work", sequence.work},
                                    {"sequence.stash", sequence.stash}}) {
    if (!(share >= 0 && share <= 1)) refuse(name, "from 0 to 1", share);
  }
  for (const auto& [name, number] : {std::pair{"units", team.units},
                                     {"sums", team.sums},
                                     {"sum_bytes", team.sum_bytes},
                                     {"back_sums", team.back_sums},
                                     {"back_sum_bytes", team.back_sum_bytes},
                                     {"sequence.sums", sequence.sums},
                                     {"sequence.sum_bytes", sequence.sum_bytes}}) {
    if (number < 0) refuse(name, "of at least 0", number);
  }
  if (team.sums == 0 && team.sum_bytes > 0)
    refuse("sum_bytes", "of 0 without sums", team.sum_bytes);
  if (sequence.sums == 0 && sequence.sum_bytes > 0)
    refuse("sequence.sum_bytes", "of 0 without sequence.sums", sequence.sum_bytes);
  if (team.back_sums == 0 && team.back_sum_bytes > 0)
    refuse("back_sum_bytes", "of 0 without back_sums", team.back_sum_bytes);
}

void validate_ties(const LayerCost& cost, const graph::LayerNode& layer) {
  if (cost.tied_bytes.size() != layer.ties.size()) {
    throw ConfigError(
        fmt::format("layer '{}': expected the bytes of its {} tied parameters, found {}",
                    layer.name, layer.ties.size(), cost.tied_bytes.size()));
  }
  int64_t total = 0;
  for (const int64_t bytes : cost.tied_bytes) {
    if (bytes < 0)
      throw ConfigError(fmt::format(
          "layer '{}': expected tied weights of at least 0 bytes, found {}", layer.name, bytes));
    total = saturating_add(total, bytes);
  }
  if (total > cost.weight_bytes) {
    throw ConfigError(
        fmt::format("layer '{}': expected tied weights of at most weight_bytes, {}, found {}",
                    layer.name, cost.weight_bytes, total));
  }
}

}  // namespace

int64_t weight_bytes_of(const Profile& profile, const std::vector<LayerId>& layers) {
  int64_t total = 0;
  std::set<graph::ParameterRef> counted;
  std::set<LayerId> present(layers.begin(), layers.end());
  for (const LayerId id : present) {
    const LayerCost& cost = profile.costs.at(id.index());
    int64_t own = cost.weight_bytes;
    const std::vector<graph::WeightTie>& ties = profile.graph.layer(id).ties;
    for (size_t k = 0; k < ties.size(); ++k) {
      const bool again =
          present.contains(ties[k].owner.layer) || !counted.insert(ties[k].owner).second;
      if (again) own -= cost.tied_bytes[k];
    }
    total = saturating_add(total, own);
  }
  return total;
}

int64_t total_compute_ns(const Profile& profile) {
  int64_t total = 0;
  for (const LayerCost& cost : profile.costs)
    total = saturating_add(total, saturating_add(cost.forward_ns, cost.backward_ns));
  return total;
}

int64_t samples_per_micro_batch(const Profile& profile) {
  return std::max<int64_t>(profile.batch_size, 1);
}

void validate(const Profile& profile) {
  const auto& layers = profile.graph.layers();
  if (layers.empty()) throw ConfigError("the profile has no layer, expected at least one");
  if (profile.costs.size() != layers.size()) {
    throw ConfigError(fmt::format("expected costs for each of the {} layers, found {}",
                                  layers.size(), profile.costs.size()));
  }
  for (size_t i = 0; i < layers.size(); ++i) {
    validate(profile.costs[i], layers[i]);
    validate_ties(profile.costs[i], layers[i]);
    validate_team(profile.costs[i].team, layers[i]);
  }
  const auto refuse_negative = [&](std::string_view key, int64_t value) {
    if (value < 0)
      throw ConfigError(fmt::format("profile: expected {} of at least 0, found {}", key, value));
  };
  validate(profile.lengths);
  refuse_negative("batch_size", profile.batch_size);
  refuse_negative("samples", profile.samples);
  refuse_negative("copy_bandwidth_bytes_per_s", profile.copy_bandwidth_bytes_per_s);
  refuse_negative("hand_over_ns", profile.hand_over_ns);
  refuse_negative("pass mean_ns", profile.pass.mean_ns);
  refuse_negative("pass stretches", profile.pass.stretches);
  for (const double share : {profile.pass.spread, profile.pass.error}) {
    if (!(share >= 0 && share <= kMostSpread))
      throw ConfigError(
          fmt::format("profile: expected spread and error of a pass from 0 to {}, found {}",
                      kMostSpread, share));
  }
}

}  // namespace penstock::profile

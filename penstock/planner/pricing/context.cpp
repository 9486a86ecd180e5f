#include "penstock/planner/pricing/context.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "penstock/plan/low_rank.h"
#include "penstock/planner/cost/named_models.h"
#include "penstock/planner/cuts/cut_states.h"
#include "penstock/profile/processor_text.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::planner {

namespace {

constexpr double kLargestTotalNs = 4.611686018427388e18;

void check_range(const char* what, int64_t value, int64_t most) {
  if (value >= 0 && value <= most) return;
  throw ConfigError(fmt::format("expected {} of 0 (chosen) to {}, found {}", what, most, value));
}

void check_options(const PlanOptions& options) {
  if (options.micro_batches)
    check_range("micro-batches per step", *options.micro_batches, kMaxMicroBatchesPerStep);
  if (options.mini_batch) check_range("samples per mini-batch", *options.mini_batch, INT64_MAX);
  check_range("gradient groups", options.gradient_groups.value_or(0), kMaxGradientGroups);
  if (options.chunks &&
      (*options.chunks < plan::kMinChunks || *options.chunks > plan::kMaxChunks)) {
    throw ConfigError(fmt::format("expected chunks per worker of 0 (chosen) or {} to {}, found {}",
                                  plan::kMinChunks, plan::kMaxChunks, *options.chunks));
  }
  if (options.slack) check_range("slack in micro-batches", *options.slack, kMaxMicroBatchesPerStep);
  if (options.memory_limit_bytes.value_or(1) < 1) {
    throw ConfigError(fmt::format("expected a memory limit of at least 1 byte, found {}",
                                  *options.memory_limit_bytes));
  }
  if (options.memory_budget_bytes < 0) {
    throw ConfigError(fmt::format("expected a memory budget of at least 0, found {}",
                                  options.memory_budget_bytes));
  }
  if (!std::isfinite(options.optimizer_state_per_weight) ||
      options.optimizer_state_per_weight < 0) {
    throw ConfigError(
        fmt::format("expected optimiser state of at least 0 bytes per weight byte, found {}",
                    options.optimizer_state_per_weight));
  }
}

/// What the devices of the cluster allow of Choice offload.
Choice possible_offload(const PlanOptions& options, const cluster::Cluster& cluster) {
  const auto is_known = [](const auto& group) { return group.device.host_bytes_per_s > 0; };
  const auto& groups = cluster.groups;
  if (options.offload == Choice::Never) return Choice::Never;
  if (options.offload == Choice::Auto) {
    const bool any = is_known(cluster) || std::any_of(groups.begin(), groups.end(), is_known);
    return any ? Choice::Auto : Choice::Never;
  }
  if (!is_known(cluster) || !std::all_of(groups.begin(), groups.end(), is_known))
    throw ConfigError(
        "all stages can move activations to the memory of the host only where the cluster says how "
        "fast that is for every device: expected 'host_bandwidth' of [device] and of all "
        "[[devices]]");
  if (options.recompute == Choice::Always)
    throw ConfigError(
        "stages that all recompute have no activations to move to the memory of the host: expected "
        "one of the two choices to be never or auto");
  return Choice::Always;
}

/// What method and precision allow of `wanted`.
Choice possible_sharding(Choice wanted, plan::GradientSync sync, Precision compute) {
  const bool can =
      !steps_alone(sync) && sync != plan::GradientSync::PowerSgd && compute == Precision::Float32;
  if (wanted == Choice::Never || (wanted == Choice::Auto && !can)) return Choice::Never;
  if (can) return wanted;
  if (compute != Precision::Float32) {
    throw ConfigError(
        fmt::format("the optimiser's state is shared out only where the model computes in float32, "
                    "and the profile is of {}: expected never or auto",
                    to_string(compute)));
  }
  throw ConfigError(fmt::format(
      "the optimiser's state cannot be shared out over replicas under the synchronisation {}: each "
      "of them steps all weights by itself; expected another method of adding gradients",
      to_string(sync)));
}

// Where any layer's time is known, 0 means that the layer makes its weights' gradients with the
// inputs'.
bool knows_split(const profile::Profile& profile) {
  const auto is_known = [](const profile::LayerCost& cost) { return cost.backward_weight_ns > 0; };
  return std::any_of(profile.costs.begin(), profile.costs.end(), is_known);
}

// Products with the weights' and with the inputs' gradients are about equally large; layers without
// weights have none of the former.
int64_t backward_weight_ns(const profile::LayerCost& cost, bool known) {
  if (known) return std::min(cost.backward_weight_ns, cost.backward_ns);
  return cost.weight_bytes > 0 ? cost.backward_ns / 2 : 0;
}

void add_counting_layers(const profile::Profile& profile, std::vector<PlannedLayer>& layers) {
  std::vector<profile::LayerSaves> saves;
  for (const profile::LayerCost& cost : profile.costs) {
    if (cost.saves == profile::LayerSaves{}) return;
    saves.push_back(cost.saves);
  }
  auto counted_by = profile::counting_layers(profile.graph, saves);
  for (size_t l = 0; l < layers.size(); ++l) layers[l].counted_by = std::move(counted_by[l]);
}

std::vector<PlannedLayer> planned_layers(const profile::Profile& profile) {
  std::vector<PlannedLayer> layers;
  layers.reserve(profile.costs.size());
  const bool known = knows_split(profile);
  for (const profile::LayerCost& cost : profile.costs) {
    layers.push_back({.forward_ns = cost.forward_ns,
                      .compute_ns = saturating_add(cost.forward_ns, cost.backward_ns),
                      .step_ns = cost.step_ns,
                      .weight_bytes = cost.weight_bytes,
                      .stash_bytes = cost.stash_bytes,
                      .output_bytes = cost.output_bytes,
                      .backward_weight_ns = backward_weight_ns(cost, known),
                      .accumulate_ns = cost.accumulate_ns,
                      .short_weight_bytes = cost.short_weight_bytes,
                      .constant_bytes = cost.constant_bytes,
                      .working_bytes = cost.working_bytes});
  }
  add_counting_layers(profile, layers);
  return layers;
}

// Of the weights' bytes, what is summed in this rank; those whose shapes are not known whole.
double summed_share(const profile::Profile& profile, int64_t rank) {
  double all = 0;
  double saved = 0;
  for (const profile::LayerCost& cost : profile.costs) {
    all += static_cast<double>(cost.weight_bytes);
    for (const profile::WeightMatrix& matrix : cost.matrices) {
      const plan::MatrixSizes sizes{.rows = matrix.rows, .columns = matrix.columns};
      saved += 4.0 * static_cast<double>(plan::summed_numbers(sizes, 0) -
                                         plan::summed_numbers(sizes, rank));
    }
  }
  return all > 0 ? std::clamp((all - saved) / all, 1e-9, 1.0) : 1;
}

// The slowest device must be able to add everything up.
void check_times(const cluster::Cluster& cluster, const std::vector<PlannedLayer>& layers) {
  double total_ns = 0;
  for (const PlannedLayer& layer : layers)
    total_ns += static_cast<double>(layer.compute_ns) + static_cast<double>(layer.accumulate_ns) +
                static_cast<double>(layer.step_ns);
  const auto check = [&](const cluster::Device& device) {
    if (total_ns / device.speed <= kLargestTotalNs) return;
    throw ConfigError(
        fmt::format("on device '{}' of speed {} the profile's times (ns) add up to more than 2^62",
                    device.name, device.speed));
  };
  check(cluster.device);
  for (const cluster::DeviceGroup& group : cluster.groups) check(group.device);
}

// Calls visit for every kind of device in the place; groups are ascending and disjoint.
template <class Visit>
void for_each_device(const cluster::Cluster& cluster, const cluster::WorkerRange& place,
                     Visit visit) {
  int covered = 0;
  for (const cluster::DeviceGroup& group : cluster.groups) {
    const int shared =
        std::min(group.first + group.count, place.end()) - std::max(group.first, place.first);
    if (shared <= 0) continue;
    covered += shared;
    visit(group.device);
  }
  if (covered < place.count) visit(cluster.device);
}

}  // namespace

Context::Context(const profile::Profile& profile_in, const cluster::Cluster& cluster_in,
                 const PlanOptions& options_in, TimeLimit time_in,
                 FoundPlans::Clock::time_point begin)
    : profile(profile_in),
      cluster(cluster_in),
      options(options_in),
      time(std::make_unique<SearchTime>(time_in)),
      budget(std::make_unique<MemoryBudget>(options_in.memory_budget_bytes)),
      found(std::make_unique<FoundPlans>(begin)) {
  profile::validate(profile);
  cluster::validate(cluster);
  check_options(options);
  workers = cluster.num_workers();
  if (workers > kMaxPlannedWorkers) {
    throw ConfigError(fmt::format(
        "the cluster has {} workers; plans are made for at most {}: describe a part of it", workers,
        kMaxPlannedWorkers));
  }
  recompute = options.recompute;
  const bool waits =
      options.global_norm || (options.weights && plan::backward_reads_newest(*options.weights));
  const FloatType precision = options.gradient_precision;
  const plan::SyncMethod method = options.sync.value_or(plan::SyncMethod());
  const plan::GradientSync sync = method.sync;
  plan::check_sync_precision(sync, precision);
  offload = possible_offload(options, cluster);
  if (offload == Choice::Always) recompute = Choice::Never;
  shard_optimizer = possible_sharding(options.shard_optimizer, sync, profile.precision);
  const plan::CompensationTraits& row = traits(options.compensation);
  if (row.ahead != nullptr) {
    const std::string refusal = compensation_refusal(
        options.compensation,
        plan::CompensatedStage{.recompute = recompute == Choice::Always,
                               .offload = offload == Choice::Always,
                               .state_parts = shard_optimizer == Choice::Always ? workers : 1});
    if (!refusal.empty()) throw ConfigError(refusal);
    offload = shard_optimizer = Choice::Never;
    if (row.forbids_recomputation) recompute = Choice::Never;
  }
  model = make_cost_model(options.cost_model, cluster, sync,
                          waits ? SyncOverlap::Waits : SyncOverlap::Hidden, precision);
  if (model->hides(model->topology().num_levels()))
    counting_model =
        make_cost_model(options.cost_model, cluster, sync, SyncOverlap::Waits, precision);
  model->add_every(method.every);
  if (method.rank > 0) model->add_low_rank(summed_share(profile, method.rank));
  model->code_boundaries(boundary(), crossing());
  if (counting_model) counting_model->code_boundaries(boundary(), crossing());
  if (options.mini_batch && most_micro_batches() < options.micro_batches.value_or(1)) {
    throw ConfigError(
        fmt::format("a mini-batch of {} samples has no room for {} micro-batches of {} samples, as "
                    "the profile measured them",
                    *options.mini_batch, options.micro_batches.value_or(1),
                    profile::samples_per_micro_batch(profile)));
  }
  layers = planned_layers(profile);
  on_processors = profile::is_of_processor(profile);
  if (profile.source == profile::kGraphFile) stash_uncertainty = kGuessedStash;
  guesses_split =
      std::any_of(layers.begin(), layers.end(),
                  [](const PlannedLayer& layer) { return layer.backward_weight_ns > 0; }) &&
      !knows_split(profile);
  check_totals(profile.graph, layers);
  check_times(cluster, layers);
}

bool Context::limited() const {
  if (options.memory_limit_bytes || cluster.device.memory_bytes > 0) return true;
  return std::any_of(cluster.groups.begin(), cluster.groups.end(),
                     [](const auto& group) { return group.device.memory_bytes > 0; });
}

int64_t Context::limit_bytes(const cluster::WorkerRange& place) const {
  if (options.memory_limit_bytes) return *options.memory_limit_bytes;
  int64_t least = INT64_MAX;
  for_each_device(cluster, place, [&](const cluster::Device& device) {
    if (device.memory_bytes > 0) least = std::min(least, device.memory_bytes);
  });
  return least == INT64_MAX ? 0 : least;
}

double Context::speed(const cluster::WorkerRange& place) const {
  double slowest = HUGE_VAL;
  for_each_device(cluster, place, [&](const cluster::Device& device) {
    slowest = std::min(slowest, device.speed);
  });
  return slowest;
}

int64_t Context::host_bytes_per_s(const cluster::WorkerRange& place) const {
  int64_t least = INT64_MAX;
  for_each_device(cluster, place, [&](const cluster::Device& device) {
    least = std::min(least, device.host_bytes_per_s);
  });
  return least == INT64_MAX ? 0 : least;
}

int64_t Context::most_micro_batches() const {
  return options.mini_batch ? *options.mini_batch / profile::samples_per_micro_batch(profile)
                            : INT64_MAX;
}

}  // namespace penstock::planner

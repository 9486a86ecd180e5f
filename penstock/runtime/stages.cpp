#include "penstock/runtime/stages.h"

#include <ATen/Context.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "penstock/runtime/fabric/local/local_world.h"
#include "penstock/runtime/round_layout.h"
#include "penstock/util/check.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/common_multiple.h"

namespace penstock::runtime {

using graph::ValueRef;
using schedule::TeamPlace;

namespace {

model::Tensors initial_weights(const model::Model& model, const StageModule& module,
                               uint64_t seed) {
  model::Tensors all;
  for (const LayerId id : module.layers()) {
    for (at::Tensor& tensor : model.initial_weights(id, seed)) all.push_back(std::move(tensor));
  }
  return all;
}

model::Tensors initial_buffers(const model::Model& model, const StageModule& module) {
  model::Tensors all;
  for (const LayerId id : module.layers()) {
    for (at::Tensor& tensor : model.initial_buffers(id)) all.push_back(std::move(tensor));
  }
  return all;
}

/// Of each weight of the stage; empty: none of its own.
std::vector<const model::Optimizer*> optimizers_of(const model::Model& model,
                                                   const StageModule& module,
                                                   const model::ParameterOptimizers* single) {
  std::vector<const model::Optimizer*> result;
  if (single == nullptr) return result;
  for (const LayerId id : module.layers()) {
    const auto count = static_cast<int>(model.layer(id).parameters().size());
    for (int p = 0; p < count; ++p)
      result.push_back(&single->of(whole_parameter(model, id, static_cast<size_t>(p))));
  }
  return result;
}

int64_t choose_groups(const std::vector<int>& replicas, int64_t wanted) {
  const int64_t common = common_multiple(replicas).value_or(INT64_MAX);
  if (wanted == 0) return common;
  if (wanted < 0 || wanted % common != 0) {
    throw ConfigError(
        fmt::format("the number of gradient groups must be a multiple of every stage's replicas, "
                    "that is of {}, found {}",
                    common, wanted));
  }
  return wanted;
}

void check_sharding(const PipelineOptions& options, const model::Optimizer& optimizer,
                    size_t stages) {
  if (optimizer.spec().averages && steps_alone(options.sync)) {
    throw ConfigError(
        fmt::format("replicas under the synchronisation {} have weights of their own, whose mean "
                    "over the steps would differ from replica to replica; expected another way to "
                    "sum, or no mean of the weights",
                    to_string(options.sync)));
  }
  const std::vector<bool>& shard = options.shard_optimizer;
  if (!shard.empty() && shard.size() != stages) {
    throw ConfigError(fmt::format(
        "sharding of the optimiser's state has {} entries, expected one for each of the {} stages",
        shard.size(), stages));
  }
  if (std::find(shard.begin(), shard.end(), true) == shard.end()) return;
  if (const std::string why = model::why_not_shared(optimizer.spec()); !why.empty()) {
    throw ConfigError(
        fmt::format("the optimiser's state cannot be shared out: {}; expected whole states", why));
  }
  if (steps_alone(options.sync)) {
    throw ConfigError(fmt::format(
        "the optimiser's state cannot be shared out over replicas under the synchronisation {}: "
        "each of them steps all weights by itself; expected another way to sum, or whole states",
        to_string(options.sync)));
  }
  if (options.sync == plan::GradientSync::PowerSgd) {
    throw ConfigError(
        "the optimiser's state cannot be shared out over replicas under the synchronisation "
        "powersgd: each of them makes whole gradients out of the factors; expected another way to "
        "sum, or whole states");
  }
  if (options.precision != Precision::Float32) {
    throw ConfigError(fmt::format(
        "the optimiser's state is shared out only where the model computes in float32, found {}; "
        "expected float32, or whole states",
        to_string(options.precision)));
  }
}

/// Null where replicas train together. The replicas of a stage are those of the others, too, since
/// each copy of the pipeline has a loss of its own.
std::unique_ptr<model::Optimizer> outer_optimizer(const std::vector<int>& replicas,
                                                  const PipelineOptions& options) {
  if (options.sync != plan::GradientSync::DiLoCo) return nullptr;
  if (std::count(replicas.begin(), replicas.end(), replicas.front()) != std::ssize(replicas)) {
    throw ConfigError(
        fmt::format("each copy of the pipeline trains by itself between two sums: expected as many "
                    "replicas of every stage, found {}",
                    fmt::join(replicas, "-")));
  }
  if (replicas.front() == 1) return nullptr;
  if (options.sync_every < 1)
    throw ConfigError(
        fmt::format("steps of a round: expected at least 1, found {}", options.sync_every));
  if (!(options.outer.learning_rate >= 0 && std::isfinite(options.outer.learning_rate))) {
    throw ConfigError(fmt::format("the outer learning rate must be at least 0 and finite, found {}",
                                  options.outer.learning_rate));
  }
  model::OptimizerSpec spec = model::usual_spec(model::OptimizerKind::Sgd);
  spec.momentum = options.outer.momentum;
  spec.nesterov = options.outer.momentum > 0;
  try {
    return model::make_optimizer(spec);
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("outer optimiser: {}", error.what()));
  }
}

schedule::ScheduleShape valid_shape(const model::Model& model, const std::vector<int>& replicas,
                                    const PipelineOptions& options) {
  // Of a model for teams, each member of the last one makes the output.
  const graph::ModelGraph& outside = (model.whole() != nullptr ? *model.whole() : model).graph();
  if (outside.outputs().size() != 1) {
    throw ConfigError(
        fmt::format("training needs a model with one output (the logits), '{}' has {}",
                    model.name(), outside.outputs().size()));
  }
  schedule::ScheduleShape shape{
      .replicas = replicas, .micro_batches = 0, .worker_of_replica = options.worker_of_replica};
  schedule::validate(shape);
  return shape;
}

/// A GPU of several workers makes backward passes one after another: libtorch has one thread per
/// device for them, in which a member would wait for another one whose turn never comes.
void check_team_devices(const Site& site, const schedule::WorkerTable& table,
                        const TeamPlace& place) {
  const std::vector<at::Device>& devices = site.device_of_worker;
  if (devices.empty()) return;
  for (int r = 0; r < table.replicas(place.first); ++r) {
    const WorkerId first = table.worker_of_replica(place.first, r);
    for (int m = 0; m < place.size; ++m) {
      const WorkerId worker = table.worker_of_replica(StageId{place.first.value + m}, r);
      const at::Device device = devices[worker.index()];
      if (device.type() != devices[first.index()].type()) {
        throw ConfigError(fmt::format(
            "members of the team of stage {} are on {} and {}, which round differently: expected "
            "devices of one kind",
            place.whole.value, devices[first.index()].str(), device.str()));
      }
      for (size_t other = 0; device.is_cuda() && other < devices.size(); ++other) {
        if (other == worker.index() || devices[other] != device ||
            site.rank_of_worker[other] != site.rank_of_worker[worker.index()])
          continue;
        throw ConfigError(fmt::format(
            "worker {} is a member of a team and shares {} with worker {} of its process, where "
            "backward passes are made one after another: expected a device or a process of its own",
            worker.value, device.str(), other));
      }
    }
  }
}

}  // namespace

std::vector<LowRankWeight> low_rank_weights(const Stages& stages, size_t stage) {
  const StageModule& module = *stages.modules[stage];
  std::vector<LowRankWeight> weights;
  for (const LayerId id : module.layers()) {
    const std::vector<model::ParameterSpec> specs = stages.model.layer(id).parameters();
    for (size_t p = 0; p < specs.size(); ++p) {
      weights.push_back(
          {.shape = specs[p].shape, .seed = low_rank_seed(stages.options.seed, id, p)});
    }
  }
  for (const std::vector<size_t>& group : stages.ties.stages[stage].inside) {
    for (size_t k = 1; k < group.size(); ++k) weights[group[k]].is_copy = true;
  }
  for (const StageTies::Copy& copy : stages.ties.stages[stage].across)
    weights[copy.weight].is_shared = true;
  return weights;
}

StageWeights weights_of(const StageModule& module) {
  const std::vector<size_t>& offsets = module.weight_offsets();
  return {.shapes = module.weight_shapes(), .layer_ends = {offsets.begin() + 1, offsets.end()}};
}

Stages::Stages(const model::Model& the_model, std::vector<StageId> layers,
               std::vector<int> replica_counts, const model::Optimizer& the_optimizer,
               const PipelineOptions& the_options)
    : model(the_model),
      optimizer(the_optimizer),
      options(the_options),
      stage_of_layer(std::move(layers)),
      counts(std::move(replica_counts)),
      table(valid_shape(model, counts, options)),
      teams(find_teams(model, stage_of_layer, table, counts.size())),
      gradient_groups(choose_groups(counts, options.gradient_groups)),
      outer(outer_optimizer(counts, options)),
      world(options.world) {
  check_sharding(options, optimizer, counts.size());
  if (world == nullptr) {
    own_world = make_local_world(table.num_workers(), options.device_of_worker);
    world = own_world.get();
  }
  if (world->site().num_workers() != table.num_workers()) {
    throw ConfigError(fmt::format("the pipeline has {} workers, its ranks have {}",
                                  table.num_workers(), world->site().num_workers()));
  }
  make_devices();
  if (model.whole() != nullptr) check_teams();
  choose_precisions();
  make_modules();
  held_by.resize(static_cast<size_t>(table.num_workers()));
  replicas.resize(counts.size());
  for (size_t s = 0; s < counts.size(); ++s) {
    for (int r = 0; r < counts[s]; ++r) {
      const WorkerId worker = worker_of(s, r);
      if (!world->site().holds(worker)) continue;
      replicas[s].push_back(make_replica(s, r, worker));
      held_by[worker.index()].push_back(replicas[s].back().get());
    }
  }
}

void Stages::check_teams() const {
  if (options.sync == plan::GradientSync::PowerSgd) {
    throw ConfigError(
        "members of a team have parts of the weights, and the synchronisation powersgd makes "
        "factors of whole ones: expected another way to sum, or no teams");
  }
  if (steps_alone(options.sync)) {
    throw ConfigError(
        fmt::format("members of a team have the same weights where these are not spread, and "
                    "replicas under the synchronisation {} step by themselves: expected another "
                    "way to sum",
                    to_string(options.sync)));
  }
  const std::vector<ValueRef>& outputs = model.graph().outputs();
  const TeamPlace& last = teams[stage_of_layer[outputs.front().layer.index()].index()];
  for (size_t m = 0; m < outputs.size(); ++m) {
    const StageId maker = stage_of_layer[outputs[m].layer.index()];
    PENSTOCK_CHECK(maker.value == last.first.value + static_cast<int32_t>(m), maker, m);
  }
  PENSTOCK_CHECK(std::ssize(outputs) == last.size, outputs.size(), last.size);
  for (const TeamPlace& place : teams) {
    if (place.member == 0 && place.size > 1) check_team_devices(world->site(), table, place);
  }
  check_parts();
}

void Stages::check_parts() const {
  for (size_t l = 0; l < stage_of_layer.size(); ++l) {
    const LayerId id{static_cast<int32_t>(l)};
    for (size_t p = 0; p < model.layer(id).parameters().size(); ++p) {
      const graph::ParameterRef whole = whole_parameter(model, id, p);
      const model::Optimizer& single =
          options.optimizers != nullptr ? options.optimizers->of(whole) : optimizer;
      if (!is_part(model, id, p) || !traits(single.spec().kind).needs_whole_weight) continue;
      throw ConfigError(fmt::format(
          "{} needs whole weights, and '{}' of layer '{}' is spread over a team: expected an "
          "optimiser that steps each number by itself, such as adamw, or no teams",
          to_string(single.spec().kind), model.layer(id).parameters()[p].name,
          model.whole()->graph().layer(whole.layer).name));
    }
  }
}

void Stages::make_devices() {
  model::Devices& installed =
      options.devices != nullptr ? *options.devices : model::installed_devices();
  const std::vector<at::Device>& device_of_worker = world->site().device_of_worker;
  devices.resize(static_cast<size_t>(table.num_workers()));
  for (const WorkerId worker : world->site().own_workers()) {
    const at::Device device =
        device_of_worker.empty() ? at::Device(at::kCPU) : device_of_worker[worker.index()];
    devices[worker.index()] = std::make_unique<WorkerDevice>(installed, device);
  }
}

void Stages::choose_precisions() {
  const std::vector<at::Device>& all = world->site().device_of_worker;
  const bool has_cuda = std::any_of(all.begin(), all.end(),
                                    [](const at::Device& device) { return device.is_cuda(); });
  const bool has_workers = !world->site().own_workers().empty();
  if (options.precision == Precision::Tf32 && !has_cuda && has_workers) {
    throw ConfigError(
        "precision tf32 is a mode of NVIDIA's GPUs, and the workers compute on CPUs: expected "
        "float32, bfloat16 or float16");
  }
  if (has_cuda) {
    at::globalContext().setAllowTF32CuBLAS(options.precision == Precision::Tf32);
    at::globalContext().setAllowTF32CuDNN(options.precision == Precision::Tf32);
  }
  if (!is_short(options.precision)) {
    precisions = model::layer_precisions(model, options.precision);
    // Replicas that share weights, or the optimiser's state, have no versions beside the weights:
    // such a layer rounds them itself.
    for (size_t l = 0; l < stage_of_layer.size(); ++l) {
      if (shares_state(stage_of_layer[l].index())) precisions[l].weights = at::kFloat;
    }
    return;
  }
  precisions.resize(stage_of_layer.size());
  std::map<at::DeviceType, std::vector<model::LayerPrecision>> found;
  for (size_t l = 0; l < stage_of_layer.size(); ++l) {
    const at::Device device = memory_of(stage_of_layer[l]);
    auto& here = found[device.type()];
    if (here.empty()) here = model::layer_precisions(model, options.precision, device);
    precisions[l] = here[l];
  }
}

at::Device Stages::memory_of(StageId stage) const {
  std::optional<at::Device> found;
  for (int replica = 0; replica < counts[stage.index()]; ++replica) {
    const WorkerId worker = table.worker_of_replica(stage, replica);
    if (!world->site().holds(worker)) continue;
    const at::Device device = devices[worker.index()]->compute().memory();
    if (found && found->type() != device.type()) {
      throw ConfigError(fmt::format(
          "replicas of stage {} are on {} and {}, which compute different operations in {}: "
          "expected devices of one kind, or float32",
          stage.value, found->str(), device.str(), to_string(options.precision)));
    }
    found = device;
  }
  return found.value_or(at::Device(at::kCPU));
}

void Stages::make_modules() {
  std::vector<const StageModule*> all;
  for (size_t s = 0; s < counts.size(); ++s) {
    modules.push_back(std::make_unique<StageModule>(model, stage_of_layer,
                                                    StageId{static_cast<int32_t>(s)}, precisions));
    all.push_back(modules.back().get());
    if (all.back()->layers().empty()) throw ConfigError(fmt::format("stage {} has no layer", s));
  }
  ties = find_tied_weights(model, stage_of_layer, all);
}

std::unique_ptr<Replica> Stages::make_replica(size_t stage, int number, WorkerId worker) const {
  WorkerDevice& device = *devices[worker.index()];
  const StageModule& module = *modules[stage];
  const auto scope = device.compute().enter();
  WeightShare share;
  if (shares_state(stage)) {
    const StageWeights weights = weights_of(module);
    share = weight_shares(weights.shapes, weights.layer_ends,
                          counts[stage])[static_cast<size_t>(number)];
  }
  model::Tensors weights = number > 0 && shares_weights(stage)
                               ? replicas[stage].front()->weights.newest()
                               : initial_weights(model, module, options.seed);
  auto replica = std::make_unique<Replica>(
      Replica{.worker = worker,
              .replica = number,
              .module = &module,
              .ties = &ties.stages[stage],
              .device = &device,
              .weights = WeightStore(device.to_device(std::move(weights)), optimizer,
                                     optimizers_of(model, module, options.optimizers),
                                     std::move(share), module.weight_types()),
              .buffers = device.to_device(initial_buffers(model, module)),
              .carried = CarriedStates(module.carried_offsets().back()),
              .shares_state = shares_state(stage)});
  if (has_rounds()) replica->round = std::make_unique<RoundState>(replica->weights, *outer);
  if (sums_factors(stage)) replica->low_rank = make_low_rank(stage);
  if (shares_weights(stage)) replica->weights.set_shared_memory(/*is_first=*/number == 0);
  if (options.device_graphs && !device.is_host())
    replica->graphs = std::make_unique<StageGraphs>(module, device.compute());
  return replica;
}

std::unique_ptr<LowRankState> Stages::make_low_rank(size_t stage) const {
  return std::make_unique<LowRankState>(low_rank_weights(*this, stage), options.sync_rank,
                                        options.gradient_precision);
}

std::vector<std::string> Stages::state_names() const {
  std::vector<std::string> names = optimizer.state_names();
  const int most = *std::max_element(counts.begin(), counts.end());
  if (options.sync == plan::GradientSync::PowerSgd && most > 1) {
    names.emplace_back("powersgd.factor");
    for (int r = 0; r < most; ++r) names.push_back(fmt::format("powersgd.error{}", r));
  }
  if (!has_rounds()) return names;
  return RoundLayout(counts.front(), names.size(), outer->state_names().size())
      .names(names, outer->state_names());
}

bool Stages::shares_state(size_t stage) const {
  const bool is_asked = stage < options.shard_optimizer.size() && options.shard_optimizer[stage];
  return (is_asked && counts[stage] > 1) || shares_weights(stage);
}

bool Stages::shares_weights(size_t stage) const {
  if (!options.flushes || counts[stage] == 1 || options.precision != Precision::Float32 ||
      steps_alone(options.sync) || sums_factors(stage) || is_spread(stage) ||
      !model::why_not_shared(optimizer.spec()).empty())
    return false;
  const std::vector<at::Device>& device_of_worker = world->site().device_of_worker;
  for (int r = 0; r < counts[stage] && !device_of_worker.empty(); ++r) {
    if (!device_of_worker[worker_of(stage, r).index()].is_cpu()) return false;
  }
  return true;
}

bool Stages::is_spread(size_t stage) const {
  std::set<int> ranks;
  for (int r = 0; r < counts[stage]; ++r)
    ranks.insert(world->site().rank_of_worker[worker_of(stage, r).index()]);
  return ranks.size() > 1;
}

bool Stages::has_gpu() const {
  return std::any_of(devices.begin(), devices.end(),
                     [](const auto& device) { return device && !device->device().is_cpu(); });
}

bool Stages::sums_on_gpus(size_t stage) const {
  if (counts[stage] == 1 || steps_alone(options.sync) || sums_factors(stage)) return false;
  // All workers of linked ranks have GPUs (DeviceLinks::open()).
  if (world->has_links()) return true;
  if (world->site().num_ranks() > 1) return false;
  return std::none_of(replicas[stage].begin(), replicas[stage].end(),
                      [](const auto& replica) { return replica->device->is_host(); });
}

}  // namespace penstock::runtime

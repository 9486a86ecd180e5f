#include "penstock/runtime/run.h"

#include <set>
#include <utility>

#include "penstock/model/precision.h"
#include "penstock/runtime/device/device_sum.h"
#include "penstock/runtime/gradient_board.h"
#include "penstock/runtime/schedule_fit.h"
#include "penstock/runtime/stages.h"
#include "penstock/util/check.h"

namespace penstock::runtime {

namespace {

std::vector<TensorLayout> layout_of(const Stages& stages, const Message& message,
                                    const BatchSource& source) {
  const auto model = stages.sized.of(source.input_shapes(message.micro_batch));
  // Gradients go back along the values that the sender has read.
  const StageModule& reader =
      *stages.modules[(message.backward ? message.from : message.to).index()];
  std::vector<TensorLayout> layout;
  for (const size_t i : reader.inputs_from(message.backward ? message.to : message.from)) {
    const graph::ValueRef value = reader.inputs()[i];
    const model::LayerPrecision& precision = stages.precisions[value.layer.index()];
    TensorLayout tensor{.sizes = {source.samples(message.micro_batch)},
                        .type = precision.activations != at::kFloat
                                    ? precision.activations
                                    : model::output_type(*model, value)};
    const model::Shape& shape =
        model->output_shapes(value.layer).at(static_cast<size_t>(value.output));
    tensor.sizes.insert(tensor.sizes.end(), shape.begin(), shape.end());
    layout.insert(layout.end(), message.backward ? reader.parts_sent(i).size() : 1, tensor);
  }
  return layout;
}

/// What the fabric sums for a stage, and how.
void add_stage(RunSetup& setup, const Stages& stages, size_t stage) {
  const StageModule& module = *stages.modules[stage];
  const schedule::ScheduleShape& shape = setup.schedule.shape;
  if (stages.sums_on_gpus(stage)) {
    const size_t weights = module.weight_offsets().back();
    setup.weights.push_back(
        {.shapes = {{DeviceSum::num_numbers(weights, shape.accumulate)}}, .layer_ends = {1}});
    setup.state_sharing.push_back(StateSharing::None);
    return;
  }
  if (stages.sums_factors(stage)) {
    setup.weights.push_back(
        low_rank_sums(low_rank_weights(stages, stage), stages.options.sync_rank));
    setup.state_sharing.push_back(StateSharing::None);
    return;
  }
  setup.weights.push_back(weights_of(module));
  // A norm and weights that the stage uses twice need the whole gradients.
  const bool whole = shape.global_norm || !stages.ties.stages[stage].inside.empty();
  const StateSharing shared = whole ? StateSharing::WholeSums : StateSharing::OwnSums;
  setup.state_sharing.push_back(stages.shares_state(stage) ? shared : StateSharing::None);
}

RunSetup make_setup(const Stages& stages, const RunRequest& request, const DeviceLinks* links,
                    const BoundaryCodings& codings) {
  const BatchSource& source = request.source;
  RunSetup setup{
      .schedule = request.schedule,
      .weights = {},
      .sync = stages.options.sync,
      .gradient_precision = stages.options.gradient_precision,
      .codings = codings.text(),
      .staleness = stages.options.staleness,
      .ties = stages.ties.groups,
      .num_model_weights = stages.modules.front()->num_model_weights(),
      .layout =
          [links, codings](const Message& message) {
            std::vector<TensorLayout> tensors = codings.layout(message);
            const bool by_link =
                links != nullptr && links->carries(message) && !codings.codes(message);
            return by_link ? mask_layout(tensors.size()) : tensors;
          },
      .mini_batch_samples =
          [&source](MiniBatchId mini_batch) { return source.mini_batch_samples(mini_batch); },
      .on_mini_batch = request.options.on_mini_batch,
      // Of an endless run the first stage looks itself, before it takes a frame.
      .stop = request.endless != nullptr ? nullptr : request.options.stop,
      .credits = request.options.credits,
      .endless = request.endless != nullptr};
  for (size_t s = 0; s < stages.size(); ++s) add_stage(setup, stages, s);
  return setup;
}

std::unique_ptr<ReplicaExchange> make_exchange(const Stages& stages, size_t stage,
                                               DeviceLinks* links) {
  std::vector<WorkerId> workers;
  std::vector<WorkerDevice*> devices;
  std::set<int> ranks;
  for (int r = 0; r < stages.counts[stage]; ++r) {
    workers.push_back(stages.worker_of(stage, r));
    const size_t worker = workers.back().index();
    devices.push_back(stages.devices[worker].get());
    ranks.insert(stages.world->site().rank_of_worker[worker]);
  }
  return std::make_unique<ReplicaExchange>(StageId{static_cast<int32_t>(stage)}, workers, devices,
                                           links, ranks.size() < workers.size());
}

std::vector<std::unique_ptr<ReplicaExchange>> make_exchanges(const Stages& stages, bool training,
                                                             DeviceLinks* links) {
  std::vector<std::unique_ptr<ReplicaExchange>> exchanges(stages.size());
  for (size_t s = 0; s < stages.size(); ++s) {
    if (training && stages.sums_on_gpus(s)) exchanges[s] = make_exchange(stages, s, links);
  }
  return exchanges;
}

/// Of outputs in any type.
model::Loss loss_of(const PipelineOptions& options, const RunOptions& run, bool training) {
  const model::Loss& chosen = !training && run.loss ? run.loss : options.loss;
  return [loss = chosen](const at::Tensor& output, const at::Tensor& targets,
                         const model::MiniBatchSize& mini_batch) {
    const bool is_narrow =
        output.scalar_type() == at::kBFloat16 || output.scalar_type() == at::kHalf;
    return loss(is_narrow ? model::as_float32(output) : output, targets, mini_batch);
  };
}

/// By micro-batch, the version of the weights that the stage with the loss reads in F.
std::vector<int64_t> loss_versions(const schedule::Schedule& schedule, StageId loss_stage) {
  std::vector<int64_t> versions(static_cast<size_t>(schedule.shape.micro_batches), 0);
  for (const auto& actions : schedule.workers) {
    for (const schedule::Action& action : actions) {
      if (action.op == schedule::Op::Forward && action.stage == loss_stage)
        versions[action.micro_batch.index()] = action.version.value;
    }
  }
  return versions;
}

std::vector<bool> stages_that_split(const schedule::Schedule& schedule) {
  std::vector<bool> splits(schedule.shape.replicas.size(), false);
  for (const auto& actions : schedule.workers) {
    for (const schedule::Action& action : actions) {
      if (action.op == schedule::Op::BackwardInput) splits[action.stage.index()] = true;
    }
  }
  return splits;
}

/// None where gradients are needed whole (NORM, weights that are used twice), or are rounded on
/// their way, or a replica has several sums.
std::vector<std::shared_ptr<GradientBoard>> make_boards(const Stages& stages,
                                                        const schedule::ScheduleShape& shape) {
  std::vector<std::shared_ptr<GradientBoard>> boards(stages.size());
  for (size_t s = 0; s < stages.size(); ++s) {
    if (!stages.shares_weights(s) || shape.global_norm || !stages.ties.stages[s].inside.empty() ||
        is_short(stages.options.gradient_precision) || stages.gradient_groups != stages.counts[s])
      continue;
    const StageWeights weights = weights_of(*stages.modules[s]);
    boards[s] = std::make_shared<GradientBoard>(
        weight_shares(weights.shapes, weights.layer_ends, stages.counts[s]));
  }
  return boards;
}

}  // namespace

Run make_run(const Stages& stages, Handover& handover, const RunRequest& request, int64_t steps,
             const LossScaleState& loss_scale) {
  const PipelineOptions& options = stages.options;
  DeviceLinks* const links = handover.links.get();
  const bool training = trains(request.schedule);
  const bool has_gpu = stages.has_gpu();
  const MessageLayout layout = [&stages, &source = request.source](const Message& message) {
    return layout_of(stages, message, source);
  };
  const BoundaryCodings codings(options.boundaries, stages.teams, request.source, layout);
  Run run{.pipeline = options,
          .request = request,
          .setup = make_setup(stages, request, links, codings),
          .table = schedule::WorkerTable(request.schedule.shape),
          .training = training,
          .loss = loss_of(options, request.options, training),
          .gradient_groups = stages.gradient_groups,
          .splits_backward = stages_that_split(request.schedule),
          .steps_before = steps,
          .loss_scale = loss_scale,
          .devices = {.site = has_gpu ? &stages.world->site() : nullptr,
                      .ready = has_gpu ? &handover.ready : nullptr,
                      .links = links,
                      .layout = layout,
                      .exchanges = make_exchanges(stages, training, links)},
          .codings = codings,
          .boards = make_boards(stages, request.schedule.shape)};
  if (training && scales_loss(options.precision)) {
    const graph::ValueRef output = stages.model.graph().outputs().front();
    run.loss_versions =
        loss_versions(request.schedule, stages.stage_of_layer.at(output.layer.index()));
  }
  return run;
}

}  // namespace penstock::runtime

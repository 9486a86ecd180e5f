#include "penstock/runtime/stage_run.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "penstock/model/device/tensor_memory.h"
#include "penstock/model/precision.h"
#include "penstock/util/check.h"

namespace penstock::runtime {

using schedule::Action;

namespace {

/// Of the stage, where something makes up for it.
double delay_of(const Run& run, const Replica& replica) {
  const schedule::ScheduleShape& shape = run.schedule().shape;
  if (shape.compensation == schedule::Compensation::None) return 0;
  return schedule::mean_delays(shape)[replica.module->stage().index()];
}

std::unique_ptr<FabricTeam> make_team(StageContext& context) {
  const schedule::TeamPlace place = schedule::place_in_team(context.shape(), context.stage());
  if (place.size == 1) return nullptr;
  auto team = std::make_unique<FabricTeam>(place, context);
  context.team = team.get();
  return team;
}

const StageContext& with_weights(StageContext& context, MovedWeights* moved) {
  context.moved = moved;
  return context;
}

}  // namespace

StageRun::StageRun(Replica& replica, const Run& run, Fabric& fabric, Blocking block,
                   const LossScale* loss_scale)
    : context_{.replica = replica,
               .run = run,
               .fabric = fabric,
               .block = std::move(block),
               .loss_scale = loss_scale,
               .delay = delay_of(run, replica)},
      team_(make_team(context_)),
      channels_last_(model::lays_channels_last(replica.module->model(), run.pipeline.precision,
                                               replica.device->compute().memory())),
      losses_(context_),
      sums_(make_stage_sums(context_)),
      moved_(make_moved_weights(context_, *sums_)),
      pass_(make_pass(with_weights(context_, moved_.get()), *sums_)),
      norm_(context_, *sums_) {}

void StageRun::claim_memory() const {
  const Replica& replica = context_.replica;
  replica.weights.claim_memory();
  if (replica.round) replica.round->claim_memory();
  if (replica.low_rank) replica.low_rank->claim_memory();
  for (const at::Tensor& buffer : replica.buffers)
    model::set_memory_kind(buffer, MemoryKind::Constants);
}

InFlight& StageRun::in_flight(MicroBatchId micro_batch) {
  const auto [entry, inserted] = in_flight_.try_emplace(micro_batch, module());
  if (inserted) {
    const size_t sources = module().source_stages().size();
    const size_t targets = module().target_stages().size();
    entry->second.missing_inputs = sources;
    entry->second.missing_gradients = targets;
    entry->second.outputs_to_give = targets;
    entry->second.gradients_to_give = context_.run.training ? sources : 0;
  }
  return entry->second;
}

void StageRun::drop_if_done(MicroBatchId micro_batch) {
  const auto found = in_flight_.find(micro_batch);
  const InFlight& record = found->second;
  if (record.done && record.outputs_to_give == 0 && record.gradients_to_give == 0)
    in_flight_.erase(found);
}

void StageRun::take_inputs(MicroBatchId micro_batch, StageId from, model::Tensors values) {
  InFlight& record = in_flight(micro_batch);
  const std::vector<size_t>& positions = module().inputs_from(from);
  PENSTOCK_CHECK(values.size() == positions.size() && record.missing_inputs > 0, values.size(),
                 positions.size());
  for (size_t k = 0; k < positions.size(); ++k)
    record.inputs[positions[k]] = laid_out(std::move(values[k]));
  --record.missing_inputs;
}

model::Tensors StageRun::give_outputs(MicroBatchId micro_batch, StageId to) {
  InFlight& record = in_flight(micro_batch);
  PENSTOCK_CHECK(record.outputs_to_give > 0 && !record.outputs.empty(), "micro-batch", micro_batch,
                 "has no outputs to give");
  model::Tensors values;
  for (const size_t i : module().outputs_to(to)) values.push_back(record.outputs[i]);
  if (--record.outputs_to_give == 0) record.outputs.clear();
  drop_if_done(micro_batch);
  return values;
}

void StageRun::take_gradients(MicroBatchId micro_batch, StageId from, model::Tensors parts) {
  InFlight& record = in_flight(micro_batch);
  PENSTOCK_CHECK(record.missing_gradients > 0, "gradients of micro-batch", micro_batch,
                 "arrive twice");
  for (at::Tensor& part : parts) part = laid_out(std::move(part));
  pass_->receive(record, from, std::move(parts));
  --record.missing_gradients;
}

model::Tensors StageRun::give_gradients(MicroBatchId micro_batch, StageId to) {
  InFlight& record = in_flight(micro_batch);
  PENSTOCK_CHECK(record.gradients_to_give > 0, "micro-batch", micro_batch,
                 "has no gradients to give");
  model::Tensors parts = pass_->message(record, to);
  --record.gradients_to_give;
  drop_if_done(micro_batch);
  return parts;
}

void StageRun::prefetch(MicroBatchId micro_batch) {
  const auto& wanted = module().inputs();
  WorkerDevice& device = context_.device();
  if (device.is_host() || wanted.empty() || !wanted.front().is_model_input()) return;
  const auto [entry, inserted] = prefetched_.try_emplace(micro_batch);
  if (inserted) entry->second = device.to_device(context_.run.source().inputs(micro_batch));
}

void StageRun::load_batch(MicroBatchId micro_batch, InFlight& record) {
  const auto& wanted = module().inputs();
  if (wanted.empty() || !wanted.front().is_model_input()) return;
  auto ahead = prefetched_.extract(micro_batch);
  const model::Tensors batch =
      ahead.empty() ? context_.device().to_device(context_.run.source().inputs(micro_batch))
                    : std::move(ahead.mapped());
  for (size_t i = 0; i < wanted.size() && wanted[i].is_model_input(); ++i) {
    record.inputs[i] = laid_out(model::as_activation(
        batch.at(static_cast<size_t>(wanted[i].output)), context_.run.pipeline.precision));
  }
}

void StageRun::forward(const Action& action) {
  InFlight& record = in_flight(action.micro_batch);
  PENSTOCK_CHECK(record.missing_inputs == 0, "stage", stage(), "lacks inputs of micro-batch",
                 action.micro_batch);
  for (const at::Tensor& received : record.inputs)
    model::set_memory_kind(received, MemoryKind::Activations);
  load_batch(action.micro_batch, record);
  tell_team(action);
  model::LossResult loss = pass_->forward(action, record);
  if (context_.reports_loss()) losses_.add(action, std::move(loss));
  if (module().target_stages().empty()) record.outputs.clear();
  drop_if_done(action.micro_batch);
}

void StageRun::recompute(const Action& action) {
  tell_team(action);
  pass_->recompute(action, in_flight(action.micro_batch));
}

void StageRun::backward(const Action& action) {
  InFlight& record = in_flight(action.micro_batch);
  PENSTOCK_CHECK(record.missing_gradients == 0, "stage", stage(), "cannot run B of micro-batch",
                 action.micro_batch);
  if (moved_) moved_->before_backward(action);
  tell_team(action);
  pass_->backward(action, record);
  record.done = true;
  drop_if_done(action.micro_batch);
}

void StageRun::backward_inputs(const Action& action) {
  InFlight& record = in_flight(action.micro_batch);
  PENSTOCK_CHECK(record.missing_gradients == 0, "stage", stage(), "cannot run I of micro-batch",
                 action.micro_batch);
  if (moved_) moved_->before_backward(action);
  tell_team(action);
  pass_->backward_inputs(action, record);
}

void StageRun::backward_weights(const Action& action) {
  InFlight& record = in_flight(action.micro_batch);
  if (moved_) moved_->before_backward(action);
  tell_team(action);
  pass_->backward_weights(action, record);
  record.done = true;
  drop_if_done(action.micro_batch);
}

std::shared_ptr<HostStash> StageRun::offload(const Action& action) {
  return pass_->offload(in_flight(action.micro_batch));
}

void StageRun::load(const Action& action) { pass_->load(in_flight(action.micro_batch)); }

void StageRun::step(const Action& action) {
  if (moved_) moved_->before_step(action.version);
  sums_->step(action);
  peak_versions_ = std::max(peak_versions_, context_.replica.weights.num_versions());
}

void StageRun::free_weights(const Action& action) {
  context_.replica.weights.release(action.version);
}

}  // namespace penstock::runtime

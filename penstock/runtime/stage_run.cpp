#include "penstock/runtime/stage_run.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "penstock/runtime/fabric/gradient_norm.h"
#include "penstock/runtime/ordered_sum.h"
#include "penstock/util/check.h"

namespace penstock::runtime {

using schedule::Action;

namespace {

Grouping grouping_of(const Replica& replica, const RunContext& run) {
  const schedule::ScheduleShape& shape = run.schedule.shape;
  const int replicas = run.table.replicas(replica.module->stage());
  // Other policies do not promise equal bits: use the minimum number of groups.
  return {.groups = shape.policy == schedule::WeightPolicy::Flush ? run.gradient_groups : replicas,
          .accumulate = shape.accumulate,
          .micro_batches = shape.micro_batches,
          .replica = replica.replica,
          .replicas = replicas};
}

}  // namespace

StageRun::StageRun(Replica& replica, const RunContext& run)
    : replica_(replica),
      run_(run),
      recomputes_(run.training && run.schedule.shape.recomputes(replica.module->stage())),
      num_sources_(replica.module->source_stages().size()),
      num_targets_(replica.module->target_stages().size()),
      gradients_(replica.module->weight_offsets().back(), grouping_of(replica, run)) {}

StageRun::InFlight& StageRun::in_flight(MicroBatchId micro_batch) {
  const auto [entry, inserted] = in_flight_.try_emplace(micro_batch, module());
  if (inserted) {
    entry->second.missing_inputs = num_sources_;
    entry->second.missing_gradients = num_targets_;
    entry->second.outputs_to_give = num_targets_;
    entry->second.gradients_to_give = run_.training ? num_sources_ : 0;
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
  for (size_t k = 0; k < positions.size(); ++k) record.inputs[positions[k]] = std::move(values[k]);
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
  record.gradients.receive(from, std::move(parts));
  --record.missing_gradients;
}

model::Tensors StageRun::give_gradients(MicroBatchId micro_batch, StageId to) {
  InFlight& record = in_flight(micro_batch);
  PENSTOCK_CHECK(record.gradients_to_give > 0, "micro-batch", micro_batch,
                 "has no gradients to give");
  model::Tensors parts = record.gradients.message(to);
  --record.gradients_to_give;
  drop_if_done(micro_batch);
  return parts;
}

void StageRun::load_batch(MicroBatchId micro_batch, InFlight& record) const {
  const auto& wanted = module().inputs();
  if (wanted.empty() || !wanted.front().is_model_input()) return;
  const model::Tensors batch = run_.source.inputs(micro_batch);
  for (size_t i = 0; i < wanted.size() && wanted[i].is_model_input(); ++i)
    record.inputs[i] = batch.at(static_cast<size_t>(wanted[i].output));
}

model::LossResult StageRun::record_tape(const Action& action, InFlight& record,
                                        model::MutableTensorSpan buffers) {
  record.tape.emplace(module(), run_.splits_backward[stage().index()]);
  const model::ForwardContext context{.training = true,
                                      .seed = run_.source.seed(action.micro_batch)};
  record.outputs =
      record.tape->forward(replica_.weights.at(action.version), buffers, record.inputs, context);
  record.inputs.clear();
  if (!makes_output()) return {};
  return record.tape->loss(record.outputs, run_.source.targets(action.micro_batch),
                           run_.source.mini_batch_samples(action.mini_batch));
}

model::LossResult StageRun::loss_without_tape(const Action& action, const InFlight& record) const {
  const at::NoGradGuard no_grad;
  return model::cross_entropy(record.outputs[module().model_outputs().front()],
                              run_.source.targets(action.micro_batch),
                              run_.source.mini_batch_samples(action.mini_batch));
}

void StageRun::forward(const Action& action) {
  InFlight& record = in_flight(action.micro_batch);
  PENSTOCK_CHECK(record.missing_inputs == 0, "stage", stage(), "lacks inputs of micro-batch",
                 action.micro_batch);
  load_batch(action.micro_batch, record);
  model::LossResult loss;
  if (run_.training) {
    // The backward of an earlier micro-batch may still need the old buffers: like weights, they are
    // replaced, not overwritten.
    const at::NoGradGuard no_grad;
    if (recomputes_) record.buffers = replica_.buffers;
    for (at::Tensor& buffer : replica_.buffers) buffer = buffer.clone();
  }
  if (run_.training && !recomputes_) {
    loss = record_tape(action, record, replica_.buffers);
  } else {
    const at::NoGradGuard no_grad;
    const model::ForwardContext context{.training = run_.training,
                                        .seed = run_.source.seed(action.micro_batch)};
    record.outputs = module().forward(replica_.weights.at(action.version), replica_.buffers,
                                      record.inputs, context);
    if (makes_output()) loss = loss_without_tape(action, record);
  }
  if (makes_output())
    run_.fabric.report(action.mini_batch, action.micro_batch,
                       {.loss_sum = loss.loss_sum,
                        .correct = loss.correct,
                        .samples = run_.source.samples(action.micro_batch)});
  if (num_targets_ == 0) record.outputs.clear();
  if (!run_.training) {
    record.inputs.clear();
    record.done = true;
    drop_if_done(action.micro_batch);
  }
}

void StageRun::recompute(const Action& action) {
  InFlight& record = in_flight(action.micro_batch);
  PENSTOCK_CHECK(recomputes_ && !record.inputs.empty() && record.outputs_to_give == 0, "stage",
                 stage(), "micro-batch", action.micro_batch);
  // The replica's own buffers already include this micro-batch and later ones.
  model::Tensors buffers = std::move(record.buffers);
  for (at::Tensor& buffer : buffers) buffer = buffer.clone();
  record.buffers.clear();
  record_tape(action, record, buffers);
  record.outputs.clear();
}

void StageRun::backward(const Action& action) {
  InFlight& record = in_flight(action.micro_batch);
  PENSTOCK_CHECK(record.tape && record.missing_gradients == 0, "stage", stage(),
                 "cannot run B of micro-batch", action.micro_batch);
  gradients_.add(action.micro_batch, record.tape->backward(record.gradients));
  record.tape.reset();
  record.done = true;
  drop_if_done(action.micro_batch);
}

void StageRun::backward_inputs(const Action& action) {
  InFlight& record = in_flight(action.micro_batch);
  PENSTOCK_CHECK(record.tape && record.missing_gradients == 0, "stage", stage(),
                 "cannot run I of micro-batch", action.micro_batch);
  record.tape->backward_inputs(record.gradients);
}

void StageRun::backward_weights(const Action& action) {
  InFlight& record = in_flight(action.micro_batch);
  PENSTOCK_CHECK(record.tape.has_value(), "stage", stage(), "cannot run W of micro-batch",
                 action.micro_batch);
  gradients_.add(action.micro_batch, record.tape->backward_weights());
  record.tape.reset();
  record.done = true;
  drop_if_done(action.micro_batch);
}

WaitResult StageRun::sync(const Action& action, Wait& wait) {
  model::Tensors sums;
  const WaitResult result = run_.fabric.sum(
      stage(), replica_.replica, gradients_.take_exclusive(action.mini_batch), sums, wait);
  if (result != WaitResult::Ready) return result;
  ready_ = std::move(sums);
  add_inner_ties();
  return result;
}

void StageRun::make_ready(MiniBatchId mini_batch) {
  if (ready_) return;
  ready_ = sum_of(gradients_.take(mini_batch), module().weight_offsets().back());
  add_inner_ties();
}

void StageRun::add_inner_ties() {
  const at::NoGradGuard no_grad;
  for (const std::vector<size_t>& group : replica_.ties->inside) {
    at::Tensor sum;
    for (const size_t w : group) {
      const at::Tensor& part = (*ready_)[w];
      if (part.defined()) sum = sum.defined() ? sum + part : part;
    }
    for (const size_t w : group) (*ready_)[w] = sum;
  }
}

void StageRun::contribute(MiniBatchId mini_batch, NormShare& share) {
  make_ready(mini_batch);
  for (const StageTies::Copy& copy : replica_.ties->across) {
    if (replica_.replica == 0)
      share.tied.push_back({copy.group, copy.copy, (*ready_)[copy.weight]});
    share.wanted.push_back(copy.group);
  }
  const auto replicas = static_cast<size_t>(run_.table.replicas(stage()));
  const std::vector<size_t>& offsets = module().weight_offsets();
  for (size_t i = 0; i + 1 < offsets.size(); ++i) {
    for (size_t w = offsets[i]; w < offsets[i + 1]; ++w) {
      // The replicas have the same gradients and divide the work.
      if (w % replicas != static_cast<size_t>(replica_.replica) || !replica_.ties->counts[w])
        continue;
      share.squares.push_back(
          {module().first_model_weight(i) + w - offsets[i], sum_of_squares((*ready_)[w])});
    }
  }
}

void StageRun::take_tied_sums(const NormTotals& totals) {
  for (const StageTies::Copy& copy : replica_.ties->across)
    (*ready_)[copy.weight] = totals.tied_sums.at(copy.group);
}

void StageRun::scale_gradients(double factor) {
  const at::NoGradGuard no_grad;
  for (at::Tensor& gradient : *ready_) {
    if (!gradient.defined()) continue;
    if (is_exclusive(gradient))
      gradient.mul_(factor);
    else
      gradient = gradient * factor;
  }
}

void StageRun::step(const Action& action) {
  make_ready(action.mini_batch);
  const int64_t number = run_.steps_before + action.version.value;
  replica_.weights.step(*ready_,
                        {.learning_rate = run_.options.learning_rate(number), .step = number + 1});
  ready_.reset();
  peak_versions_ = std::max(peak_versions_, replica_.weights.num_versions());
}

}  // namespace penstock::runtime

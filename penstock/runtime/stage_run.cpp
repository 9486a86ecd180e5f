#include "penstock/runtime/stage_run.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "penstock/model/device/copies.h"
#include "penstock/runtime/fabric/delayed_sum.h"
#include "penstock/runtime/fabric/gradient_norm.h"
#include "penstock/runtime/ordered_sum.h"
#include "penstock/util/check.h"
#include "penstock/util/steady_ns.h"

namespace penstock::runtime {

using schedule::Action;

namespace {

/// By weight, whether the only replica of a stage rounds as several would.
std::vector<bool> rounded_weights(const StageModule& module, int replicas, const RunContext& run) {
  std::vector<bool> weights;
  if (replicas > 1 || run.rounded_layers.empty() || !is_short(run.gradient_precision))
    return weights;
  for (size_t l = 0; l < module.layers().size(); ++l)
    weights.resize(module.weight_offsets()[l + 1], run.rounded_layers[module.layers()[l].index()]);
  return weights;
}

Grouping grouping_of(const Replica& replica, const RunContext& run) {
  const schedule::ScheduleShape& shape = run.schedule.shape;
  const int replicas = run.table.replicas(replica.module->stage());
  // Other policies do not promise equal bits: use the minimum number of groups.
  return {.groups = shape.policy == schedule::WeightPolicy::Flush ? run.gradient_groups : replicas,
          .accumulate = shape.accumulate,
          .micro_batches = run.endless != nullptr ? INT64_MAX : shape.micro_batches,
          .replica = replica.replica,
          .replicas = replicas,
          .gradient_precision = run.gradient_precision,
          .rounded = rounded_weights(*replica.module, replicas, run)};
}

/// Whether what arrives for the worker's stage is in memory that no other stage uses: between
/// stages on one device of a process tensors go by reference.
bool is_alone_on_device(const RunContext& run, WorkerId worker) {
  if (run.table.held_by(worker).size() > 1) return false;
  for (int32_t w = 0; w < run.table.num_workers(); ++w) {
    const WorkerId other{w};
    const bool is_here = run.site == nullptr || run.site->holds(other);
    if (other != worker && is_here && run.device_of(other) == run.device_of(worker)) return false;
  }
  return true;
}

/// What the exception that is being handled says. Rethrows it where recording is not to blame.
std::string why_not_recorded() {
  try {
    throw;
  } catch (const InternalError&) {
    throw;
  } catch (const c10::Error& error) {
    if (model::is_out_of_memory(error)) return "the memory is too small for graphs beside the rest";
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace

StageRun::StageRun(Replica& replica, const RunContext& run, Blocking block,
                   const LossScale* loss_scale)
    : replica_(replica),
      run_(run),
      recomputes_(run.training && run.schedule.shape.recomputes(replica.module->stage())),
      offloads_(run.training && run.schedule.shape.offloads(replica.module->stage()) &&
                !replica.device->is_host()),
      owns_inputs_(is_alone_on_device(run, replica.worker)),
      channels_last_(model::lays_channels_last(replica.module->model(), run.precision,
                                               replica.device->compute().memory())),
      on_one_gpu_(run.is_on_one_gpu() && replica.device->compute().memory().is_cuda()),
      num_sources_(replica.module->source_stages().size()),
      num_targets_(replica.module->target_stages().size()),
      block_(std::move(block)),
      loss_scale_(loss_scale) {
  const size_t count = replica.module->weight_offsets().back();
  const Grouping grouping = grouping_of(replica, run);
  rounded_ = grouping.rounded;
  if (grouping.replicas > 1 && run.training) {
    make_device_sum(grouping);
    bucket_ends_ = device_sum_ ? std::vector<size_t>{count} : run.fabric.bucket_ends(stage());
    in_background_ = !device_sum_ && run.fabric.adds_in_background(stage());
  }
  for (size_t bucket = 0; bucket < bucket_ends_.size(); ++bucket) {
    gradients_.emplace_back(bucket_ends_[bucket] - first_weight(bucket), grouping);
    bucket_of_.resize(bucket_ends_[bucket], bucket);
  }
  if (!is_replicated()) gradients_.emplace_back(count, grouping);
  if (run.training && run.schedule.shape.policy == schedule::WeightPolicy::Current)
    newest_.emplace();
  started_.resize(bucket_ends_.size(), false);
  given_.resize(bucket_ends_.size());
  next_bucket_ = bucket_ends_.size();
  if (run.splits_backward[stage().index()])
    segment_ends_ = cut_everywhere(module());
  else if (in_background_)
    segment_ends_ = cut_between_buckets(module(), bucket_ends_);
  else
    segment_ends_ = cut_between_chains(module());
  if (run_.training && replica.graphs != nullptr) {
    graphs_ = replica.graphs.get();
    graphs_->begin_run();
    std::string obstacle = graph_obstacle();
    if (!obstacle.empty()) graphs_->refuse(std::move(obstacle));
  }
}

std::string StageRun::graph_obstacle() const {
  const schedule::ScheduleShape& shape = run_.schedule.shape;
  if (!plan::keeps_one_version(shape.policy)) return "weights have several versions";
  if (run_.splits_backward[stage().index()]) return "backward passes are split";
  if (recomputes_) return "the stage recomputes";
  if (run_.schedule.shape.offloads(stage())) return "activations move to the host";
  if (loss_scale_ != nullptr) return "the loss is scaled";
  return module().random_layer();
}

bool StageRun::sums_late() const {
  const schedule::ScheduleShape& shape = run_.schedule.shape;
  return in_background_ && !shape.global_norm && !plan::backward_reads_newest(shape.policy) &&
         replica_.ties->inside.empty();
}

int64_t StageRun::num_micro_batches(MiniBatchId mini_batch) const {
  const schedule::ScheduleShape& shape = run_.schedule.shape;
  const int64_t replicas = run_.table.replicas(stage());
  const int64_t begin = mini_batch.value * shape.accumulate;
  const int64_t end = std::min(begin + shape.accumulate, shape.micro_batches);
  const auto below = [&](int64_t b) { return (b + replicas - 1 - replica_.replica) / replicas; };
  return below(end) - below(begin);
}

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
  if (graph_of(record) != nullptr)
    record.received[from] = std::move(parts);
  else
    record.gradients.receive(from, std::move(parts));
  --record.missing_gradients;
}

model::Tensors StageRun::give_gradients(MicroBatchId micro_batch, StageId to) {
  InFlight& record = in_flight(micro_batch);
  PENSTOCK_CHECK(record.gradients_to_give > 0, "micro-batch", micro_batch,
                 "has no gradients to give");
  const auto made = record.messages.find(to);
  model::Tensors parts =
      made == record.messages.end() ? record.gradients.message(to) : std::move(made->second);
  --record.gradients_to_give;
  drop_if_done(micro_batch);
  return parts;
}

void StageRun::prefetch(MicroBatchId micro_batch) {
  const auto& wanted = module().inputs();
  if (device().is_host() || wanted.empty() || !wanted.front().is_model_input()) return;
  const auto [entry, inserted] = prefetched_.try_emplace(micro_batch);
  if (inserted) entry->second = device().to_device(run_.source.inputs(micro_batch));
}

void StageRun::load_batch(MicroBatchId micro_batch, InFlight& record) {
  const auto& wanted = module().inputs();
  if (wanted.empty() || !wanted.front().is_model_input()) return;
  auto ahead = prefetched_.extract(micro_batch);
  const model::Tensors batch = ahead.empty() ? device().to_device(run_.source.inputs(micro_batch))
                                             : std::move(ahead.mapped());
  for (size_t i = 0; i < wanted.size() && wanted[i].is_model_input(); ++i)
    record.inputs[i] = laid_out(
        model::as_activation(batch.at(static_cast<size_t>(wanted[i].output)), run_.precision));
}

model::ForwardContext StageRun::forward_context(const Action& action) const {
  return {.training = run_.training,
          .seed = run_.source.seed(action.micro_batch),
          .device = device().compute().memory()};
}

model::LossResult StageRun::record_tape(const Action& action, InFlight& record,
                                        model::MutableTensorSpan buffers,
                                        const BeforeLayer& before_layer, bool with_loss) {
  record.tape.emplace(module(), segment_ends_);
  const model::ForwardContext context = forward_context(action);
  record.outputs = record.tape->forward(replica_.weights.at(action.version), buffers, record.inputs,
                                        context, before_layer);
  record.inputs.clear();
  if (!makes_output() || !with_loss) return {};
  return record.tape->loss(run_.loss, record.outputs, targets(action.micro_batch),
                           run_.source.size_of(action.mini_batch),
                           loss_scale_of(action.micro_batch));
}

double StageRun::loss_scale_of(MicroBatchId micro_batch) const {
  return loss_scale_ == nullptr ? 1 : loss_scale_->at(run_.loss_versions[micro_batch.index()]);
}

model::LossResult StageRun::loss_without_tape(const Action& action, const InFlight& record) const {
  const at::NoGradGuard no_grad;
  return run_.loss(record.outputs[module().model_outputs().front()], targets(action.micro_batch),
                   run_.source.size_of(action.mini_batch));
}

void StageRun::report(const Action& action, double loss_sum, int64_t correct) {
  run_.fabric.report(action.mini_batch, action.micro_batch,
                     {.loss_sum = loss_sum,
                      .correct = correct,
                      .samples = run_.source.samples(action.micro_batch)});
}

void StageRun::report(const Action& action, model::LossResult loss) {
  if (!loss.unread.defined()) return report(action, loss.loss_sum, loss.correct);
  unread_losses_.push_back({action, device().give({std::move(loss.unread)}, /*to_host=*/true)});
  report_losses(/*all=*/false);
}

void StageRun::report_losses(bool all) {
  while (!unread_losses_.empty()) {
    const UnreadLoss& next = unread_losses_.front();
    const model::EventPtr& ready = next.numbers.ready;
    if (ready && !ready->is_done()) {
      if (!all) return;
      ready->wait_on_host();
    }
    const double* const numbers = next.numbers.tensors.front().data_ptr<double>();
    report(next.action, numbers[0], static_cast<int64_t>(numbers[1]));
    unread_losses_.pop_front();
  }
}

void StageRun::forward(const Action& action) {
  InFlight& record = in_flight(action.micro_batch);
  PENSTOCK_CHECK(record.missing_inputs == 0, "stage", stage(), "lacks inputs of micro-batch",
                 action.micro_batch);
  load_batch(action.micro_batch, record);
  model::LossResult loss;
  if (graphs_ != nullptr && forward_by_graph(action, record, loss)) {
    if (makes_output()) report(action, std::move(loss));
    return;
  }
  if (run_.training) {
    replica_.has_trained = true;
    // The backward of an earlier micro-batch may still need the old buffers: like weights, they are
    // replaced, not overwritten.
    const at::NoGradGuard no_grad;
    if (newest_) {
      begin_newest(action, record, replica_.buffers);
    } else if (recomputes_) {
      record.buffers = replica_.buffers;
    }
    replica_.buffers = model::copies_of(replica_.buffers);
  }
  const BeforeLayer step_layer = [this](size_t layer) {
    const StashPause pause;  // what a step makes is no activation
    step_below(module().weight_offsets()[layer + 1]);
  };
  const bool steps =
      next_bucket_ < bucket_ends_.size() && action.version == replica_.weights.latest();
  if (run_.training && !recomputes_) {
    std::optional<StashWatch> watch;
    if (offloads_) {
      if (owns_inputs_) record.moving = storages_of(record.inputs);
      watch.emplace();
    }
    loss = record_tape(action, record, replica_.buffers, steps ? step_layer : BeforeLayer());
    if (watch) {
      const std::vector<WeakStorage> made = watch->made();
      record.moving.insert(record.moving.end(), made.begin(), made.end());
      // Others may still have to read them.
      add_storages(record.stays, record.outputs);
    }
    if (newest_) newest_->tape = std::exchange(record.tape, std::nullopt);
  } else {
    const at::NoGradGuard no_grad;
    const model::ForwardContext context = forward_context(action);
    record.outputs = module().forward(replica_.weights.at(action.version), replica_.buffers,
                                      record.inputs, context, steps ? step_layer : BeforeLayer());
    if (makes_output()) loss = loss_without_tape(action, record);
  }
  if (makes_output()) report(action, std::move(loss));
  if (num_targets_ == 0) record.outputs.clear();
  if (newest_) record.inputs.clear();
  if (!run_.training) {
    record.inputs.clear();
    record.done = true;
    drop_if_done(action.micro_batch);
  }
}

std::shared_ptr<HostStash> StageRun::offload(const Action& action) {
  if (!offloads_) return nullptr;
  InFlight& record = in_flight(action.micro_batch);
  PENSTOCK_CHECK(record.tape && !record.moved, "stage", stage(), "cannot move micro-batch",
                 action.micro_batch);
  add_storages(record.stays, replica_.buffers);
  record.moved = std::make_shared<HostStash>(device(), record.moving, record.stays);
  record.moving.clear();
  record.stays.clear();
  return record.moved;
}

void StageRun::load(const Action& action) {
  if (!offloads_) return;
  InFlight& record = in_flight(action.micro_batch);
  PENSTOCK_CHECK(record.moved != nullptr, "stage", stage(), "has not moved micro-batch",
                 action.micro_batch);
  record.moved->load();
}

void StageRun::take_back(InFlight& record) {
  if (record.moved == nullptr) return;
  record.moved->wait();
  record.moved = nullptr;
}

bool StageRun::forward_by_graph(const Action& action, InFlight& record, model::LossResult& loss) {
  if (!graphs_->obstacle().empty()) return false;
  complete();  // the graph has no place to wait for weights
  if (newest_) drop_newest_graph();
  const model::Tensors& weights = replica_.weights.at(action.version);
  StageGraph* const graph = graphs_->take(weights, record.inputs, segment_ends_, replica_.buffers);
  if (graph == nullptr) return false;
  try {
    graph->prepare_forward(weights, record.inputs, forward_context(action));
  } catch (const std::exception&) {
    graphs_->refuse(why_not_recorded());
    graphs_->give_back(*graph);
    return false;
  }
  // The graph writes to the replica's buffers.
  if (newest_) begin_newest(action, record, model::copies_of(replica_.buffers));
  const model::Tensors& outputs = graph->forward();
  replica_.has_trained = true;
  (newest_ ? newest_->graph : record.graph) = graph;
  record.inputs.clear();
  if (makes_output()) {
    loss = record.loss.forward(run_.loss, outputs[module().model_outputs().front()],
                               graph->output_needs_gradient(), targets(action.micro_batch),
                               run_.source.size_of(action.mini_batch));
  }
  if (num_targets_ > 0) record.outputs = model::copies_of(outputs);
  return true;
}

bool StageRun::backward_by_graph(const Action& action, InFlight& record) {
  StageGraph*& graph = graph_of(record);
  const at::Tensor loss_gradient = record.loss.is_open() ? record.loss.backward() : at::Tensor();
  try {
    graph->prepare_backward(record.received, loss_gradient);
  } catch (const std::exception&) {
    graphs_->refuse(why_not_recorded());
    leave_graph(action, record);
    if (loss_gradient.defined()) record.gradients.add(module().loss_place(), loss_gradient);
    return false;
  }
  const StageGraph::Made& made = graph->backward();
  // The next B writes over them, before which the only micro-batch of a step has made its step.
  const bool stays = run_.schedule.shape.accumulate == 1 && !is_replicated();
  collect(action, [&](const StageTape::Made&) {
    return stays ? made.weights : model::copies_of(made.weights);
  });
  for (const auto& [to, parts] : made.messages) record.messages[to] = model::copies_of(parts);
  graphs_->give_back(*graph);
  graph = nullptr;
  record.received.clear();
  return true;
}

void StageRun::leave_graph(const Action& action, InFlight& record) {
  // B runs F again.
  if (newest_) return drop_newest_graph();
  // The replica's own buffers include this micro-batch already.
  model::Tensors buffers = model::copies_of(record.graph->buffers_before());
  record.inputs = model::copies_of(record.graph->inputs());
  graphs_->give_back(*record.graph);
  record.graph = nullptr;
  record.tape.emplace(module(), segment_ends_);
  record.tape->forward(replica_.weights.at(action.version), buffers, record.inputs,
                       forward_context(action));
  record.inputs.clear();
}

void StageRun::drop_newest_graph() {
  if (newest_->graph != nullptr) graphs_->give_back(*std::exchange(newest_->graph, nullptr));
}

void StageRun::receive_late(InFlight& record) {
  for (auto& [from, parts] : record.received) record.gradients.receive(from, std::move(parts));
  record.received.clear();
}

void StageRun::begin_newest(const Action& action, const InFlight& record, model::Tensors buffers) {
  newest_->micro_batch = action.micro_batch;
  newest_->mini_batch = action.mini_batch;
  newest_->inputs = record.inputs;
  newest_->buffers = std::move(buffers);
  newest_->tape.reset();
  drop_newest_graph();
}

void StageRun::record_newest(bool with_loss) {
  InFlight again(module());
  again.inputs = newest_->inputs;
  model::Tensors buffers = model::copies_of(newest_->buffers);
  const Action forward{.op = schedule::Op::Forward,
                       .stage = stage(),
                       .micro_batch = newest_->micro_batch,
                       .mini_batch = newest_->mini_batch,
                       .peer = stage(),
                       .version = replica_.weights.latest()};
  record_tape(forward, again, buffers, {}, with_loss);
  newest_->tape = std::move(again.tape);
}

void StageRun::recompute(const Action& action) {
  if (newest_) return record_newest(/*with_loss=*/true);
  InFlight& record = in_flight(action.micro_batch);
  PENSTOCK_CHECK(recomputes_ && !record.inputs.empty() && record.outputs_to_give == 0, "stage",
                 stage(), "micro-batch", action.micro_batch);
  // The replica's own buffers already include this micro-batch and later ones.
  model::Tensors buffers = model::copies_of(record.buffers);
  record.buffers.clear();
  record_tape(action, record, buffers, {});
  record.outputs.clear();
}

void StageRun::backward(const Action& action) {
  InFlight& record = in_flight(action.micro_batch);
  if (graph_of(record) != nullptr) {
    PENSTOCK_CHECK(record.missing_gradients == 0, "stage", stage(), "cannot run B of micro-batch",
                   action.micro_batch);
    if (backward_by_graph(action, record)) {
      record.done = true;
      return drop_if_done(action.micro_batch);
    }
  }
  receive_late(record);
  // Whose loss has a gradient has it already.
  if (newest_ && !newest_->tape) record_newest(/*with_loss=*/false);
  std::optional<StageTape>& tape = tape_of(record);
  PENSTOCK_CHECK(tape && record.missing_gradients == 0, "stage", stage(),
                 "cannot run B of micro-batch", action.micro_batch);
  take_back(record);
  tape->set_loss_scale(loss_scale_of(action.micro_batch));
  collect(action,
          [&](const StageTape::Made& made) { return tape->backward(record.gradients, made); });
  tape.reset();
  record.done = true;
  drop_if_done(action.micro_batch);
}

void StageRun::backward_inputs(const Action& action) {
  InFlight& record = in_flight(action.micro_batch);
  PENSTOCK_CHECK(record.tape && record.missing_gradients == 0, "stage", stage(),
                 "cannot run I of micro-batch", action.micro_batch);
  take_back(record);
  record.tape->set_loss_scale(loss_scale_of(action.micro_batch));
  record.tape->backward_inputs(record.gradients);
}

void StageRun::backward_weights(const Action& action) {
  InFlight& record = in_flight(action.micro_batch);
  PENSTOCK_CHECK(record.tape.has_value(), "stage", stage(), "cannot run W of micro-batch",
                 action.micro_batch);
  collect(action, [&](const StageTape::Made& made) { return record.tape->backward_weights(made); });
  record.tape.reset();
  record.done = true;
  drop_if_done(action.micro_batch);
}

void StageRun::add_bucket(MicroBatchId micro_batch, size_t bucket, Tensors& gradients) {
  const auto first = gradients.begin() + static_cast<std::ptrdiff_t>(first_weight(bucket));
  const auto end = gradients.begin() + static_cast<std::ptrdiff_t>(bucket_ends_[bucket]);
  gradients_[bucket].add(micro_batch,
                         Tensors(std::make_move_iterator(first), std::make_move_iterator(end)));
}

template <class Run>
void StageRun::collect(const Action& action, Run&& backward) {
  if (!is_replicated()) {
    gradients_.front().add(action.micro_batch, backward(StageTape::Made()));
    return;
  }
  const bool is_last = ++passes_[action.mini_batch] == num_micro_batches(action.mini_batch);
  if (is_last) passes_.erase(action.mini_batch);
  const bool leaves = is_last && in_background_;
  if (!leaves) {
    Tensors gradients = backward(StageTape::Made());
    for (size_t bucket = 0; bucket < bucket_ends_.size(); ++bucket)
      add_bucket(action.micro_batch, bucket, gradients);
    return;
  }
  complete();
  std::vector<size_t> missing;
  for (size_t bucket = 0; bucket < bucket_ends_.size(); ++bucket)
    missing.push_back(bucket_ends_[bucket] - first_weight(bucket));
  const auto leave = [&](size_t bucket, Tensors& gradients) {
    add_bucket(action.micro_batch, bucket, gradients);
    start_sum(action.mini_batch, bucket);
  };
  Tensors rest = backward([&](const std::vector<size_t>& places, Tensors& gradients) {
    for (const size_t place : places) {
      const size_t bucket = bucket_of_[place];
      if (--missing[bucket] == 0) leave(bucket, gradients);
    }
  });
  for (size_t bucket = 0; bucket < bucket_ends_.size(); ++bucket) {
    if (!started_[bucket]) leave(bucket, rest);
  }
}

void StageRun::start_sum(MiniBatchId mini_batch, size_t bucket) {
  started_[bucket] = true;
  given_[bucket] = {.stage = stage(),
                    .mini_batch = mini_batch,
                    .bucket = static_cast<int32_t>(bucket),
                    .start_ns = steady_ns()};
  Partials partials = gradients_[bucket].take_exclusive(mini_batch);
  if (run_.sums_updates) partials = updates_of(mini_batch, bucket, std::move(partials));
  if (device_sum_) {
    // In the fabric, the numbers of a replica are its own group.
    at::Tensor numbers = device_sum_->start(mini_batch, std::move(partials));
    return run_.fabric.start_sum(stage(), replica_.replica, bucket,
                                 {{replica_.replica, {std::move(numbers)}}});
  }
  run_.fabric.start_sum(stage(), replica_.replica, bucket, partials_on_host(std::move(partials)));
}

Partials StageRun::partials_on_host(Partials partials) {
  if (device().is_host()) return partials;
  // One wait for all of them.
  Tensors all;
  for (GroupGradients& group : partials)
    std::move(group.sums.begin(), group.sums.end(), std::back_inserter(all));
  all = device().to_host(std::move(all));
  auto next = all.begin();
  for (GroupGradients& group : partials) {
    for (at::Tensor& sum : group.sums) sum = std::move(*next++);
  }
  return partials;
}

Partials StageRun::updates_of(MiniBatchId mini_batch, size_t bucket, Partials partials) {
  const size_t first = first_weight(bucket);
  const Tensors gradients = sum_of(partials, bucket_ends_[bucket] - first);
  return {{.group = 0,
           .sums = replica_.weights.updates(first, gradients, step_context(mini_batch.value))}};
}

void StageRun::catch_up() {
  if (!is_replicated() || !run_.sums_updates) return;
  for (size_t bucket = 0; bucket < bucket_ends_.size(); ++bucket) {
    const size_t count = bucket_ends_[bucket] - first_weight(bucket);
    run_.fabric.start_sum(stage(), replica_.replica, bucket, {{kLastUpdate, Tensors(count)}});
  }
  for (size_t bucket = 0; bucket < bucket_ends_.size(); ++bucket)
    replica_.weights.add_in_place(first_weight(bucket), finish_sum(bucket));
}

Tensors StageRun::finish_sum(size_t bucket) {
  BucketSum sum;
  {
    const auto scope = device().enter_host();
    block_([&](Wait& wait) {
      return run_.fabric.finish_sum(stage(), replica_.replica, bucket, sum, wait);
    });
  }
  if (device_sum_) return device_sum_->finish(sum.sums.front());
  const auto most = static_cast<size_t>(std::max<int64_t>(run_.options.max_timeline_events, 0));
  schedule::SumEvent given = std::exchange(given_[bucket], {});
  if (sum.complete_ns > 0 && given.start_ns > 0 && sum_events_.size() < most) {
    given.end_ns = sum.complete_ns;
    sum_events_.push_back(given);
  }
  return device().to_device(std::move(sum.sums));
}

void StageRun::sync(const Action& action) {
  complete();
  // A replica without a micro-batch of the mini-batch gives nothing, but gets the sums.
  for (size_t bucket = 0; bucket < bucket_ends_.size(); ++bucket) {
    if (!started_[bucket]) start_sum(action.mini_batch, bucket);
  }
  started_.assign(bucket_ends_.size(), false);
  if (sums_late()) {
    sums_are_due_ = true;
    return;
  }
  ready_.emplace();
  for (size_t bucket = 0; bucket < bucket_ends_.size(); ++bucket) {
    Tensors sums = finish_sum(bucket);
    std::move(sums.begin(), sums.end(), std::back_inserter(*ready_));
  }
  add_inner_ties();
}

void StageRun::step_below(size_t end) {
  while (next_bucket_ < bucket_ends_.size() && first_weight(next_bucket_) < end) {
    const size_t bucket = next_bucket_;
    if (replica_.shares_state)
      finish_gather(bucket);
    else if (run_.sums_updates)
      replica_.weights.add_weights(first_weight(bucket), finish_sum(bucket));
    else
      replica_.weights.step_weights(first_weight(bucket), finish_sum(bucket));
    ++next_bucket_;
  }
}

void StageRun::complete() {
  if (is_replicated()) step_below(bucket_ends_.back() + 1);
}

void StageRun::make_ready(MiniBatchId mini_batch) {
  if (ready_) return;
  ready_ = sum_of(gradients_.front().take(mini_batch), module().weight_offsets().back());
  for (size_t w = 0; w < rounded_.size(); ++w) {
    if (rounded_[w]) (*ready_)[w] = rounded(std::move((*ready_)[w]), run_.gradient_precision);
  }
  add_inner_ties();
}

void StageRun::add_inner_ties() {
  for (const std::vector<size_t>& group : replica_.ties->inside) {
    at::Tensor sum;
    for (const size_t w : group) add_gradient(sum, std::exchange((*ready_)[w], {}));
    for (const size_t w : group) (*ready_)[w] = sum;
  }
}

void StageRun::contribute(MiniBatchId mini_batch, NormShare& share) {
  make_ready(mini_batch);
  for (const StageTies::Copy& copy : replica_.ties->across) {
    if (replica_.replica == 0) {
      at::Tensor gradient = (*ready_)[copy.weight];
      if (!device().is_host() && !on_one_gpu_)
        gradient = std::move(device().to_host({gradient}).front());
      share.tied.push_back({copy.group, copy.copy, std::move(gradient)});
    }
    share.wanted.push_back(copy.group);
  }
  // Others add to it on streams of their own.
  if (!share.tied.empty() && on_one_gpu_) device().compute().synchronize();
  Tensors norms;
  std::vector<size_t> places;  // of their squares in the share
  const auto replicas = static_cast<size_t>(run_.table.replicas(stage()));
  const std::vector<size_t>& offsets = module().weight_offsets();
  for (size_t i = 0; i + 1 < offsets.size(); ++i) {
    for (size_t w = offsets[i]; w < offsets[i + 1]; ++w) {
      // The replicas have the same gradients and divide the work.
      if (w % replicas != static_cast<size_t>(replica_.replica) || !replica_.ties->counts[w])
        continue;
      const size_t number = module().first_model_weight(i) + w - offsets[i];
      if (device().is_host()) {
        share.squares.push_back({number, sum_of_squares((*ready_)[w])});
        continue;
      }
      if ((*ready_)[w].defined()) {
        places.push_back(share.squares.size());
        norms.push_back(norm_of((*ready_)[w]));
      }
      share.squares.push_back({number, 0});
    }
  }
  if (norms.empty()) return;
  // One wait for the norms of all weights.
  const at::NoGradGuard no_grad;
  const at::Tensor read = std::move(device().to_host({at::stack(norms)}).front());
  const double* const numbers = read.data_ptr<double>();
  for (size_t k = 0; k < norms.size(); ++k) share.squares[places[k]].sum = numbers[k] * numbers[k];
}

void StageRun::take_tied_sums(const NormTotals& totals) {
  for (const StageTies::Copy& copy : replica_.ties->across) {
    const at::Tensor& sum = totals.tied_sums.at(copy.group);
    (*ready_)[copy.weight] = on_one_gpu_ ? sum : device().to_device(sum);
  }
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

void StageRun::skip_step() {
  for (at::Tensor& gradient : *ready_) gradient.reset();
}

model::StepContext StageRun::step_context(int64_t step) const {
  const int64_t number = run_.steps_before + step;
  // Steps that were left out have not moved the optimiser's averages.
  const int64_t skipped =
      loss_scale_ == nullptr ? run_.loss_scale.skipped : loss_scale_->state().skipped;
  return {.learning_rate = run_.options.learning_rate(number),
          .step = std::max<int64_t>(number + 1 - skipped, 1)};
}

void StageRun::make_device_sum(const Grouping& grouping) {
  ReplicaExchange* const exchange = run_.exchange_of(stage());
  if (exchange == nullptr) return;
  const std::vector<size_t>& offsets = module().weight_offsets();
  std::vector<model::Shape> shapes = module().weight_shapes();
  if (replica_.shares_state)
    shares_ = weight_shares(shapes, {offsets.begin() + 1, offsets.end()}, grouping.replicas);
  const auto meet = [this] {
    run_.fabric.start_sum(stage(), replica_.replica, 0, {});
    block_([&](Wait& wait) {
      BucketSum none;
      return run_.fabric.finish_sum(stage(), replica_.replica, 0, none, wait);
    });
  };
  device_sum_ = std::make_unique<DeviceSum>(*exchange, device(), std::move(shapes), grouping, meet);
}

void StageRun::start_gather(size_t bucket) {
  if (device_sum_) return;
  const size_t first = first_weight(bucket);
  const size_t count = bucket_ends_[bucket] - first;
  Tensors places = replica_.weights.places(first, count);
  if (!device().is_host()) {
    // In the memory of the host, where the shares of others come, too.
    Tensors own;
    for (size_t k = 0; k < count; ++k)
      own.push_back(replica_.weights.own_part(first + k, places[k]));
    own = device().to_host(std::move(own));
    gathered_.resize(bucket_ends_.size());
    Tensors& here = gathered_[bucket];
    for (size_t k = here.size(); k < count; ++k) here.push_back(device().host_like(places[k]));
    for (size_t k = 0; k < count; ++k) replica_.weights.own_part(first + k, here[k]).copy_(own[k]);
    places = here;
  }
  run_.fabric.start_gather(stage(), replica_.replica, bucket, std::move(places));
}

void StageRun::finish_gather(size_t bucket) {
  if (device_sum_)
    return device_sum_->gather(replica_.weights.places(0, bucket_ends_.back()), shares_);
  block_([&](Wait& wait) {
    return run_.fabric.finish_gather(stage(), replica_.replica, bucket, wait);
  });
  if (device().is_host()) return;
  const size_t first = first_weight(bucket);
  const Tensors places = replica_.weights.places(first, bucket_ends_[bucket] - first);
  for (size_t k = 0; k < places.size(); ++k)
    device().compute().copy(places[k], gathered_[bucket][k]);
}

void StageRun::step_share() {
  for (size_t bucket = 0; bucket < bucket_ends_.size(); ++bucket) {
    const size_t first = first_weight(bucket);
    const size_t count = bucket_ends_[bucket] - first;
    if (sums_are_due_)
      replica_.weights.step_weights(first, finish_sum(bucket));
    else
      replica_.weights.step_weights(first, TensorSpan(*ready_).subspan(first, count));
    start_gather(bucket);
  }
  next_bucket_ = 0;
  if (!std::exchange(sums_are_due_, false)) complete();
  ready_.reset();
}

void StageRun::step(const Action& action) {
  const model::StepContext context = step_context(action.version.value);
  if (replica_.shares_state) {
    replica_.weights.begin_step(context);
    step_share();
  } else if (sums_are_due_) {
    sums_are_due_ = false;
    replica_.weights.begin_step(context);
    next_bucket_ = 0;
  } else {
    make_ready(action.mini_batch);
    if (run_.sums_updates && is_replicated()) {
      replica_.weights.begin_step(context);
      replica_.weights.add_weights(0, *ready_);
    } else {
      replica_.weights.step(*ready_, context);
    }
    ready_.reset();
  }
  peak_versions_ = std::max(peak_versions_, replica_.weights.num_versions());
}

}  // namespace penstock::runtime

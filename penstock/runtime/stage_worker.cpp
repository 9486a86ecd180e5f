#include "penstock/runtime/stage_worker.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <new>

#include "penstock/schedule/text_format.h"
#include "penstock/util/check.h"

namespace penstock::runtime {

using schedule::Action;
using schedule::Op;

namespace {

using Clock = std::chrono::steady_clock;

/// Another worker has failed: leave quietly.
struct Aborted {};

int64_t ns_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(to - from).count();
}

/// Tensors enter a stage as leaves of its own autograd graph.
at::Tensor as_input(const at::Tensor& tensor, bool training) {
  if (!tensor.defined()) return tensor;
  at::Tensor leaf = tensor.detach();
  if (training && leaf.is_floating_point()) leaf.requires_grad_(true);
  return leaf;
}

}  // namespace

StageWorker::StageWorker(Replica& replica, RunState& run, const PipelineOptions& options, int64_t steps_before)
    : replica_(replica),
      run_(run),
      options_(options),
      steps_before_(steps_before),
      gradients_(replica.module->weight_offsets().back()),
      forward_links_(static_cast<int64_t>(replica.module->target_stages().size())),
      backward_links_(static_cast<int64_t>(replica.module->source_stages().size())) {}

void StageWorker::run() noexcept {
  const Action* current = nullptr;
  const auto describe = [&](const char* what) {
    const std::string place = current == nullptr ? "start" : schedule::to_text(*current);
    run_.board.set(replica_.worker, StatusBoard::State::Failed);
    return fmt::format("worker {} (stage {}) failed in {}: {}", replica_.worker.value, replica_.module->stage().value, place, what);
  };
  try {
    at::get_num_threads();  // libtorch initialises each thread lazily, and would undo the next line at the first parallel loop
    at::set_num_threads(options_.threads_per_worker);
    const std::vector<Action>& actions = run_.schedule.workers[replica_.worker.index()];
    const auto max_events = static_cast<size_t>(std::max<int64_t>(run_.options.max_timeline_events, 0));
    events_.reserve(std::min(actions.size(), max_events));
    for (const Action& action : actions) {
      if (!enter(action.mini_batch)) continue;
      current = &action;
      waiting_ns_ = 0;
      const Clock::time_point start = Clock::now();
      run_.board.set(replica_.worker, StatusBoard::State::Computing, action);
      execute(action);
      total_waiting_ns_ += waiting_ns_;
      if (events_.size() < max_events) {
        events_.push_back({action, ns_between(Clock::time_point{}, start), ns_between(Clock::time_point{}, Clock::now()), waiting_ns_});
      }
    }
    run_.board.set(replica_.worker, StatusBoard::State::Done);
  } catch (const Aborted&) {
    run_.board.set(replica_.worker, StatusBoard::State::Done);
  } catch (const TimeoutError&) {
    run_.fail(std::current_exception());
  } catch (const InternalError&) {
    run_.fail(std::current_exception());
  } catch (const c10::Error& error) {
    run_.fail(std::make_exception_ptr(RuntimeError(describe(error.what_without_backtrace()))));
  } catch (const std::bad_alloc&) {
    run_.fail(std::make_exception_ptr(RuntimeError(describe("out of memory"))));
  } catch (const std::exception& error) {
    run_.fail(std::make_exception_ptr(RuntimeError(describe(error.what()))));
  } catch (...) {
    run_.fail(std::make_exception_ptr(RuntimeError(describe("unknown exception"))));
  }
}

bool StageWorker::enter(MiniBatchId mini_batch) {
  if (mini_batch.value <= last_entered_) return true;
  if (!run_.gate.enter(mini_batch)) return false;
  last_entered_ = mini_batch.value;
  return true;
}

void StageWorker::execute(const Action& action) {
  switch (action.op) {
    case Op::Forward:
      return forward(action);
    case Op::Backward:
      return backward(action);
    case Op::SendForward:
    case Op::SendBackward:
      return send(action);
    case Op::RecvForward:
    case Op::RecvBackward:
      return receive(action);
    case Op::SyncGradients:
      return sync(action);
    case Op::Step:
      return step(action);
    case Op::FreeWeights:
      return replica_.weights.release(action.version);
  }
  PENSTOCK_CHECK(false, "unknown action");
}

StageWorker::InFlight& StageWorker::in_flight(MicroBatchId micro_batch) {
  const auto [entry, inserted] = in_flight_.try_emplace(micro_batch);
  if (inserted) {
    entry->second.inputs.resize(replica_.module->inputs().size());
    entry->second.output_grads.resize(replica_.module->outputs().size());
    entry->second.pending_sends = run_.training ? backward_links_ : forward_links_;
    entry->second.pending_forward_sends = forward_links_;
  }
  return entry->second;
}

void StageWorker::drop_if_done(MicroBatchId micro_batch) {
  const auto found = in_flight_.find(micro_batch);
  if (found != in_flight_.end() && found->second.pending_sends == 0) in_flight_.erase(found);
}

void StageWorker::forward(const Action& action) {
  InFlight& record = in_flight(action.micro_batch);
  const auto& wanted = replica_.module->inputs();
  if (!wanted.empty() && wanted.front().is_model_input()) {
    const model::Tensors batch = run_.source.inputs(action.micro_batch);
    for (size_t i = 0; i < wanted.size() && wanted[i].is_model_input(); ++i)
      record.inputs[i] = batch.at(static_cast<size_t>(wanted[i].output));
  }
  if (run_.training) {
    // The backward of an earlier micro-batch may still need the buffers as they were: like weights, they are replaced, not overwritten.
    const at::NoGradGuard no_grad;
    for (at::Tensor& buffer : replica_.buffers) buffer = buffer.clone();
  }
  compute_outputs(action, record, replica_.buffers, run_.training && !replica_.recompute);
  if (!replica_.module->model_outputs().empty()) {
    model::LossResult loss = loss_of(action, record);
    if (run_.training && !replica_.recompute) record.loss = std::move(loss.scaled_loss);
    run_.losses.add(action.mini_batch, {loss.loss_sum, loss.correct, run_.source.samples(action.micro_batch)});
  }
  if (!run_.training) {
    record.inputs.clear();
    drop_if_done(action.micro_batch);
  } else if (replica_.recompute && record.pending_forward_sends == 0) {
    record.outputs.clear();
  }
}

void StageWorker::compute_outputs(const Action& action, InFlight& record, model::MutableTensorSpan buffers, bool with_graph) {
  const at::AutoGradMode grad_mode(with_graph);
  const model::ForwardContext context{.training = run_.training, .seed = run_.source.seed(action.micro_batch)};
  record.outputs = replica_.module->forward(replica_.weights.at(action.version), buffers, record.inputs, context);
}

model::LossResult StageWorker::loss_of(const Action& action, const InFlight& record) const {
  const at::Tensor& logits = record.outputs[replica_.module->model_outputs().front()];
  return model::cross_entropy(logits, run_.source.targets(action.micro_batch), run_.source.mini_batch_samples(action.mini_batch));
}

void StageWorker::recompute(const Action& action, InFlight& record) {
  // Running statistics have seen this micro-batch already.
  model::Tensors buffers;
  for (const at::Tensor& buffer : replica_.buffers) buffers.push_back(buffer.clone());
  compute_outputs(action, record, buffers, /*with_graph=*/true);
  if (!replica_.module->model_outputs().empty()) record.loss = loss_of(action, record).scaled_loss;
}

void StageWorker::backward(const Action& action) {
  InFlight& record = in_flight(action.micro_batch);
  if (replica_.recompute) recompute(action, record);
  const model::Tensors& weights = replica_.weights.at(action.version);
  model::Tensors roots;
  model::Tensors root_grads;
  if (record.loss.defined() && record.loss.requires_grad()) {
    roots.push_back(std::move(record.loss));
    root_grads.emplace_back();
  }
  for (size_t i = 0; i < record.outputs.size(); ++i) {
    if (!record.output_grads[i].defined() || !record.outputs[i].requires_grad()) continue;
    roots.push_back(record.outputs[i]);
    root_grads.push_back(record.output_grads[i]);
  }
  model::Tensors wanted(weights.begin(), weights.end());
  std::vector<size_t> input_positions;
  for (size_t i = 0; i < record.inputs.size(); ++i) {
    if (!record.inputs[i].defined() || !record.inputs[i].requires_grad()) continue;
    wanted.push_back(record.inputs[i]);
    input_positions.push_back(i);
  }
  record.outputs.clear();
  record.output_grads.clear();
  model::Tensors grads(wanted.size());
  if (!roots.empty() && !wanted.empty()) {
    grads = torch::autograd::grad(roots, wanted, root_grads, /*retain_graph=*/{}, /*create_graph=*/false, /*allow_unused=*/true);
  }
  record.input_grads.resize(record.inputs.size());
  for (size_t k = 0; k < input_positions.size(); ++k) record.input_grads[input_positions[k]] = std::move(grads[weights.size() + k]);
  record.inputs.clear();
  grads.resize(weights.size());
  gradients_.add(std::move(grads));
  drop_if_done(action.micro_batch);
}

template <class Wait>
void StageWorker::wait(const Action& action, Wait&& call) {
  run_.board.set(replica_.worker, StatusBoard::State::Waiting, action);
  const Clock::time_point start = Clock::now();
  const WaitResult result = call(start + options_.deadline);
  waiting_ns_ += ns_between(start, Clock::now());
  finish_wait(action, result);
}

void StageWorker::finish_wait(const Action& action, WaitResult result) {
  if (result == WaitResult::Closed) throw Aborted{};
  if (result == WaitResult::TimedOut) {
    throw TimeoutError(fmt::format("worker {} waited longer than {:.1f} s in {}; the workers are:{}", replica_.worker.value,
                                   std::chrono::duration<double>(options_.deadline).count(), schedule::to_text(action),
                                   run_.board.report()));
  }
  run_.board.set(replica_.worker, StatusBoard::State::Computing, action);
}

void StageWorker::send(const Action& action) {
  const bool is_backward = action.op == Op::SendBackward;
  InFlight& record = in_flight(action.micro_batch);
  model::Tensors tensors;
  if (is_backward) {
    for (const size_t i : replica_.module->inputs_from(action.peer)) tensors.push_back(std::move(record.input_grads[i]));
  } else {
    for (const size_t i : replica_.module->outputs_to(action.peer)) tensors.push_back(record.outputs[i].detach());
    if (--record.pending_forward_sends == 0 && replica_.recompute) record.outputs.clear();
  }
  if (is_backward || !run_.training) {
    --record.pending_sends;
    drop_if_done(action.micro_batch);
  }
  const WorkerId to = run_.schedule.shape.worker_of(action.peer, action.micro_batch);
  const MessageName name{action.stage, action.peer, action.micro_batch};
  wait(action, [&](CondVar::Deadline deadline) {
    return run_.exchange.send(replica_.worker, to, is_backward, name, std::move(tensors), deadline);
  });
}

void StageWorker::receive(const Action& action) {
  const bool is_backward = action.op == Op::RecvBackward;
  const WorkerId from = run_.schedule.shape.worker_of(action.peer, action.micro_batch);
  const MessageName name{action.peer, action.stage, action.micro_batch};
  model::Tensors tensors;
  wait(action,
       [&](CondVar::Deadline deadline) { return run_.exchange.receive(from, replica_.worker, is_backward, name, tensors, deadline); });
  InFlight& record = in_flight(action.micro_batch);
  if (is_backward) {
    const auto& positions = replica_.module->outputs_to(action.peer);
    for (size_t k = 0; k < positions.size(); ++k) {
      at::Tensor& sum = record.output_grads[positions[k]];
      // Not in place: the tensor is shared with the worker that sent it.
      if (tensors[k].defined()) sum = sum.defined() ? sum + tensors[k] : tensors[k];
    }
  } else {
    const auto& positions = replica_.module->inputs_from(action.peer);
    for (size_t k = 0; k < positions.size(); ++k) record.inputs[positions[k]] = as_input(tensors[k], run_.training);
  }
}

void StageWorker::sync(const Action& action) {
  synced_ = gradients_.take_exclusive();
  has_synced_ = true;
  SharedReduce& reduce = *run_.reduces[action.stage.index()];
  run_.board.set(replica_.worker, StatusBoard::State::Waiting, action);
  finish_wait(action, reduce.run(replica_.replica, synced_, Clock::now() + options_.deadline, waiting_ns_));
}

void StageWorker::step(const Action& action) {
  const model::Tensors gradients = has_synced_ ? std::move(synced_) : gradients_.take();
  has_synced_ = false;
  const int64_t number = steps_before_ + action.version.value;
  replica_.weights.step(gradients, {.learning_rate = run_.options.learning_rate(number), .step = number + 1});
  peak_versions_ = std::max(peak_versions_, replica_.weights.num_versions());
}

}  // namespace penstock::runtime

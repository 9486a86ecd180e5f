#include "penstock/runtime/stage_worker.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>

#include "penstock/model/device/tensor_memory.h"
#include "penstock/runtime/fabric/gradient_norm.h"
#include "penstock/runtime/worker_failure.h"
#include "penstock/schedule/formats/text_format.h"
#include "penstock/util/check.h"
#include "penstock/util/process/core_needs.h"

namespace penstock::runtime {

using schedule::Action;
using schedule::Op;

namespace {

/// What is left of the memory that an action takes.
MemoryKind kept_by(Op op) {
  switch (op) {
    case Op::Forward:
    case Op::BackwardInput:  // what W needs
    case Op::Recompute:
    case Op::Offload:
    case Op::Load:
      return MemoryKind::Activations;
    case Op::Backward:
    case Op::BackwardWeight:
    case Op::SyncGradients:
    case Op::NormGradients:
      return MemoryKind::Gradients;
    case Op::SendForward:
    case Op::RecvForward:
    case Op::SendBackward:
    case Op::RecvBackward:
      return MemoryKind::Messages;
    case Op::Step:
    case Op::FreeWeights:
      return MemoryKind::Weights;
  }
  return MemoryKind::Other;
}

void are_messages(const model::Tensors& tensors) {
  for (const at::Tensor& tensor : tensors) model::set_memory_kind(tensor, MemoryKind::Messages);
}

}  // namespace

StageWorker::StageWorker(WorkerId worker, const std::vector<Replica*>& held, const Run& run,
                         Fabric& fabric, const WorkerOptions& options)
    : worker_(worker),
      run_(run),
      fabric_(fabric),
      options_(options),
      device_(held.front()->device),
      timeline_(worker, run, *device_) {
  if (!run.loss_versions.empty()) loss_scale_.emplace(run.loss_scale);
  const Blocking block = [this](const std::function<WaitResult(Wait&)>& call) { wait(call); };
  for (Replica* replica : held)
    stages_.push_back(std::make_unique<StageRun>(*replica, run, fabric, block, loss_scale()));
  if (run.request.endless != nullptr)
    endless_.emplace(worker, run, fabric, stages_.front()->module(), timeline_, block);
  out_of_memory_ = std::make_exception_ptr(
      RuntimeError(fmt::format("worker {} failed: out of memory", worker.value)));
}

int64_t StageWorker::peak_versions() const {
  int64_t most = 0;
  for (const auto& stage : stages_) most = std::max(most, stage->peak_versions());
  return most;
}

std::vector<schedule::SumEvent> StageWorker::sum_events() const {
  std::vector<schedule::SumEvent> events;
  for (const auto& stage : stages_) {
    const std::vector<schedule::SumEvent> own = stage->sums().events();
    events.insert(events.end(), own.begin(), own.end());
  }
  std::sort(events.begin(), events.end(),
            [](const auto& a, const auto& b) { return a.end_ns < b.end_ns; });
  for (size_t e = 1; e < events.size(); ++e)
    events[e].start_ns = std::max(events[e].start_ns, events[e - 1].end_ns);
  return events;
}

void StageWorker::run() noexcept {
  try {
    run_actions();
    complete_ = true;
    fabric_.board().set(worker_, StatusBoard::State::Done);
  } catch (const Aborted&) {
    fabric_.board().set(worker_, StatusBoard::State::Done);
  } catch (...) {
    fabric_.board().set(worker_, StatusBoard::State::Failed);
    try {
      failure_ = failure_of(worker_, run_, *device_, current_);
    } catch (...) {  // no memory is left for a description
      failure_ = out_of_memory_;
    }
    fabric_.fail(failure_);
  }
}

void StageWorker::run_actions() {
  // libtorch initialises each thread lazily, at the first parallel loop, and would undo the next
  // line
  at::get_num_threads();
  at::set_num_threads(options_.threads);
  const CoreNeed need(CoreNeed::Kind::Thread, options_.threads);
  const auto scope = device_->compute().enter();
  const model::MemoryOwner owner(worker_);
  for (const auto& held : stages_) held->claim_memory();
  timeline_.start();
  if (endless_) {
    current_ = &endless_->action();
    while (endless_->next()) run_action(endless_->action());
  } else {
    run_list(run_.schedule().workers[worker_.index()]);
  }
  timeline_.begin_rest();
  for (const auto& held : stages_) held->sums().complete();
  for (const auto& held : stages_) held->sums().catch_up();
  for (const auto& held : stages_) held->losses().report(/*all=*/true);
  // Also, what the device still does may fail.
  if (!device_->is_host()) device_->compute().synchronize();
  device_->drop_copied();
  timeline_.finish();
}

void StageWorker::run_list(const std::vector<Action>& actions) {
  for (size_t i = 0; i < actions.size(); ++i) {
    if (!enter(actions[i].mini_batch)) continue;
    if (makes_weight_gradients(actions[i].op)) expect_step(actions, i);
    run_action(actions[i]);
    if (!device_->is_host()) prefetch_after(actions, i);
  }
}

void StageWorker::expect_step(const std::vector<Action>& actions, size_t place) {
  std::vector<WeightVersion> freed;
  for (size_t i = place + 1; i < actions.size(); ++i) {
    const Action& next = actions[i];
    // NORM is the worker's, and reads the gradients of all its stages.
    if (next.op == Op::NormGradients) return;
    if (next.stage != actions[place].stage || is_message(next.op) || next.op == Op::SyncGradients)
      continue;
    if (next.op == Op::Step) return stage(next.stage).expect_step(next, std::move(freed));
    if (next.op != Op::FreeWeights) return;
    freed.push_back(next.version);
  }
}

void StageWorker::prefetch_after(const std::vector<Action>& actions, size_t place) {
  if (actions[place].op != Op::Forward) return;
  for (size_t i = place + 1; i < actions.size(); ++i) {
    if (actions[i].op != Op::Forward || actions[i].stage != actions[place].stage) continue;
    // One of a later mini-batch may never be begun.
    if (actions[i].mini_batch.value <= last_entered_)
      stage(actions[i].stage).prefetch(actions[i].micro_batch);
    return;
  }
}

void StageWorker::run_action(const Action& action) {
  current_ = &action;
  fabric_.board().set(worker_, StatusBoard::State::Computing, action);
  timeline_.begin(action);
  execute(action);
  timeline_.end();
  if (!device_->is_host()) {
    // The loss of a stream's frame is known before the worker waits for the next one, and while the
    // device still has the backward pass to make.
    const bool knows_loss = endless_ && action.op == Op::Step;
    for (const auto& held : stages_) held->losses().report(/*all=*/knows_loss);
  }
  if (action.op == Op::Step && run_.options().on_step)
    run_.options().on_step(action.stage, action.mini_batch);
  timeline_.keep_done();
}

bool StageWorker::enter(MiniBatchId mini_batch) {
  if (mini_batch.value <= last_entered_) return true;
  if (!fabric_.begin(worker_, mini_batch)) return false;
  last_entered_ = mini_batch.value;
  return true;
}

StageRun& StageWorker::stage(StageId id) {
  for (const auto& held : stages_) {
    if (held->stage() == id) return *held;
  }
  PENSTOCK_CHECK(false, "worker", worker_, "does not hold stage", id);
}

void StageWorker::execute(const Action& action) {
  StageRun& held = stage(action.stage);
  const model::MemoryPass pass(kept_by(action.op));
  switch (action.op) {
    case Op::Forward:
      held.forward(action);
      return hand_over_outputs(action, held);
    case Op::Backward:
      held.backward(action);
      return hand_over_gradients(action, held);
    case Op::BackwardInput:
      held.backward_inputs(action);
      return hand_over_gradients(action, held);
    case Op::BackwardWeight:
      return held.backward_weights(action);
    case Op::Recompute:
      return held.recompute(action);
    case Op::Offload:
      if (leaving_ != nullptr) leaving_->drop();
      leaving_ = held.offload(action);
      return;
    case Op::Load:
      return held.load(action);
    case Op::SendForward:
    case Op::SendBackward:
      return send(action);
    case Op::RecvForward:
    case Op::RecvBackward:
      return receive(action);
    case Op::SyncGradients:
      return held.sums().sync(action);
    case Op::NormGradients:
      return norm(action);
    case Op::Step:
      return held.step(action);
    case Op::FreeWeights:
      return held.free_weights(action);
  }
  PENSTOCK_CHECK(false, "unknown action");
}

void StageWorker::hand_over_outputs(const Action& action, StageRun& from) {
  if (stages_.size() == 1) return;
  for (const StageId to : from.module().target_stages()) {
    if (run_.table.worker_of(to, action.micro_batch) != worker_) continue;
    const Message message{.from = from.stage(), .to = to, .micro_batch = action.micro_batch};
    stage(to).take_inputs(action.micro_batch, from.stage(),
                          handed_over(message, from.give_outputs(action.micro_batch, to)));
  }
}

void StageWorker::hand_over_gradients(const Action& action, StageRun& from) {
  if (stages_.size() == 1) return;
  for (const StageId to : from.module().source_stages()) {
    if (run_.table.worker_of(to, action.micro_batch) != worker_) continue;
    const Message message{
        .backward = true, .from = from.stage(), .to = to, .micro_batch = action.micro_batch};
    stage(to).take_gradients(action.micro_batch, from.stage(),
                             handed_over(message, from.give_gradients(action.micro_batch, to)));
  }
}

model::Tensors StageWorker::handed_over(const Message& message, model::Tensors tensors) {
  if (!run_.codings.codes(message)) return tensors;
  return decoded(message, coded(message, std::move(tensors)));
}

model::Tensors StageWorker::coded(const Message& message, model::Tensors tensors) {
  tensors = device_->to_host(std::move(tensors));
  const auto scope = device_->enter_host();
  return run_.codings.encode(message, std::move(tensors));
}

model::Tensors StageWorker::decoded(const Message& message, model::Tensors tensors) {
  const model::MemoryScope memory(MemoryKind::Messages);
  {
    const auto scope = device_->enter_host();
    tensors = run_.codings.decode(message, std::move(tensors));
  }
  return device_->to_device(std::move(tensors));
}

void StageWorker::wait(const std::function<WaitResult(Wait&)>& call) {
  const Action& action = *current_;
  fabric_.board().set(worker_, StatusBoard::State::Waiting, action);
  Wait limits = wait_for(options_.deadline);
  const WaitResult result = call(limits);
  timeline_.waited(limits.waited_ns);
  if (result == WaitResult::Closed) throw Aborted{};
  if (result == WaitResult::TimedOut) {
    const schedule::TeamPlaces places(run_.schedule().shape.teams);
    throw TimeoutError(
        fmt::format("worker {} waited longer than {:.1f} s in {}; the workers are:{}",
                    worker_.value, std::chrono::duration<double>(options_.deadline).count(),
                    schedule::to_text(in_plan(places, action)), fabric_.who_waits()));
  }
  fabric_.board().set(worker_, StatusBoard::State::Computing, action);
}

void StageWorker::send(const Action& action) {
  const bool is_backward = action.op == Op::SendBackward;
  StageRun& from = stage(action.stage);
  model::Tensors tensors = is_backward ? from.give_gradients(action.micro_batch, action.peer)
                                       : from.give_outputs(action.micro_batch, action.peer);
  const Message message = message_of(action);
  if (run_.codings.codes(message)) {
    tensors = coded(message, std::move(tensors));
  } else {
    const WorkerId receiver = run_.table.worker_of(message.to, message.micro_batch);
    tensors = run_.devices.leave(message, receiver, std::move(tensors), *device_);
  }
  // Outputs are activations, too, and stay them.
  if (is_backward) are_messages(tensors);
  wait([&](Wait& limits) { return fabric_.send(message, std::move(tensors), limits); });
}

void StageWorker::receive(const Action& action) {
  const bool is_backward = action.op == Op::RecvBackward;
  const Message message = message_of(action);
  model::Tensors tensors;
  wait([&](Wait& limits) { return fabric_.receive(message, tensors, limits); });
  tensors = run_.codings.codes(message)
                ? decoded(message, std::move(tensors))
                : run_.devices.arrive(message, std::move(tensors), *device_);
  are_messages(tensors);
  if (endless_ && !is_backward && !tensors.front().defined())
    return endless_->end_before(action.micro_batch);
  if (is_backward)
    stage(action.stage).take_gradients(action.micro_batch, action.peer, std::move(tensors));
  else
    stage(action.stage).take_inputs(action.micro_batch, action.peer, std::move(tensors));
}

void StageWorker::norm(const Action& action) {
  NormShare share{.worker = worker_, .mini_batch = action.mini_batch};
  for (const auto& held : stages_) held->norm().contribute(action.mini_batch, share);
  NormTotals totals;
  wait([&](Wait& limits) { return fabric_.combine(std::move(share), totals, limits); });
  for (const auto& held : stages_) held->norm().take_tied_sums(action.mini_batch, totals);
  totals.tied_sums.clear();
  if (loss_scale_ && !loss_scale_->take(totals.norm)) {
    for (const auto& held : stages_) held->norm().skip_step(action.mini_batch);
    return;
  }
  const double factor = clip_factor(totals.norm, run_.options().max_grad_norm);
  if (factor == 1) return;
  for (const auto& held : stages_) held->norm().scale_gradients(action.mini_batch, factor);
}

}  // namespace penstock::runtime

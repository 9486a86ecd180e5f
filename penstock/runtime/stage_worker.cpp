#include "penstock/runtime/stage_worker.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <new>

#include "penstock/runtime/fabric/gradient_norm.h"
#include "penstock/schedule/formats/text_format.h"
#include "penstock/util/check.h"
#include "penstock/util/process/core_needs.h"
#include "penstock/util/text/units.h"

namespace penstock::runtime {

using schedule::Action;
using schedule::Op;

namespace {

using Clock = std::chrono::steady_clock;

/// "the forward pass of micro-batch 3 (0F3@3)".
std::string in_words(const Action& action) {
  const auto of_micro_batch = [&](std::string_view what) {
    return fmt::format("{} of micro-batch {} ({})", what, action.micro_batch.value,
                       schedule::to_text(action));
  };
  switch (action.op) {
    case Op::Forward:
      return of_micro_batch("the forward pass");
    case Op::Backward:
      return of_micro_batch("the backward pass");
    case Op::BackwardInput:
      return of_micro_batch("the backward pass to the inputs");
    case Op::BackwardWeight:
      return of_micro_batch("the backward pass to the weights");
    case Op::Recompute:
      return of_micro_batch("the repeated forward pass");
    case Op::Step:
      return fmt::format("the optimiser step {}", schedule::to_text(action));
    default:
      return schedule::to_text(action);
  }
}

/// By how many forwards the host may be ahead of a GPU: each has inputs and messages in its memory.
constexpr size_t kMostAhead = 4;
/// Of a stream, whose next frame is not taken before there is time for it.
constexpr size_t kMostAheadOfStream = 1;

/// Another worker has failed: end without an error of our own.
struct Aborted {};

int64_t ns_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(to - from).count();
}

}  // namespace

StageWorker::StageWorker(WorkerId worker, const std::vector<Replica*>& held, const Run& run,
                         Fabric& fabric, const WorkerOptions& options)
    : worker_(worker),
      run_(run),
      fabric_(fabric),
      options_(options),
      max_events_(static_cast<size_t>(std::max<int64_t>(run.options().max_timeline_events, 0))),
      device_(held.front()->device) {
  if (!run.loss_versions.empty()) loss_scale_.emplace(run.loss_scale);
  for (Replica* replica : held) {
    stages_.push_back(std::make_unique<StageRun>(
        *replica, run, fabric, [this](const std::function<WaitResult(Wait&)>& call) { wait(call); },
        loss_scale()));
  }
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
      failure_ = failure_in(current_);
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
  if (!device_->is_host()) device_timeline_.emplace(device_->compute());
  if (run_.request.endless != nullptr) {
    run_endless();
  } else {
    const std::vector<Action>& actions = run_.schedule().workers[worker_.index()];
    events_.reserve(std::min(actions.size(), max_events_));
    for (size_t i = 0; i < actions.size(); ++i) {
      if (!enter(actions[i].mini_batch)) continue;
      run_action(actions[i]);
      if (!device_->is_host()) prefetch_after(actions, i);
    }
  }
  waiting_ns_ = 0;
  for (const auto& held : stages_) held->sums().complete();
  for (const auto& held : stages_) held->sums().catch_up();
  for (const auto& held : stages_) held->losses().report(/*all=*/true);
  total_waiting_ns_ += waiting_ns_;
  if (!device_timeline_) return;
  // Also, what the device still does may fail.
  device_->compute().synchronize();
  device_->drop_copied();
  device_timeline_->take([this](const auto& event) { keep(event); }, /*all=*/true);
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

void StageWorker::keep_pace() {
  const size_t most = run_.request.endless != nullptr ? kMostAheadOfStream : kMostAhead;
  if (forwards_.size() >= most) {
    if (forwards_.front()) forwards_.front()->wait_on_host();
    forwards_.pop_front();
  }
}

void StageWorker::keep(const schedule::TimelineEvent& event) {
  if (device_timeline_) total_waiting_ns_ += event.waiting_ns;
  if (events_.size() < max_events_) events_.push_back(event);
  if (run_.options().on_action) run_.options().on_action(worker_, event);
}

void StageWorker::run_action(const Action& action) {
  current_ = &action;
  waiting_ns_ = 0;
  const Clock::time_point start = Clock::now();
  fabric_.board().set(worker_, StatusBoard::State::Computing, action);
  if (device_timeline_) {
    if (action.op == Op::Forward) keep_pace();
    const bool keeps = events_.size() < max_events_ || run_.options().on_action;
    if (keeps) device_timeline_->begin(action);
    execute(action);
    if (keeps) device_timeline_->end(action.op == Op::RecvForward || action.op == Op::RecvBackward);
    if (action.op == Op::Forward) forwards_.push_back(device_->compute().record());
    // The loss of a stream's frame is known before the worker waits for the next one, and while the
    // device still has the backward pass to make.
    const bool knows_loss = run_.request.endless != nullptr && action.op == Op::Step;
    for (const auto& held : stages_) held->losses().report(/*all=*/knows_loss);
    say_step(action);
    device_timeline_->take([this](const auto& event) { keep(event); }, /*all=*/false);
    return;
  }
  execute(action);
  total_waiting_ns_ += waiting_ns_;
  const Clock::time_point end = Clock::now();
  say_step(action);
  if (events_.size() >= max_events_ && !run_.options().on_action) return;
  keep({action, ns_between(Clock::time_point{}, start), ns_between(Clock::time_point{}, end),
        waiting_ns_});
}

void StageWorker::say_step(const Action& action) const {
  if (action.op == Op::Step && run_.options().on_step)
    run_.options().on_step(action.stage, action.mini_batch);
}

void StageWorker::run_endless() {
  schedule::LazySchedule::Cursor cursor = run_.request.endless->cursor(worker_);
  current_ = &next_;
  while (run_.request.endless->next(cursor, next_)) {
    if (takes_part(next_)) {
      run_action(next_);
    } else if (makes_weight_gradients(next_.op)) {
      return;  // they come in the order of the micro-batches
    }
  }
}

bool StageWorker::takes_part(const Action& action) {
  const int64_t number = action.mini_batch.value;
  // The message that says so has to be taken from every source.
  if (number >= end_) return number == end_ && action.op == Op::RecvForward;
  if (number <= last_entered_ || !stages_.front()->module().source_stages().empty()) return true;
  if (device_timeline_) keep_pace();
  if (!next_is_there(action.micro_batch)) {
    end_before(action.micro_batch);
    return false;
  }
  last_entered_ = number;
  return true;
}

bool StageWorker::next_is_there(MicroBatchId micro_batch) {
  fabric_.board().set(worker_, StatusBoard::State::Waiting, *current_);
  for (;;) {
    if (fabric_.failed()) throw Aborted{};
    if (run_.options().stop != nullptr && run_.options().stop->load(std::memory_order_relaxed))
      return false;
    const BatchSource::Next next = run_.request.stream->next(micro_batch);
    if (next == BatchSource::Next::Ended) return false;
    if (next == BatchSource::Next::Ready)
      return fabric_.begin(worker_, MiniBatchId{micro_batch.value});
  }
}

void StageWorker::end_before(MicroBatchId micro_batch) {
  if (end_ <= micro_batch.value) return;
  end_ = micro_batch.value;
  const StageModule& module = stages_.front()->module();
  for (const StageId to : module.target_stages()) {
    const Message message{false, module.stage(), to, micro_batch};
    model::Tensors none(module.outputs_to(to).size());
    wait([&](Wait& limits) { return fabric_.send(message, std::move(none), limits); });
  }
}

std::exception_ptr StageWorker::failure_in(const Action* action) {
  const auto described = [&](const char* what) {
    const std::string place = action == nullptr ? "start" : in_words(*action);
    const StageId stage = action == nullptr ? stages_.front()->stage() : action->stage;
    return std::make_exception_ptr(RuntimeError(fmt::format(
        "worker {} (stage {}) failed in {}: {}", worker_.value, stage.value, place, what)));
  };
  try {
    throw;
  } catch (const TimeoutError&) {
    return std::current_exception();
  } catch (const InternalError&) {
    return std::current_exception();
  } catch (const c10::Error& error) {
    if (model::is_out_of_memory(error) && !device_->is_host())
      return described(out_of_device_memory().c_str());
    return described(error.what_without_backtrace());
  } catch (const std::bad_alloc&) {
    return described("out of memory");
  } catch (const std::exception& error) {
    return described(error.what());
  } catch (...) {
    return described("unknown exception");
  }
}

std::string StageWorker::out_of_device_memory() const {
  const at::Device device = device_->device();
  const model::DeviceMemory memory = device_->devices().memory(device);
  std::string text = fmt::format("{} ({}) is out of memory: tensors take {} of {}", device.str(),
                                 device_->devices().name(device), format_bytes(memory.allocated),
                                 format_bytes(memory.total));
  if (worker_.index() >= run_.pipeline.planned_memory_bytes.size()) return text;
  int64_t others = 0;
  for (size_t w = 0; w < run_.pipeline.planned_memory_bytes.size(); ++w) {
    const WorkerId other{static_cast<int32_t>(w)};
    if (other != worker_ && run_.devices.holds(other) && run_.devices.of(other) == device)
      others += run_.pipeline.planned_memory_bytes[w];
  }
  text += fmt::format("; the plan predicted {} for this worker",
                      format_bytes(run_.pipeline.planned_memory_bytes[worker_.index()]));
  if (others > 0)
    text += fmt::format(" and {} for the others on this device", format_bytes(others));
  return text + "; smaller micro-batches, recomputation or more stages need less";
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
    stage(to).take_inputs(action.micro_batch, from.stage(),
                          from.give_outputs(action.micro_batch, to));
  }
}

void StageWorker::hand_over_gradients(const Action& action, StageRun& from) {
  if (stages_.size() == 1) return;
  for (const StageId to : from.module().source_stages()) {
    if (run_.table.worker_of(to, action.micro_batch) != worker_) continue;
    stage(to).take_gradients(action.micro_batch, from.stage(),
                             from.give_gradients(action.micro_batch, to));
  }
}

void StageWorker::wait(const std::function<WaitResult(Wait&)>& call) {
  const Action& action = *current_;
  fabric_.board().set(worker_, StatusBoard::State::Waiting, action);
  Wait limits = wait_for(options_.deadline);
  const WaitResult result = call(limits);
  waiting_ns_ += limits.waited_ns;
  if (result == WaitResult::Closed) throw Aborted{};
  if (result == WaitResult::TimedOut) {
    throw TimeoutError(
        fmt::format("worker {} waited longer than {:.1f} s in {}; the workers are:{}",
                    worker_.value, std::chrono::duration<double>(options_.deadline).count(),
                    schedule::to_text(action), fabric_.who_waits()));
  }
  fabric_.board().set(worker_, StatusBoard::State::Computing, action);
}

void StageWorker::send(const Action& action) {
  const bool is_backward = action.op == Op::SendBackward;
  StageRun& from = stage(action.stage);
  model::Tensors tensors = is_backward ? from.give_gradients(action.micro_batch, action.peer)
                                       : from.give_outputs(action.micro_batch, action.peer);
  const Message message = message_of(action);
  const WorkerId receiver = run_.table.worker_of(message.to, message.micro_batch);
  tensors = run_.devices.leave(message, receiver, std::move(tensors), *device_);
  wait([&](Wait& limits) { return fabric_.send(message, std::move(tensors), limits); });
}

void StageWorker::receive(const Action& action) {
  const bool is_backward = action.op == Op::RecvBackward;
  const Message message = message_of(action);
  model::Tensors tensors;
  wait([&](Wait& limits) { return fabric_.receive(message, tensors, limits); });
  tensors = run_.devices.arrive(message, std::move(tensors), *device_);
  if (run_.request.endless != nullptr && !is_backward && !tensors.front().defined())
    return end_before(action.micro_batch);
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

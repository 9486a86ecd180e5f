#include "penstock/runtime/stage_worker.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <new>

#include "penstock/schedule/formats/text_format.h"
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

}  // namespace

StageWorker::StageWorker(WorkerId worker, const std::vector<Replica*>& held, RunState& run,
                         const PipelineOptions& options, int64_t steps_before)
    : worker_(worker), run_(run), options_(options) {
  for (Replica* replica : held)
    stages_.push_back(std::make_unique<StageRun>(*replica, run, steps_before));
}

int64_t StageWorker::peak_versions() const {
  int64_t most = 0;
  for (const auto& stage : stages_) most = std::max(most, stage->peak_versions());
  return most;
}

void StageWorker::run() noexcept {
  const Action* current = nullptr;
  const auto describe = [&](const char* what) {
    const std::string place = current == nullptr ? "start" : schedule::to_text(*current);
    const StageId stage = current == nullptr ? stages_.front()->stage() : current->stage;
    run_.board.set(worker_, StatusBoard::State::Failed);
    return fmt::format("worker {} (stage {}) failed in {}: {}", worker_.value, stage.value, place,
                       what);
  };
  try {
    // libtorch initialises each thread lazily, and would undo the next line at the first parallel
    // loop
    at::get_num_threads();
    at::set_num_threads(options_.threads_per_worker);
    const std::vector<Action>& actions = run_.schedule.workers[worker_.index()];
    const auto max_events =
        static_cast<size_t>(std::max<int64_t>(run_.options.max_timeline_events, 0));
    events_.reserve(std::min(actions.size(), max_events));
    for (const Action& action : actions) {
      if (!enter(action.mini_batch)) continue;
      current = &action;
      waiting_ns_ = 0;
      const Clock::time_point start = Clock::now();
      run_.board.set(worker_, StatusBoard::State::Computing, action);
      execute(action);
      total_waiting_ns_ += waiting_ns_;
      if (events_.size() < max_events) {
        events_.push_back({action, ns_between(Clock::time_point{}, start),
                           ns_between(Clock::time_point{}, Clock::now()), waiting_ns_});
      }
    }
    run_.board.set(worker_, StatusBoard::State::Done);
  } catch (const Aborted&) {
    run_.board.set(worker_, StatusBoard::State::Done);
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
    case Op::SendForward:
    case Op::SendBackward:
      return send(action);
    case Op::RecvForward:
    case Op::RecvBackward:
      return receive(action);
    case Op::SyncGradients:
      return wait(action, [&](CondVar::Deadline deadline) {
        return held.sync(action, deadline, waiting_ns_);
      });
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

template <class Wait>
void StageWorker::wait(const Action& action, Wait&& call) {
  run_.board.set(worker_, StatusBoard::State::Waiting, action);
  const WaitResult result = call(Clock::now() + options_.deadline);
  if (result == WaitResult::Closed) throw Aborted{};
  if (result == WaitResult::TimedOut) {
    throw TimeoutError(
        fmt::format("worker {} waited longer than {:.1f} s in {}; the workers are:{}",
                    worker_.value, std::chrono::duration<double>(options_.deadline).count(),
                    schedule::to_text(action), run_.board.report()));
  }
  run_.board.set(worker_, StatusBoard::State::Computing, action);
}

void StageWorker::send(const Action& action) {
  const bool is_backward = action.op == Op::SendBackward;
  StageRun& from = stage(action.stage);
  model::Tensors tensors = is_backward ? from.give_gradients(action.micro_batch, action.peer)
                                       : from.give_outputs(action.micro_batch, action.peer);
  const WorkerId to = run_.table.worker_of(action.peer, action.micro_batch);
  const MessageName name{action.stage, action.peer, action.micro_batch};
  wait(action, [&](CondVar::Deadline deadline) {
    const Clock::time_point start = Clock::now();
    const WaitResult result =
        run_.exchange.send(worker_, to, is_backward, name, std::move(tensors), deadline);
    waiting_ns_ += ns_between(start, Clock::now());
    return result;
  });
}

void StageWorker::receive(const Action& action) {
  const bool is_backward = action.op == Op::RecvBackward;
  const WorkerId from = run_.table.worker_of(action.peer, action.micro_batch);
  const MessageName name{action.peer, action.stage, action.micro_batch};
  model::Tensors tensors;
  wait(action, [&](CondVar::Deadline deadline) {
    const Clock::time_point start = Clock::now();
    const WaitResult result =
        run_.exchange.receive(from, worker_, is_backward, name, tensors, deadline);
    waiting_ns_ += ns_between(start, Clock::now());
    return result;
  });
  if (is_backward)
    stage(action.stage).take_gradients(action.micro_batch, action.peer, std::move(tensors));
  else
    stage(action.stage).take_inputs(action.micro_batch, action.peer, std::move(tensors));
}

void StageWorker::norm(const Action& action) {
  GlobalGradients& global = *run_.global;
  const auto meet = [&] {
    wait(action, [&](CondVar::Deadline deadline) { return global.meet(deadline, waiting_ns_); });
  };
  if (global.has_ties()) {
    for (const auto& held : stages_) held->put_ties(action.mini_batch);
    meet();
    for (const auto& held : stages_) held->take_tied_sums();
  }
  for (const auto& held : stages_) held->put_squares(action.mini_batch);
  meet();
  for (const auto& held : stages_) held->drop_ties();
  const double norm = global.norm(action.mini_batch.value);
  if (worker_.value == 0) run_.losses.set_norm(action.mini_batch, norm);
  const double factor = clip_factor(norm, run_.options.max_grad_norm);
  if (factor == 1) return;
  for (const auto& held : stages_) held->scale_gradients(factor);
}

}  // namespace penstock::runtime

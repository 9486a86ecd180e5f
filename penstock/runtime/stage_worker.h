// One worker: walks its list of actions, for one or several stages, and moves tensors to other
// workers. Internal to runtime.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "penstock/runtime/endless_walk.h"
#include "penstock/runtime/stage_run.h"
#include "penstock/runtime/worker_timeline.h"

namespace penstock::runtime {

struct WorkerOptions {
  int threads = 1;                              ///< intra-op threads
  std::chrono::milliseconds deadline{300'000};  ///< for each wait
};

/// One run of one worker; runs in that worker's thread.
class StageWorker {
 public:
  /// `held`: what the worker holds, ascending by stage.
  StageWorker(WorkerId worker, const std::vector<Replica*>& held, const Run& run, Fabric& fabric,
              const WorkerOptions& options);

  /// Runs the whole list. Failures go to the fabric; never throws.
  void run() noexcept;

  // After run():
  /// Whether it came to its end: neither this worker nor another one has failed.
  bool complete() const { return complete_; }
  /// What went to the fabric; null: nothing.
  const std::exception_ptr& failure() const { return failure_; }
  WorkerId id() const { return worker_; }
  std::vector<schedule::TimelineEvent> take_events() { return timeline_.take_events(); }
  /// The sums that travelled while it computed, in the order in which they came. Several are on
  /// their way at a time; each has the time from the one before to its own end, or less.
  std::vector<schedule::SumEvent> sum_events() const;
  int64_t waiting_ns() const { return timeline_.waiting_ns(); }
  int64_t peak_versions() const;
  /// Null: the run scales no loss.
  const LossScale* loss_scale() const { return loss_scale_ ? &*loss_scale_ : nullptr; }

 private:
  void run_actions();
  void run_list(const std::vector<schedule::Action>& actions);
  bool enter(MiniBatchId mini_batch);
  /// Before the B or W at this place: its stage knows where STEP is the next that it has to do.
  void expect_step(const std::vector<schedule::Action>& actions, size_t place);
  /// Behind the action at this place: the inputs of the stage's next forward are on their way.
  void prefetch_after(const std::vector<schedule::Action>& actions, size_t place);
  void run_action(const schedule::Action& action);
  void execute(const schedule::Action& action);
  void send(const schedule::Action& action);
  void receive(const schedule::Action& action);
  void norm(const schedule::Action& action);
  /// Stages of this worker exchange tensors without messages.
  void hand_over_outputs(const schedule::Action& action, StageRun& from);
  void hand_over_gradients(const schedule::Action& action, StageRun& from);
  /// What a stage of this worker gets of another one.
  model::Tensors handed_over(const Message& message, model::Tensors tensors);
  /// Of a message that is coded: what travels of it, in the host's memory.
  model::Tensors coded(const Message& message, model::Tensors tensors);
  /// What has been received of one, on the device.
  model::Tensors decoded(const Message& message, model::Tensors tensors);

  StageRun& stage(StageId id);
  /// Runs a blocking call of the fabric, records its waiting time, and turns a failed result into
  /// an exception.
  void wait(const std::function<WaitResult(Wait&)>& call);

  WorkerId worker_;
  const Run& run_;
  Fabric& fabric_;
  WorkerOptions options_;
  std::optional<LossScale> loss_scale_;            ///< the stages refer to it
  std::vector<std::unique_ptr<StageRun>> stages_;  ///< ascending
  WorkerDevice* device_;                           ///< of its stages
  WorkerTimeline timeline_;
  std::optional<EndlessWalk> endless_;  ///< of an endless run; refers to the stages
  std::shared_ptr<HostStash> leaving_;  ///< by the last OFFLOAD
  int64_t last_entered_ = -1;           ///< the last mini-batch that was begun, of a finite run
  const schedule::Action* current_ = nullptr;
  bool complete_ = false;
  std::exception_ptr failure_;
  std::exception_ptr out_of_memory_;  ///< made while there is memory for it
};

}  // namespace penstock::runtime

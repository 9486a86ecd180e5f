// One worker: walks its list of actions, for one or several stages, and moves tensors to other
// workers. Internal to runtime.
#pragma once

#include <chrono>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "penstock/runtime/device/device_timeline.h"
#include "penstock/runtime/stage_run.h"

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
  std::vector<schedule::TimelineEvent> take_events() { return std::move(events_); }
  /// The sums that travelled while it computed, in the order in which they came. Several are on
  /// their way at a time; each has the time from the one before to its own end, or less.
  std::vector<schedule::SumEvent> sum_events() const;
  int64_t waiting_ns() const { return total_waiting_ns_; }
  int64_t peak_versions() const;
  /// Null: the run scales no loss.
  const LossScale* loss_scale() const { return loss_scale_ ? &*loss_scale_ : nullptr; }

 private:
  void run_actions();
  /// Behind the action at this place: the inputs of the stage's next forward are on their way.
  void prefetch_after(const std::vector<schedule::Action>& actions, size_t place);
  /// Where the host runs ahead of the device: not by more than a few forwards.
  void keep_pace();
  void run_action(const schedule::Action& action);
  void say_step(const schedule::Action& action) const;
  // Endless runs. The first stage learns from the source that the stream has ended, and tells the
  // stages behind it by a message without tensors in the place of the first frame that never comes.
  void run_endless();
  /// Whether the action belongs to a micro-batch that exists.
  bool takes_part(const schedule::Action& action);
  bool next_is_there(MicroBatchId micro_batch);
  void end_before(MicroBatchId micro_batch);
  /// What the exception that is being handled means, met in that action (null: before the first).
  std::exception_ptr failure_in(const schedule::Action* action);
  std::string out_of_device_memory() const;
  bool enter(MiniBatchId mini_batch);
  void execute(const schedule::Action& action);
  void keep(const schedule::TimelineEvent& event);
  void send(const schedule::Action& action);
  void receive(const schedule::Action& action);
  void norm(const schedule::Action& action);
  /// Stages of this worker exchange tensors without messages.
  void hand_over_outputs(const schedule::Action& action, StageRun& from);
  void hand_over_gradients(const schedule::Action& action, StageRun& from);

  StageRun& stage(StageId id);
  /// Runs a blocking call of the fabric, records its waiting time, and turns a failed result into
  /// an exception.
  void wait(const std::function<WaitResult(Wait&)>& call);

  WorkerId worker_;
  const Run& run_;
  Fabric& fabric_;
  WorkerOptions options_;
  size_t max_events_;
  std::optional<LossScale> loss_scale_;            ///< the stages refer to it
  std::vector<std::unique_ptr<StageRun>> stages_;  ///< ascending
  WorkerDevice* device_;                           ///< of its stages
  std::shared_ptr<HostStash> leaving_;             ///< by the last OFFLOAD
  std::optional<DeviceTimeline> device_timeline_;  ///< where the device is a GPU
  std::deque<model::EventPtr> forwards_;           ///< the ends of those that the host is ahead of
  int64_t last_entered_ = -1;
  int64_t end_ = INT64_MAX;  ///< endless runs: the number of micro-batches, once it is known
  const schedule::Action* current_ = nullptr;
  schedule::Action next_;  ///< of an endless schedule; outlives what it fails with
  std::vector<schedule::TimelineEvent> events_;
  int64_t waiting_ns_ = 0;  ///< in the current action
  int64_t total_waiting_ns_ = 0;
  bool complete_ = false;
  std::exception_ptr failure_;
  /// Made while there is memory for it.
  std::exception_ptr out_of_memory_;
};

}  // namespace penstock::runtime

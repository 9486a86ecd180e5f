// One worker: walks its list of actions, for one or several stages, and moves tensors to other
// workers. Internal to runtime.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "penstock/runtime/stage_run.h"

namespace penstock::runtime {

/// One run of one worker; lives in that worker's thread.
class StageWorker {
 public:
  /// `held`: what the worker holds, ascending by stage.
  StageWorker(WorkerId worker, const std::vector<Replica*>& held, RunState& run,
              const PipelineOptions& options, int64_t steps_before);

  /// Carries out the whole list. Failures are reported to the RunState; never throws.
  void run() noexcept;

  std::vector<schedule::TimelineEvent> take_events() { return std::move(events_); }
  int64_t waiting_ns() const { return total_waiting_ns_; }
  int64_t peak_versions() const;

 private:
  bool enter(MiniBatchId mini_batch);
  void execute(const schedule::Action& action);
  void send(const schedule::Action& action);
  void receive(const schedule::Action& action);
  void norm(const schedule::Action& action);
  /// Stages of this worker find each other's tensors without messages.
  void hand_over_outputs(const schedule::Action& action, StageRun& from);
  void hand_over_gradients(const schedule::Action& action, StageRun& from);

  StageRun& stage(StageId id);
  /// Runs a blocking call that books its own waiting time, and turns its result into an exception
  /// where it must.
  template <class Wait>
  void wait(const schedule::Action& action, Wait&& call);

  WorkerId worker_;
  RunState& run_;
  const PipelineOptions& options_;
  std::vector<std::unique_ptr<StageRun>> stages_;  ///< ascending
  int64_t last_entered_ = -1;
  std::vector<schedule::TimelineEvent> events_;
  int64_t waiting_ns_ = 0;  ///< in the current action
  int64_t total_waiting_ns_ = 0;
};

}  // namespace penstock::runtime

// One worker: walks its list of actions. Internal to runtime; read it beside schedule/action.h, whose pseudo-code it carries out.
#pragma once

#include <chrono>
#include <unordered_map>
#include <vector>

#include "penstock/model/loss.h"
#include "penstock/runtime/gradient_buffer.h"
#include "penstock/runtime/run_state.h"
#include "penstock/runtime/stage_module.h"
#include "penstock/runtime/weight_store.h"

namespace penstock::runtime {

/// State that lives as long as the pipeline: the replica's own weights and buffers.
struct Replica {
  WorkerId worker;
  int replica = 0;
  const StageModule* module = nullptr;
  WeightStore weights;
  model::Tensors buffers;
  bool recompute = false;  ///< PipelineOptions::recompute of the stage
};

/// One run of one worker; lives in that worker's thread.
class StageWorker {
 public:
  StageWorker(Replica& replica, RunState& run, const PipelineOptions& options, int64_t steps_before);

  /// Carries out the whole list. Failures are reported to the RunState; never throws.
  void run() noexcept;

  std::vector<schedule::TimelineEvent> take_events() { return std::move(events_); }
  int64_t waiting_ns() const { return total_waiting_ns_; }
  int64_t peak_versions() const { return peak_versions_; }

 private:
  /// What a micro-batch keeps between its actions on this worker (the activation stash).
  struct InFlight {
    model::Tensors inputs;        ///< leaves, in the order of StageModule::inputs()
    model::Tensors outputs;       ///< with their autograd graph; of a stage that recomputes, without one and until they are sent
    model::Tensors output_grads;  ///< sums over the consumers
    at::Tensor loss;              ///< on the output stage
    model::Tensors input_grads;   ///< after backward, until sent
    int64_t pending_sends = 0;
    int64_t pending_forward_sends = 0;
  };

  bool enter(MiniBatchId mini_batch);
  void execute(const schedule::Action& action);
  void forward(const schedule::Action& action);
  /// The stage's outputs (and loss) of a micro-batch, with an autograd graph if `with_graph`.
  void compute_outputs(const schedule::Action& action, InFlight& record, model::MutableTensorSpan buffers, bool with_graph);
  void recompute(const schedule::Action& action, InFlight& record);
  model::LossResult loss_of(const schedule::Action& action, const InFlight& record) const;
  void backward(const schedule::Action& action);
  void send(const schedule::Action& action);
  void receive(const schedule::Action& action);
  void sync(const schedule::Action& action);
  void step(const schedule::Action& action);

  InFlight& in_flight(MicroBatchId micro_batch);
  void drop_if_done(MicroBatchId micro_batch);
  /// Runs a blocking call, books the time as waiting, and turns its result into an exception where it must.
  template <class Wait>
  void wait(const schedule::Action& action, Wait&& call);
  void finish_wait(const schedule::Action& action, WaitResult result);

  Replica& replica_;
  RunState& run_;
  const PipelineOptions& options_;
  int64_t steps_before_;
  GradientBuffer gradients_;
  model::Tensors synced_;  ///< gradients between SYNC and STEP
  bool has_synced_ = false;
  std::unordered_map<MicroBatchId, InFlight> in_flight_;
  int64_t last_entered_ = -1;
  int64_t forward_links_;   ///< stages that read our outputs
  int64_t backward_links_;  ///< stages whose outputs we read
  std::vector<schedule::TimelineEvent> events_;
  int64_t waiting_ns_ = 0;  ///< in the current action
  int64_t total_waiting_ns_ = 0;
  int64_t peak_versions_ = 1;
};

}  // namespace penstock::runtime

// One replica of one stage during one run: what a worker does for each of the stages that it holds.
// Only computation and gradients; the worker moves the tensors (stage_worker.h). Internal to
// runtime. It implements the pseudo-code of schedule/action.h; read both together.
#pragma once

#include <optional>
#include <unordered_map>
#include <vector>

#include "penstock/runtime/gradient_buffer.h"
#include "penstock/runtime/run_context.h"
#include "penstock/runtime/stage_module.h"
#include "penstock/runtime/stage_tape.h"
#include "penstock/runtime/tied_weights.h"
#include "penstock/runtime/value_gradients.h"
#include "penstock/runtime/weight_store.h"

namespace penstock::runtime {

/// State that exists as long as the pipeline: the replica's own weights and buffers.
struct Replica {
  WorkerId worker;
  int replica = 0;
  const StageModule* module = nullptr;
  const StageTies* ties = nullptr;
  WeightStore weights;
  model::Tensors buffers;
};

/// Not thread-safe: its worker owns it. Blocks only in sync().
class StageRun {
 public:
  StageRun(Replica& replica, const RunContext& run);

  StageId stage() const { return replica_.module->stage(); }
  const StageModule& module() const { return *replica_.module; }
  int replica() const { return replica_.replica; }

  // Tensors that arrive or leave. Each call once per micro-batch and peer.
  void take_inputs(MicroBatchId micro_batch, StageId from, model::Tensors values);
  /// After F.
  model::Tensors give_outputs(MicroBatchId micro_batch, StageId to);
  void take_gradients(MicroBatchId micro_batch, StageId from, model::Tensors parts);
  /// After B or I.
  model::Tensors give_gradients(MicroBatchId micro_batch, StageId to);

  // Actions.
  void forward(const schedule::Action& action);
  void recompute(const schedule::Action& action);
  void backward(const schedule::Action& action);
  void backward_inputs(const schedule::Action& action);
  void backward_weights(const schedule::Action& action);
  WaitResult sync(const schedule::Action& action, Wait& wait);
  void step(const schedule::Action& action);
  void free_weights(const schedule::Action& action) { replica_.weights.release(action.version); }

  // The stage's part of NORM.
  /// Adds its tied gradients and its squares to the worker's part.
  void contribute(MiniBatchId mini_batch, NormShare& share);
  void take_tied_sums(const NormTotals& totals);
  /// Multiplies the gradients of the next step by this.
  void scale_gradients(double factor);

  int64_t peak_versions() const { return peak_versions_; }

 private:
  /// What a micro-batch keeps between its actions (the activation stash).
  struct InFlight {
    explicit InFlight(const StageModule& module)
        : inputs(module.inputs().size()), gradients(module) {}
    model::Tensors inputs;   ///< until F; where the stage recomputes until R
    model::Tensors buffers;  ///< as they were before F, until R; only where the stage recomputes
    model::Tensors outputs;  ///< plain tensors, until all readers have them
    std::optional<StageTape> tape;  ///< from F, or R, to B or W
    ValueGradients gradients;
    size_t missing_inputs = 0;     ///< stages whose outputs have not arrived
    size_t missing_gradients = 0;  ///< stages whose gradients have not arrived
    size_t outputs_to_give = 0;
    size_t gradients_to_give = 0;
    bool done = false;  ///< nothing more will be computed
  };

  InFlight& in_flight(MicroBatchId micro_batch);
  void drop_if_done(MicroBatchId micro_batch);
  void load_batch(MicroBatchId micro_batch, InFlight& record) const;
  /// The stage's outputs (and loss) of a micro-batch on a tape.
  model::LossResult record_tape(const schedule::Action& action, InFlight& record,
                                model::MutableTensorSpan buffers);
  model::LossResult loss_without_tape(const schedule::Action& action, const InFlight& record) const;
  bool makes_output() const { return !replica_.module->model_outputs().empty(); }
  /// Gradients of the mini-batch, summed over micro-batches and tied weights of the stage, into
  /// ready_.
  void make_ready(MiniBatchId mini_batch);
  void add_inner_ties();

  Replica& replica_;
  const RunContext& run_;
  bool recomputes_;
  size_t num_sources_;  ///< stages whose outputs we read
  size_t num_targets_;  ///< stages that read our outputs
  GradientBuffer gradients_;
  std::optional<model::Tensors> ready_;  ///< gradients between SYNC or NORM and STEP
  std::unordered_map<MicroBatchId, InFlight> in_flight_;
  int64_t peak_versions_ = 1;
};

}  // namespace penstock::runtime

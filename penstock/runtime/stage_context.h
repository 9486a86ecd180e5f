// What the parts of one replica know during one run: its passes, its sums, its part of NORM.
// Internal to runtime.
#pragma once

#include <functional>

#include "penstock/model/layer.h"
#include "penstock/model/optimizer.h"
#include "penstock/runtime/aborted.h"
#include "penstock/runtime/fabric/wait.h"
#include "penstock/runtime/loss_scale.h"
#include "penstock/runtime/replica.h"
#include "penstock/runtime/run.h"
#include "penstock/schedule/action.h"

namespace penstock::runtime {

/// Runs a call that may block, for the worker: until it is Ready; throws otherwise, Aborted where
/// the fabric is closed.
using Blocking = std::function<void(const std::function<WaitResult(Wait&)>& call)>;

class MovedWeights;

/// Lives as long as the run. Nothing in it changes but the replica and the worker's loss scale.
struct StageContext {
  Replica& replica;
  const Run& run;
  Fabric& fabric;
  Blocking block;                         ///< what waits for sums
  const LossScale* loss_scale = nullptr;  ///< the worker's; null: the loss is not scaled
  MovedWeights* moved = nullptr;          ///< null: passes read the versions themselves
  double delay = 0;                       ///< mean, in steps; only where it is compensated
  model::Team* team = nullptr;            ///< null: the stage is whole

  const StageModule& module() const { return *replica.module; }
  StageId stage() const { return replica.module->stage(); }
  WorkerDevice& device() const { return *replica.device; }
  const schedule::ScheduleShape& shape() const { return run.schedule().shape; }
  int num_replicas() const { return run.table.replicas(stage()); }
  bool makes_output() const { return !replica.module->model_outputs().empty(); }
  /// Of the members of a team, which all make the same output, the first one alone does.
  bool reports_loss() const;

  /// Of the stage's output, which may be the member's part of it.
  model::Loss loss() const;

  /// What F or R reads.
  const model::Tensors& weights(const schedule::Action& action) const;
  /// `carried`: of the stage's layers, which F replaces; empty: nothing is carried.
  model::ForwardContext forward_context(const schedule::Action& action,
                                        model::MutableTensorSpan carried = {}) const;
  /// Whether the micro-batches go on with texts, and which place each has in its mini-batch.
  bool carries() const { return run.options().carried_places > 0 && module().carries(); }
  int64_t place_of(MicroBatchId micro_batch) const {
    return micro_batch.value % run.options().carried_places;
  }
  at::Tensor targets(MicroBatchId micro_batch) const {
    return device().staged(run.source().targets(micro_batch));
  }
  /// What the loss of an action's micro-batch is a mean over: its mini-batch, or, of a replica that
  /// steps by itself, the replica's share of it.
  model::MiniBatchSize size_of(const schedule::Action& action) const;
  /// By how much the micro-batch's loss is scaled; not before its loss is computed.
  double loss_scale_of(MicroBatchId micro_batch) const;
  /// Of a step of this run, counted from 0.
  model::StepContext step_context(int64_t step) const;
  /// Blocks until every replica of the stage, in this process or others, has called it as often.
  void meet_replicas() const;
};

}  // namespace penstock::runtime

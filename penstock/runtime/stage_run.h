// One replica of one stage during one run: what a worker does for each of the stages that it holds.
// Only computation and gradients; the worker moves the tensors (stage_worker.h). Internal to
// runtime. It implements the pseudo-code of schedule/action.h; read both together.
//
// How it makes its passes and its sums is chosen when it is made: pass/pass.h, sums/stage_sums.h.
#pragma once

#include <map>
#include <memory>
#include <unordered_map>

#include "penstock/model/device/layout.h"
#include "penstock/runtime/fabric_team.h"
#include "penstock/runtime/loss_reports.h"
#include "penstock/runtime/norm_part.h"
#include "penstock/runtime/pass/pass.h"
#include "penstock/runtime/pass/pass_weights.h"
#include "penstock/runtime/stage_context.h"
#include "penstock/runtime/sums/stage_sums.h"

namespace penstock::runtime {

/// Not thread-safe: its worker owns it.
class StageRun {
 public:
  /// `block`: what waits for sums. `loss_scale`: the worker's; null: the loss is not scaled.
  StageRun(Replica& replica, const Run& run, Fabric& fabric, Blocking block,
           const LossScale* loss_scale = nullptr);

  StageId stage() const { return context_.stage(); }
  const StageModule& module() const { return context_.module(); }

  /// What the replica keeps belongs to this thread's worker, in the account of memory.
  void claim_memory() const;

  // Tensors that arrive or leave. Each call once per micro-batch and peer.
  void take_inputs(MicroBatchId micro_batch, StageId from, model::Tensors values);
  /// After F.
  model::Tensors give_outputs(MicroBatchId micro_batch, StageId to);
  void take_gradients(MicroBatchId micro_batch, StageId from, model::Tensors parts);
  /// After B or I.
  model::Tensors give_gradients(MicroBatchId micro_batch, StageId to);

  // Actions.
  void forward(const schedule::Action& action);
  /// Starts to bring the model's inputs of a later micro-batch to the device; nothing on the CPU.
  void prefetch(MicroBatchId micro_batch);
  void recompute(const schedule::Action& action);
  /// Before B or W, as StageSums::expect_step().
  void expect_step(const schedule::Action& step, std::vector<WeightVersion> freed) {
    sums_->expect_step(step, std::move(freed));
  }
  void backward(const schedule::Action& action);
  void backward_inputs(const schedule::Action& action);
  void backward_weights(const schedule::Action& action);
  /// OFFLOAD: its memory is there until HostStash::drop(). Null where nothing moves.
  std::shared_ptr<HostStash> offload(const schedule::Action& action);
  void load(const schedule::Action& action);
  void step(const schedule::Action& action);
  void free_weights(const schedule::Action& action);

  /// SYNC, and what comes of it.
  StageSums& sums() { return *sums_; }
  /// NORM.
  NormPart& norm() { return norm_; }
  LossReports& losses() { return losses_; }
  int64_t peak_versions() const { return peak_versions_; }

 private:
  /// Before a pass.
  void tell_team(const schedule::Action& action) {
    if (team_) team_->begin(action);
  }
  InFlight& in_flight(MicroBatchId micro_batch);
  void drop_if_done(MicroBatchId micro_batch);
  void load_batch(MicroBatchId micro_batch, InFlight& record);
  /// Values as the stage's device computes them.
  at::Tensor laid_out(at::Tensor value) const {
    return channels_last_ ? model::channels_last(std::move(value)) : value;
  }

  StageContext context_;
  std::unique_ptr<FabricTeam> team_;  ///< null: the stage is whole
  bool channels_last_;
  LossReports losses_;
  std::unique_ptr<StageSums> sums_;
  std::unique_ptr<MovedWeights> moved_;  ///< null: passes read the versions themselves
  std::unique_ptr<Pass> pass_;
  NormPart norm_;
  std::unordered_map<MicroBatchId, InFlight> in_flight_;
  std::map<MicroBatchId, model::Tensors> prefetched_;
  int64_t peak_versions_ = 1;
};

}  // namespace penstock::runtime

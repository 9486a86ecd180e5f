// The gradients of replicas that have one copy of their weights in memory (Stages::shares_weights):
// those of one process, on the CPU, under flush. They share out the optimiser's state, too. As soon
// as all of them have given the gradient of a weight, each adds up and steps its own share of it in
// place, also while backward passes of other layers go on. So gradients of few layers are there at
// the same time, and nothing is copied. Internal to runtime.
#pragma once

#include <optional>
#include <vector>

#include "penstock/runtime/gradient_board.h"
#include "penstock/runtime/sums/stage_sums.h"

namespace penstock::runtime {

/// The sums are the same bit for bit as those of the others (fabric/local/shared_reduce.h). Each
/// replica has one group of micro-batches; there is no NORM, and no weight is used twice.
class SharedSums : public StageSums {
 public:
  SharedSums(const StageContext& context, const Grouping& grouping, GradientBoard& board);

  void add(const schedule::Action& action, const Backward& backward) override;
  void expect_step(const schedule::Action& step, std::vector<WeightVersion> freed) override;
  /// Gives what the passes have not given, and waits for the others.
  void sync(const schedule::Action& action) override;
  Tensors& ready(MiniBatchId mini_batch) override;
  /// Steps the rest of the replica's share, and waits for the others.
  void step(const schedule::Action& action) override;

 private:
  void give(size_t weight, at::Tensor gradient);
  /// Steps all that can be stepped now.
  void step_complete();
  at::Tensor sum_of_share(size_t weight, const Tensors& gradients) const;

  GradientBoard& board_;
  GradientBuffer gradients_;
  std::optional<StepAhead> ahead_;  ///< the step that may begin, or has begun
  bool has_begun_ = false;
  std::vector<bool> given_;  ///< by weight: of the mini-batch
};

}  // namespace penstock::runtime

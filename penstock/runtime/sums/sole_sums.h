// The gradients of a stage with one replica. Internal to runtime.
#pragma once

#include <vector>

#include "penstock/runtime/sums/stage_sums.h"

namespace penstock::runtime {

class SoleSums : public StageSums {
 public:
  SoleSums(const StageContext& context, Grouping grouping);

  void add(const schedule::Action& action, const Backward& backward) override;
  Tensors& ready(MiniBatchId mini_batch) override;
  void step(const schedule::Action& action) override;

 private:
  std::vector<bool> rounded_;  ///< by weight; empty: none
  GradientBuffer gradients_;
};

}  // namespace penstock::runtime

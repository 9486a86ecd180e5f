// Passes of a stage that keeps only its inputs, and runs F again before B. Internal to runtime.
#pragma once

#include "penstock/runtime/pass/tape_pass.h"

namespace penstock::runtime {

/// Source: Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016.
class RecomputedPass : public TapePass {
 public:
  using TapePass::TapePass;

  void recompute(const schedule::Action& action, InFlight& record) override;
  void begin(const schedule::Action& action, InFlight& record, bool in_place) override;

 protected:
  model::LossResult run(const schedule::Action& action, InFlight& record,
                        const BeforeLayer& before_layer) override;
};

}  // namespace penstock::runtime

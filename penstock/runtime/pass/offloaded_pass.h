// Passes of a stage on a GPU whose activations wait for the backward pass in the host's memory
// (host_stash.h). Internal to runtime.
#pragma once

#include "penstock/runtime/pass/tape_pass.h"

namespace penstock::runtime {

class OffloadedPass : public TapePass {
 public:
  OffloadedPass(const StageContext& context, StageSums& sums, SegmentEnds ends);

  void backward(const schedule::Action& action, InFlight& record) override;
  void backward_inputs(const schedule::Action& action, InFlight& record) override;
  std::shared_ptr<HostStash> offload(InFlight& record) override;
  void load(InFlight& record) override;

 protected:
  model::LossResult run(const schedule::Action& action, InFlight& record,
                        const BeforeLayer& before_layer) override;

 private:
  bool owns_inputs_;  ///< their memory is nobody else's
};

}  // namespace penstock::runtime

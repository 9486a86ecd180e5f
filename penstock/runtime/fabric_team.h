// The team of one replica of a stage, as its layers see it (model/team.h): what its members give
// each other goes through the fabric of a run. Internal to runtime.
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/model/team.h"
#include "penstock/runtime/stage_context.h"
#include "penstock/schedule/teams.h"

namespace penstock::runtime {

/// Not thread-safe: its worker owns it. Waiting in it is waiting of the worker.
class FabricTeam final : public model::Team {
 public:
  FabricTeam(const schedule::TeamPlace& place, const StageContext& context);

  /// The pass that the next exchanges belong to.
  void begin(const schedule::Action& action);

  int size() const override { return size_; }
  int member() const override { return next_.member; }
  std::vector<at::Tensor> exchange(std::vector<at::Tensor> parts,
                                   const std::vector<std::vector<int64_t>>& sizes) override;

 private:
  const StageContext& context_;
  int size_;
  TeamExchange next_;
};

}  // namespace penstock::runtime

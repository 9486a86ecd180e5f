// From a strategy's name to a priced plan for this machine, measuring what is missing.
#pragma once

#include <cstdint>
#include <string>

#include "penstock/model/model.h"
#include "penstock/model/optimizer.h"
#include "penstock/plan/plan.h"
#include "penstock/profile/profile.h"

namespace penstock::tool {

struct AutoPlanRequest {
  std::string strategy = "auto";
  std::string weights;
  int workers = 1;
  int threads_per_worker = 1;
  int64_t mini_batch_size = 64;
  int64_t micro_batches = 0;  ///< per mini-batch; 0: chosen
  int chunks = 0;             ///< stages per worker of interleaved; 0: chosen
  int64_t slack = -1;         ///< of eager-1f1b; -1: chosen
  bool global_norm = false;   ///< all workers wait for the norm of all gradients before each step
  std::string profile_path;   ///< measured before; empty: measure now
  int profile_samples = 5;
  /// That will be trained on, over all epochs. Profiling goes on for up to a second while it takes
  /// less than about a tenth of the training.
  int64_t training_samples = 0;
  uint64_t seed = 1;
  model::OptimizerSpec optimizer;
};

/// Profiles `model` with the micro-batch size that the strategy will use, and plans. When the
/// planner's choice needs another micro-batch size (replicated stages), the chosen split is
/// measured and priced again with it. Throws ConfigError when there is no plan (says why).
plan::Plan auto_plan(const model::Model& model, const AutoPlanRequest& request);

/// Brings a plan made for another micro-batch size to this mini-batch size: times and sizes are
/// scaled in proportion; the throughput per sample stays, the alternatives go.
plan::Plan scale_plan(plan::Plan plan, int64_t mini_batch_size);

}  // namespace penstock::tool

// One replica of a stage: the state that a worker keeps from run to run. Internal to runtime.
#pragma once

#include <memory>

#include "penstock/model/layer.h"
#include "penstock/runtime/carried_states.h"
#include "penstock/runtime/device/worker_device.h"
#include "penstock/runtime/low_rank_state.h"
#include "penstock/runtime/round_state.h"
#include "penstock/runtime/stage_graphs.h"
#include "penstock/runtime/stage_module.h"
#include "penstock/runtime/tied_weights.h"
#include "penstock/runtime/weight_store.h"
#include "penstock/util/ids.h"

namespace penstock::runtime {

/// Exists as long as the pipeline. Not thread-safe: its worker owns it during a run.
struct Replica {
  WorkerId worker;
  int replica = 0;
  const StageModule* module = nullptr;
  const StageTies* ties = nullptr;
  WorkerDevice* device = nullptr;  ///< of its worker
  WeightStore weights;
  model::Tensors buffers;
  CarriedStates carried;     ///< between training runs that carry states
  bool has_trained = false;  ///< since the replicas' buffers were last made equal
  /// The replicas of the stage share out the optimiser's state: `weights` has a share.
  bool shares_state = false;
  std::unique_ptr<RoundState> round = {};       ///< null: the replicas have the same weights
  std::unique_ptr<LowRankState> low_rank = {};  ///< null: whole gradients are summed
  std::unique_ptr<StageGraphs> graphs = {};     ///< null: none are wanted
};

}  // namespace penstock::runtime

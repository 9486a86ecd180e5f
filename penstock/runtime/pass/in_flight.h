// What a micro-batch keeps in a stage between its actions (the activation stash). Internal to
// runtime.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "penstock/runtime/device/host_stash.h"
#include "penstock/runtime/loss_tape.h"
#include "penstock/runtime/stage_graphs.h"
#include "penstock/runtime/stage_tape.h"
#include "penstock/runtime/value_gradients.h"

namespace penstock::runtime {

/// What a backward pass goes through: a tape, a graph, or neither yet.
struct Activations {
  std::optional<StageTape> tape;  ///< from F, or R, to B or W
  StageGraph* graph = nullptr;    ///< from F to B
};

/// Of a stage whose activations move to the host (offloaded_pass.h).
struct OffloadedMemory {
  std::vector<WeakStorage> moving;   ///< what OFFLOAD may move: F has made it, or got it
  std::shared_ptr<HostStash> moved;  ///< from OFFLOAD to B or I
  StorageSet stays;                  ///< memory that OFFLOAD leaves where it is
};

struct InFlight {
  explicit InFlight(const StageModule& module)
      : inputs(module.inputs().size()), gradients(module) {}

  model::Tensors inputs;   ///< until F; where the stage recomputes until R
  model::Tensors buffers;  ///< as they were before F, until R; only where the stage recomputes
  /// States of layers before F, where they are carried; F replaces them by those behind it.
  model::Tensors carried;
  model::Tensors carried_before;  ///< as buffers
  model::Tensors outputs;         ///< plain tensors, until all readers have them
  Activations activations;
  OffloadedMemory offloaded = {};
  ValueGradients gradients;
  // With a graph (graph_pass.h):
  LossTape loss;                 ///< of the graph's output
  ByStage received;              ///< gradients from later stages, which the graph adds
  ByStage messages;              ///< what the graph made for earlier stages
  size_t missing_inputs = 0;     ///< stages whose outputs have not arrived
  size_t missing_gradients = 0;  ///< stages whose gradients have not arrived
  size_t outputs_to_give = 0;
  size_t gradients_to_give = 0;
  bool done = false;  ///< nothing more will be computed
};

}  // namespace penstock::runtime

// The two passes of a ModelPass as graphs of the device, with the laps of its layers in them.
// Internal to the profiler.
#pragma once

#include <memory>
#include <vector>

#include "penstock/model/profiling/model_pass.h"

namespace penstock::model::detail {

struct ModelPass::Graphs {
  Graphs(DeviceStream& stream, size_t layers) : laps(stream), times(layers) {}

  Laps laps;                      ///< before the graphs, which use its events
  std::vector<LayerTimes> times;  ///< what the laps are added to
  int64_t event_ns = 0;           ///< what an event takes in a graph
  std::shared_ptr<GraphMemory> memory;
  std::unique_ptr<DeviceGraph> forward;
  std::unique_ptr<DeviceGraph> backward;
  std::vector<Tensors> outputs;           ///< of layers that make results of the model, by layer
  std::vector<Tensors> output_gradients;  ///< that the backward pass reads, by result
  std::vector<Tensors> weight_gradients;  ///< that it makes, by layer
};

}  // namespace penstock::model::detail

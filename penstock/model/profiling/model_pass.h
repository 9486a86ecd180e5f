// One worker's copy of a model on which whole training passes are timed layer by layer. Not
// thread-safe: one object per thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "penstock/model/model.h"
#include "penstock/model/parameter_optimizers.h"
#include "penstock/model/precision.h"
#include "penstock/model/profiler_options.h"
#include "penstock/model/profiling/laps.h"
#include "penstock/model/profiling/model_part.h"
#include "penstock/model/profiling/profiled_loss.h"
#include "penstock/profile/saved_values.h"

namespace penstock::model::detail {

struct LayerTimes {
  int64_t forward_ns = 0;
  int64_t backward_ns = 0;  ///< for inputs and weights together; or the sum of the two below
  int64_t backward_input_ns = 0;
  int64_t backward_weight_ns = 0;
  int64_t accumulate_ns = 0;  ///< of a split pass: adding the weights' gradients to a sum
  int64_t step_ns = 0;
  int64_t loss_ns = 0;  ///< the part of the two passes that is the loss
};

/// How the gradients of a layer are made.
enum class Backward : uint8_t {
  Whole,  ///< inputs and weights together, as action B does
  /// Inputs first, then weights, as actions I and W do; together where the weights' gradients
  /// cannot be deferred.
  Split,
};

/// Bytes of one layer that do not change from pass to pass.
struct LayerBytes {
  std::vector<int64_t> outputs;
  int64_t weights = 0;
  int64_t short_weights = 0;  ///< the part of them that is computed with in 16 bits
  /// What its operations save for their gradients, and the loss after it, but for values that
  /// others save before it (profile/saved_values.h).
  int64_t stash = 0;
  int64_t samples = 0;  ///< the same of the model's inputs
  int64_t working = 0;  ///< profile::LayerCost::working_bytes
  std::vector<int> strided_outputs;
  profile::LayerSaves saves;
};

/// Memory of the loss after a layer, beside what its forward pass saves.
struct LossBytes {
  int64_t working = 0;  ///< at its most
  /// What its backward pass leaves, less the gradient that it hands over: that may lie in memory
  /// that was saved.
  int64_t left = 0;
};

class ModelPass {
 public:
  /// Passes that are made before graphs are recorded, as the runtime makes them.
  static constexpr int kPassesWithoutGraphs = 2;

  /// Random samples of options.batch_size; `loss` as measure_profile() takes it, for a part with
  /// the model's first result. `part` outlives it. Throws ConfigError
  /// for a loss that the model does not fit, RuntimeError when memory cannot be allocated.
  ModelPass(const ModelPart& part, const ProfilerOptions& options,
            const std::optional<ProfiledLoss>& loss = {});
  ~ModelPass();

  /// Forward, loss, backward and one optimiser step of every layer. Each layer is separated from
  /// its neighbours, so its backward can be timed alone; otherwise the order of work and the
  /// lifetime of activations are those of a training step. Gradients and the optimiser's state of
  /// layers with many weights are there for one layer at a time, on the CPU: all layers together
  /// need less memory than they do in training. Throws RuntimeError naming the layer
  /// that failed, or when options.stop ends it.
  std::vector<LayerTimes> run(Backward how = Backward::Whole);

  /// Whether passes with Backward::Whole are made by graphs from now on.
  bool has_graphs() const { return graphs_ != nullptr; }
  /// Why they are not though that was wanted; empty: nothing is known against it.
  const std::string& graph_obstacle() const { return graph_obstacle_; }

  /// Known after the first run().
  const std::vector<LayerBytes>& bytes() const { return bytes_; }
  DeviceStream& stream() const { return *stream_; }
  /// What steps a parameter of the part: as in the whole model, whose first and last layers may be
  /// others than the part's.
  const Optimizer& optimizer_of(const graph::ParameterRef& parameter) const {
    return optimizers_.of({part_.run[parameter.layer.index()], parameter.parameter});
  }

 private:
  struct LayerState {
    Tensors weights;  ///< what is computed with
    Tensors masters;  ///< the float32 weights behind those of 16 bits; undefined elsewhere
    Tensors buffers;
    std::vector<Tensors> optimizer_state;
    // The rest is kept from forward to backward or step.
    Tensors inputs;  ///< leaves of this layer's own autograd graph
    Tensors outputs;
    std::vector<Tensors> output_gradients;  ///< per output, one from every use
    Tensors weight_gradients;
    LossBytes loss;
  };

  struct Graphs;

  void prepare_layer(LayerId id, uint64_t seed);
  /// The two passes of all layers.
  void forward_all(std::vector<LayerTimes>& times);
  void backward_all(Backward how, std::vector<LayerTimes>& times);
  /// Records the two passes; where that cannot be, sets graph_obstacle_.
  void record_graphs();
  /// Gives the device a pass by graphs; later read_graphs() adds its times.
  void launch_graphs(std::vector<LayerTimes>& times);
  void read_graphs(std::vector<LayerTimes>& times);
  const at::Tensor& value(const graph::ValueRef& ref) const;
  void forward(LayerId id, LayerTimes& times);
  void count_saved_values();
  bool is_read_by_loss_alone(const graph::ValueRef& ref) const;
  void loss(std::vector<LayerTimes>& times);
  void backward(LayerId id, Backward how, LayerTimes& times);
  void hand_on(LayerId id, const Tensors& gradients);
  /// Gives the outputs the gradients of layers that the part lacks.
  void fill_in_uses(LayerId id, LayerState& state) const;
  /// The layer's outputs with gradients, and the sums of those gradients.
  static void roots_of(const LayerState& state, Tensors& outputs, Tensors& gradients);
  /// What the second and every later micro-batch of a step costs in addition to its backward pass.
  void accumulate(LayerState& state, LayerTimes& times);
  /// Memory of the same size and type as the tensor, for the time of one operation: the same for
  /// all layers.
  at::Tensor& scratch(const at::Tensor& like);
  /// A new one, or that of another large weight of the same shape.
  Tensors state_of(const graph::ParameterRef& parameter, const at::Tensor& master);
  /// The tensor in the memory of the device.
  at::Tensor here(at::Tensor tensor) const;
  /// Whether a layer's step follows its backward pass, rather than those of all layers.
  bool steps_at_once(LayerId id) const;
  void use_gradients(LayerId id, Backward how, std::vector<LayerTimes>& times);
  void step(LayerId id, LayerTimes& times);
  void step_together(int64_t& step_ns);
  void share_out(int64_t step_ns, std::vector<LayerTimes>& times) const;

  void check_stop() const;

  const ModelPart& part_;
  const Model& model_;  ///< of the part
  const std::atomic<bool>* stop_;
  std::vector<LayerPrecision> precisions_;
  int64_t batch_size_;
  ParameterOptimizers optimizers_;
  Tensors samples_;
  /// Nothing: the gradient of every output is ones.
  std::optional<ProfiledLoss> loss_;
  std::shared_ptr<DeviceStream> stream_;
  Laps laps_;
  /// Of the layers' passes; those of the graphs while they are recorded.
  Laps* layer_laps_ = &laps_;
  std::vector<LayerState> layers_;
  std::map<std::tuple<at::ScalarType, std::vector<int64_t>, std::vector<int64_t>>, at::Tensor>
      scratch_;
  std::map<std::pair<const Optimizer*, std::vector<int64_t>>, Tensors> large_states_;
  std::vector<LayerBytes> bytes_;
  int64_t passes_ = 0;
  bool lays_channels_last_ = false;
  bool wants_graphs_ = false;
  std::string graph_obstacle_;
  std::unique_ptr<Graphs> graphs_;
};

/// The two passes as graphs of the device, with the laps of its layers in them.
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

// A layer is a pure function of its weights and inputs: it owns no weights, so only the weight
// store decides which version is used.
//
//   class Scale : public Layer {   // y = w * x
//    public:
//     std::string kind() const override { return "scale"; }
//     std::vector<ParameterSpec> parameters() const override {
//       return {{"weight", {1}, Init::constant(1.0)}};
//     }
//     Tensors forward(TensorSpan weights, MutableTensorSpan, TensorSpan inputs,
//                     const ForwardContext&) const override {
//       return {weights[0] * inputs[0]};
//     }
//   };
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "penstock/profile/operation.h"

namespace penstock::model {

using Tensors = std::vector<at::Tensor>;
using TensorSpan = std::span<const at::Tensor>;
using MutableTensorSpan = std::span<at::Tensor>;
/// Sizes of one sample, without the batch dimension: {1, 28, 28}.
using Shape = std::vector<int64_t>;

/// How a parameter or buffer is filled before training.
struct Init {
  enum class Rule : uint8_t { Constant, Uniform, Normal, Given };
  Rule rule = Rule::Constant;
  double value = 0;  ///< the constant, the bound of [-value, value), or the standard deviation
  std::function<at::Tensor()> values = {};  ///< Given: makes them, of the parameter's shape

  static Init constant(double v) { return {Rule::Constant, v}; }
  static Init uniform(double bound) { return {Rule::Uniform, bound}; }
  static Init normal(double deviation) { return {Rule::Normal, deviation}; }
  static Init given(std::function<at::Tensor()> values) {
    return {Rule::Given, 0, std::move(values)};
  }
};

struct ParameterSpec {
  std::string name;  ///< "weight", "bias"; letters, digits and '_'
  Shape shape;
  Init init;
  std::string key = {};  ///< in the state dict; empty: "<layer>.<name>"
  /// Of the numbers in the state dict; here they are float32.
  at::ScalarType stored_as = at::kFloat;
};

/// What a layer remembers of each sample from one window of a text to the next.
struct CarriedSpec {
  std::string name;  ///< "hidden", "cell"
  Shape shape;       ///< of one sample
};

/// The name of a parameter or buffer of `layer` in the state dict.
std::string state_key(const std::string& layer, const ParameterSpec& spec);

class Team;

/// What a forward call may depend on besides its arguments.
struct ForwardContext {
  bool training = true;
  /// For random layers: derived from (run seed, layer, micro-batch), so results do not depend on
  /// how the model is cut.
  uint64_t seed = 0;
  /// Where weights and inputs are. Tensors that a layer makes of nothing belong there, too.
  at::Device device = at::kCPU;
  /// Layer::carried(), [batch, ...] each, before the first place: undefined where a text begins.
  /// The call replaces them by those behind the last place, without history and with memory of
  /// their own. Empty: the samples begin with zeros, and nothing is kept.
  MutableTensorSpan carried = {};
  /// The other workers that share the stage's work, for layers that are parts (parts.h). Lives as
  /// long as the run. Null: the layers are whole.
  Team* team = nullptr;
};

class Layer {
 public:
  virtual ~Layer() = default;

  /// "conv2d", "linear", ...
  virtual std::string kind() const = 0;
  /// Trainable weights; float32. Default: none.
  virtual std::vector<ParameterSpec> parameters() const { return {}; }
  /// Mutable state that is not trained, such as running statistics; it belongs to the worker.
  /// Default: none.
  virtual std::vector<ParameterSpec> buffers() const { return {}; }
  /// What the layer can take over from the sample before, where samples are windows of one text
  /// that follow each other (truncated backpropagation through time: Williams and Peng 1990;
  /// gradients end where a window begins). Default: nothing.
  virtual std::vector<CarriedSpec> carried() const { return {}; }
  /// Bytes that a worker holds for the layer beside its weights: buffers, and what the layer keeps
  /// that is never trained. Default: the buffers, of float32.
  virtual int64_t constant_bytes() const;
  virtual int num_outputs() const { return 1; }
  /// Whether the weights' gradients can be made after the inputs' (action W) without doing any work
  /// twice. False where the two share their work (normalisation), or a weight is used more than
  /// once: then I makes both. The runtime inspects the operations (runtime/layer_tape.h); profiles
  /// rely on this function. Default: true, which is right for matrix products and convolutions.
  virtual bool weight_gradients_can_wait() const { return true; }
  /// Whether training depends on context.seed, so that two passes of the same inputs differ.
  /// Default: true, as nobody knows; CUDA graphs (docs/devices.md) are for layers that say no.
  virtual bool is_random() const { return true; }
  /// Shapes of the outputs for one sample. The default runs forward() on two zero samples. Throws
  /// ConfigError saying what is expected when the inputs do not fit.
  virtual std::vector<Shape> output_shapes(const std::vector<Shape>& inputs) const;
  /// Arithmetic and memory traffic of one micro-batch of `batch` samples of these shapes, from
  /// which analytic_profile.h estimates times on devices that one does not have. Counts saturate.
  /// The default is right for one pass over the data: inputs and weights are read once, outputs
  /// written, one flop per number; twice that in backward. Layers that multiply matrices should
  /// override it.
  virtual profile::LayerWork work(const std::vector<Shape>& inputs,
                                  const std::vector<Shape>& outputs, int64_t batch) const;
  /// Outputs, each [batch, ...], for inputs [batch, ...]. `weights` and `buffers` are in the order
  /// of parameters() and buffers(); in training the call may update `buffers` in place (under
  /// no-grad), never weights or inputs. Must be thread-safe: many workers call one layer object.
  virtual Tensors forward(TensorSpan weights, MutableTensorSpan buffers, TensorSpan inputs,
                          const ForwardContext& context) const = 0;
};

}  // namespace penstock::model

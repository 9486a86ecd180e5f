// A model: a graph of layers with code and shapes, but without weights. Immutable and cheap to copy
// (layers are shared).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "penstock/graph/model_graph.h"
#include "penstock/model/adapters.h"
#include "penstock/model/input_spec.h"
#include "penstock/model/layer.h"
#include "penstock/model/parts.h"

namespace penstock::model {

/// A tensor of the state dict that no layer trains or changes; or another name of one that some
/// layer does.
struct ExtraTensor {
  std::string key;
  std::function<at::Tensor()> values;  ///< not called where it is another name
  std::string same_as = {};            ///< the key of the tensor that has this name, too
  /// Of a frozen parameter: what tells its values from others, such as their check sum.
  std::string frozen = {};
};

class Model {
 public:
  /// `layers` in the order of `graph.layers()`. Checks shapes along the graph and of tied
  /// parameters (ConfigError naming the layer).
  Model(std::string name, graph::ModelGraph graph, std::vector<std::shared_ptr<const Layer>> layers,
        std::vector<Shape> input_shapes);

  /// The same model for inputs of other sizes, such as shorter sequences: the same layers, weights
  /// and names. Throws ConfigError naming the layer that does not take them.
  Model for_inputs(const std::vector<Shape>& shapes) const;

  /// What else belongs into a state dict, so that another program finds all that it expects there.
  void set_extra_state(std::vector<ExtraTensor> extra) { extra_state_ = std::move(extra); }
  const std::vector<ExtraTensor>& extra_state() const { return extra_state_; }

  /// Only adapters are trained.
  void set_adapters(std::optional<Adapters> adapters) { adapters_ = std::move(adapters); }
  const std::optional<Adapters>& adapters() const { return adapters_; }

  /// Names and types of the inputs, if they are others than "input" and float32. Throws ConfigError
  /// when the shapes are not input_shapes().
  void set_inputs(std::vector<InputSpec> inputs);
  const std::vector<InputSpec>& inputs() const { return inputs_; }

  /// Every layer computes images in whatever order their numbers lie (device/layout.h).
  void set_takes_channels_last() { takes_channels_last_ = true; }
  bool takes_channels_last() const { return takes_channels_last_; }

  /// The first output is the loss of a sample, which the model computes of its inputs.
  void set_returns_loss() { returns_loss_ = true; }
  bool returns_loss() const { return returns_loss_; }

  /// The output is [1 + n, classes] logits: first the answer, then n others that the loss counts
  /// with these weights beside it. In evaluation there is the answer alone, [1, classes].
  void set_auxiliary_weights(std::vector<double> weights) {
    auxiliary_weights_ = std::move(weights);
  }
  const std::vector<double>& auxiliary_weights() const { return auxiliary_weights_; }

  /// A parameter begins otherwise than its layer says.
  void begin_with(const graph::ParameterRef& parameter, Init init) {
    initial_[parameter] = std::move(init);
  }

  /// The layers are parts of those of a whole model, from which weights begin; one entry per layer.
  void set_parts(std::shared_ptr<const Model> whole, std::vector<LayerPart> parts);
  /// Null: the layers are whole.
  const Model* whole() const { return whole_.get(); }
  /// Null: the layers are whole.
  const LayerPart* part(LayerId id) const {
    return parts_.empty() ? nullptr : &parts_.at(id.index());
  }
  /// Of which random numbers are made: the name of the layer, or of the one that it is a part of.
  const std::string& seed_name(LayerId id) const;

  const std::string& name() const { return name_; }
  const graph::ModelGraph& graph() const { return graph_; }
  const Layer& layer(LayerId id) const { return *layers_.at(id.index()); }
  std::shared_ptr<const Layer> shared_layer(LayerId id) const { return layers_.at(id.index()); }
  const std::vector<Shape>& input_shapes() const { return input_shapes_; }
  /// Shapes of the outputs of a layer, one sample.
  const std::vector<Shape>& output_shapes(LayerId id) const {
    return output_shapes_.at(id.index());
  }
  /// Shape of the model's first output, one sample.
  const Shape& output_shape() const;
  /// Trainable numbers that the layer reads / in the model; there a tied weight counts once.
  int64_t parameter_count(LayerId id) const;
  int64_t parameter_count() const { return parameter_count_; }
  /// Bytes of each of the layer's tied parameters, as graph().layer(id).ties lists them.
  std::vector<int64_t> tied_bytes(LayerId id) const;

  /// Fresh weights / buffers of a layer, contiguous float32 on the CPU, one per parameters() /
  /// buffers() entry. The values depend only on the seed and the layer's name, so every split of
  /// the model starts from the same weights. A tied parameter (graph().owner()) has the values of
  /// its owner, in its own memory.
  Tensors initial_weights(LayerId id, uint64_t seed) const;
  Tensors initial_buffers(LayerId id) const;

 private:
  /// Checks the layer's ties; returns the numbers that it reads minus those that it shares from
  /// owners.
  int64_t own_parameters(LayerId id) const;

  std::string name_;
  graph::ModelGraph graph_;
  std::vector<std::shared_ptr<const Layer>> layers_;
  std::vector<Shape> input_shapes_;
  std::vector<std::vector<Shape>> output_shapes_;
  int64_t parameter_count_ = 0;
  std::vector<ExtraTensor> extra_state_;
  std::optional<Adapters> adapters_;
  std::map<graph::ParameterRef, Init> initial_;  ///< of begin_with(), by owner
  std::vector<InputSpec> inputs_;
  std::vector<double> auxiliary_weights_;
  std::shared_ptr<const Model> whole_;
  std::vector<LayerPart> parts_;
  bool returns_loss_ = false;
  bool takes_channels_last_ = false;
};

}  // namespace penstock::model

#include "penstock/shard/part_layer.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <cmath>
#include <string>
#include <utility>

#include "penstock/model/float32_layers.h"
#include "penstock/model/known_code.h"
#include "penstock/model/team_functions.h"

namespace penstock::shard {
namespace {

using model::Shape;
using model::Tensors;

void scale(std::vector<profile::Operation>& operations, double share) {
  const auto scaled = [share](int64_t& number) {
    number = static_cast<int64_t>(std::llround(static_cast<double>(number) * share));
  };
  for (profile::Operation& operation : operations) {
    scaled(operation.flops);
    scaled(operation.bytes);
    scaled(operation.products_per_output);
    scaled(operation.transformed_flops);
    scaled(operation.transformed_bytes);
  }
}

std::vector<model::ParameterSpec> specs_of(const std::vector<model::ParameterSpec>& whole,
                                           const std::vector<model::TensorPart>& parts) {
  std::vector<model::ParameterSpec> specs;
  for (const model::TensorPart& part : parts) {
    model::ParameterSpec spec = whole.at(part.number);
    spec.shape = part.sizes();
    specs.push_back(std::move(spec));
  }
  return specs;
}

/// As they are; backward: the sums of all members' gradients, of all tensors in one exchange.
Tensors sum_backward_together(model::TensorSpan tensors, model::Team& team) {
  Tensors flat;
  std::vector<int64_t> lengths;
  for (const at::Tensor& tensor : tensors) {
    flat.push_back(tensor.reshape({-1}));
    lengths.push_back(tensor.numel());
  }
  const at::Tensor all = model::sum_backward(at::cat(flat), team);
  Tensors result = at::split_with_sizes(all, lengths);
  for (size_t i = 0; i < result.size(); ++i) result[i] = result[i].view(tensors[i].sizes());
  return result;
}

class PartLayer : public model::Layer, public model::KnownCode, public SumsWeightGradients {
 public:
  explicit PartLayer(PartOfLayer part) : part_(std::move(part)) {}

  std::string kind() const override { return part_.whole->kind(); }
  std::string code() const override {
    const auto* const known = dynamic_cast<const model::KnownCode*>(part_.code.get());
    return known != nullptr ? known->code() : kind();
  }
  std::vector<model::ParameterSpec> parameters() const override {
    return specs_of(part_.whole->parameters(), part_.parameters);
  }
  std::vector<model::ParameterSpec> buffers() const override {
    return specs_of(part_.whole->buffers(), part_.buffers);
  }
  std::vector<model::CarriedSpec> carried() const override { return part_.whole->carried(); }
  int num_outputs() const override { return part_.whole->num_outputs(); }
  bool weight_gradients_can_wait() const override {
    return !part_.sums_gradients && part_.whole->weight_gradients_can_wait();
  }
  bool sums_weight_gradients() const override { return part_.sums_gradients; }
  bool is_random() const override { return part_.whole->is_random(); }

  std::vector<Shape> output_shapes(const std::vector<Shape>& inputs) const override {
    std::vector<Shape> outputs = part_.whole->output_shapes(whole_inputs(inputs));
    for (size_t i = 0; i < part_.outputs.size(); ++i) {
      if (part_.outputs[i]) outputs[i].at(part_.outputs[i]->dimension - 1) = part_.outputs[i]->own;
    }
    return outputs;
  }

  profile::LayerWork work(const std::vector<Shape>& inputs, const std::vector<Shape>& outputs,
                          int64_t batch) const override {
    std::vector<Shape> whole_outputs = outputs;
    for (size_t i = 0; i < part_.outputs.size(); ++i) {
      if (part_.outputs[i])
        whole_outputs[i].at(part_.outputs[i]->dimension - 1) = part_.outputs[i]->whole;
    }
    profile::LayerWork work = part_.whole->work(whole_inputs(inputs), whole_outputs, batch);
    scale(work.forward, part_.share);
    scale(work.backward_weights, part_.share);
    scale(work.backward_inputs, part_.share);
    work.stash_bytes =
        static_cast<int64_t>(std::llround(static_cast<double>(work.stash_bytes) * part_.share));
    return work;
  }

  Tensors forward(model::TensorSpan weights, model::MutableTensorSpan buffers,
                  model::TensorSpan inputs, const model::ForwardContext& context) const override {
    Tensors all(part_.whole->parameters().size());
    const bool sums = part_.sums_gradients && context.team != nullptr;
    const Tensors own = sums ? sum_backward_together(weights, *context.team)
                             : Tensors(weights.begin(), weights.end());
    for (size_t i = 0; i < part_.parameters.size(); ++i) all[part_.parameters[i].number] = own[i];
    return part_.code->forward(all, buffers, inputs, context);
  }

 private:
  std::vector<Shape> whole_inputs(std::vector<Shape> inputs) const {
    for (size_t i = 0; i < part_.inputs.size(); ++i) {
      if (part_.inputs[i]) inputs[i].at(part_.inputs[i]->dimension - 1) = part_.inputs[i]->whole;
    }
    return inputs;
  }

  PartOfLayer part_;
};

/// Of a layer that keeps its weights in float32.
class Float32PartLayer final : public PartLayer, public model::KeepsFloat32 {
 public:
  using PartLayer::PartLayer;
};

}  // namespace

std::shared_ptr<const model::Layer> make_part_layer(PartOfLayer part) {
  if (dynamic_cast<const model::KeepsFloat32*>(part.whole.get()) != nullptr)
    return std::make_shared<Float32PartLayer>(std::move(part));
  return std::make_shared<PartLayer>(std::move(part));
}

}  // namespace penstock::shard

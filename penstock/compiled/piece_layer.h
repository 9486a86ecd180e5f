// A layer of a program that is part of a piece: the layer itself, which also says so. Internal to
// compiled.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "penstock/model/batch_limits.h"
#include "penstock/model/counts_targets.h"
#include "penstock/model/float32_layers.h"
#include "penstock/model/keeps_constants.h"
#include "penstock/model/known_code.h"
#include "penstock/model/model.h"
#include "penstock/model/piece.h"

namespace penstock::compiled {

/// Immutable; thread-safe.
class PieceLayer final : public model::Layer,
                         public model::ComputesInFloat32,
                         public model::LimitsBatches,
                         public model::CountsTargets,
                         public model::KeepsConstants,
                         public model::KnownCode,
                         public model::InPiece {
 public:
  PieceLayer(std::shared_ptr<const model::Layer> layer, std::shared_ptr<const model::Piece> piece)
      : layer_(std::move(layer)), piece_(std::move(piece)) {}

  const model::Piece& piece() const override { return *piece_; }
  /// The same outside the piece.
  const std::shared_ptr<const model::Layer>& alone() const { return layer_; }

  std::string kind() const override { return layer_->kind(); }
  std::vector<model::ParameterSpec> parameters() const override { return layer_->parameters(); }
  std::vector<model::ParameterSpec> buffers() const override { return layer_->buffers(); }
  std::vector<model::CarriedSpec> carried() const override { return layer_->carried(); }
  int64_t constant_bytes() const override { return layer_->constant_bytes(); }
  int num_outputs() const override { return layer_->num_outputs(); }
  /// The compiled backward pass makes all gradients.
  bool weight_gradients_can_wait() const override { return false; }
  bool is_random() const override { return layer_->is_random(); }
  std::vector<model::Shape> output_shapes(const std::vector<model::Shape>& inputs) const override {
    return layer_->output_shapes(inputs);
  }
  profile::LayerWork work(const std::vector<model::Shape>& inputs,
                          const std::vector<model::Shape>& outputs, int64_t batch) const override {
    return layer_->work(inputs, outputs, batch);
  }
  model::Tensors forward(model::TensorSpan weights, model::MutableTensorSpan buffers,
                         model::TensorSpan inputs,
                         const model::ForwardContext& context) const override {
    return layer_->forward(weights, buffers, inputs, context);
  }

  std::string why_not(int64_t samples, const std::vector<model::Shape>& outputs) const override {
    const auto* const limits = dynamic_cast<const model::LimitsBatches*>(layer_.get());
    return limits == nullptr ? std::string() : limits->why_not(samples, outputs);
  }
  model::TargetCount target_count() const override {
    const auto* const counts = dynamic_cast<const model::CountsTargets*>(layer_.get());
    return counts == nullptr ? model::TargetCount() : counts->target_count();
  }
  void release_constants() const override { model::release_constants(*layer_); }
  std::string code() const override { return known().code(); }
  std::vector<at::ScalarType> output_types() const override { return known().output_types(); }
  at::Tensor empty_output(size_t output, int64_t batch) const override {
    return known().empty_output(output, batch);
  }

 private:
  const model::KnownCode& known() const { return dynamic_cast<const model::KnownCode&>(*layer_); }

  std::shared_ptr<const model::Layer> layer_;
  std::shared_ptr<const model::Piece> piece_;
};

/// The model with other code for its layers.
inline model::Model with_layers(const model::Model& model,
                                std::vector<std::shared_ptr<const model::Layer>> layers) {
  model::Model made(model.name(), model.graph(), std::move(layers), model.input_shapes());
  made.set_extra_state(model.extra_state());
  made.set_adapters(model.adapters());
  made.set_inputs(model.inputs());
  if (model.returns_loss()) made.set_returns_loss();
  return made;
}

}  // namespace penstock::compiled

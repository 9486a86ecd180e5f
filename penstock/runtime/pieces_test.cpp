// Layers that are computed as one: the same bits in every cut between pieces, in every kind of
// schedule, with values that cross a piece's border several times.
#include <atomic>

#include "penstock/model/piece.h"
#include "penstock/runtime/stage_module.h"
#include "penstock/runtime/test_support.h"

namespace penstock::runtime::testing {
namespace {

using plan::Strategy;

/// Runs its layers in a graph of autograd of its own, and counts its passes.
class CountingPiece final : public model::Piece {
 public:
  CountingPiece(const model::Model& model, int first, int last)
      : model_(model), first_(first), last_(last), layers_(model_, split(), StageId{1}) {}

  LayerId first() const override { return LayerId{first_}; }
  LayerId last() const override { return LayerId{last_}; }
  bool takes(model::TensorSpan inputs, const model::ForwardContext& context) const override {
    return context.training && inputs.front().size(0) == kSamples;
  }
  model::Tensors forward(model::TensorSpan weights, model::MutableTensorSpan buffers,
                         model::TensorSpan inputs,
                         const model::ForwardContext& context) const override {
    ++passes;
    return layers_.forward(weights, buffers, inputs, context);
  }

  static constexpr int64_t kSamples = 3;
  mutable std::atomic<int> passes{0};

 private:
  std::vector<StageId> split() const {
    std::vector<StageId> stages;
    for (int l = 0; l < model_.graph().num_layers(); ++l)
      stages.push_back(StageId{l < first_ ? 0 : l <= last_ ? 1 : 2});
    return stages;
  }

  model::Model model_;
  int first_;
  int last_;
  StageModule layers_;
};

class PartOfPiece final : public model::Layer, public model::InPiece {
 public:
  PartOfPiece(std::shared_ptr<const model::Layer> layer, std::shared_ptr<const model::Piece> piece)
      : layer_(std::move(layer)), piece_(std::move(piece)) {}
  const model::Piece& piece() const override { return *piece_; }
  std::string kind() const override { return layer_->kind(); }
  std::vector<model::ParameterSpec> parameters() const override { return layer_->parameters(); }
  std::vector<model::ParameterSpec> buffers() const override { return layer_->buffers(); }
  int num_outputs() const override { return layer_->num_outputs(); }
  std::vector<model::Shape> output_shapes(const std::vector<model::Shape>& x) const override {
    return layer_->output_shapes(x);
  }
  model::Tensors forward(model::TensorSpan weights, model::MutableTensorSpan buffers,
                         model::TensorSpan inputs,
                         const model::ForwardContext& context) const override {
    return layer_->forward(weights, buffers, inputs, context);
  }

 private:
  std::shared_ptr<const model::Layer> layer_;
  std::shared_ptr<const model::Piece> piece_;
};

struct Pieces {
  model::Model model;
  std::vector<std::shared_ptr<CountingPiece>> pieces;
};

/// `ends`: the layer behind the last one of each piece.
Pieces in_pieces(const model::Model& whole, const std::vector<int>& ends) {
  std::vector<std::shared_ptr<CountingPiece>> pieces;
  std::vector<std::shared_ptr<const model::Layer>> layers;
  int first = 0;
  for (const int end : ends) {
    pieces.push_back(std::make_shared<CountingPiece>(whole, first, end - 1));
    for (; first < end; ++first)
      layers.push_back(
          std::make_shared<PartOfPiece>(whole.shared_layer(LayerId{first}), pieces.back()));
  }
  return {model::Model(whole.name(), whole.graph(), std::move(layers), whole.input_shapes()),
          std::move(pieces)};
}

/// Stages that begin where pieces do: `first` has the number of each stage's first piece.
std::vector<StageId> stages_of(const std::vector<int>& ends, const std::vector<size_t>& first) {
  std::vector<StageId> stages;
  for (size_t p = 0; p < ends.size(); ++p) {
    const auto stage = std::upper_bound(first.begin(), first.end(), p) - first.begin() - 1;
    while (std::ssize(stages) < ends[p]) stages.push_back(StageId{static_cast<int32_t>(stage)});
  }
  return stages;
}

TEST(Pieces, AreTheSameBitForBitInEveryCutBetweenThem) {
  const model::Model whole = skip_model(/*dropout=*/0.2);
  const int n = whole.graph().num_layers();
  const std::vector<int> ends = {3, 6, 9, n};  // the skip and the halves cross them
  const Pieces made = in_pieces(whole, ends);
  Case serial;
  serial.samples = 12 * 3 + 5;  // the last micro-batches are smaller: layer by layer
  serial.parts = 4;
  const Trained plain = train(whole, serial);
  const Trained one = train(made.model, serial);
  for (const auto& piece : made.pieces) EXPECT_EQ(piece->passes, 3 * 4);
  for (size_t i = 0; i < plain.losses.size(); ++i)
    EXPECT_NEAR(one.losses[i], plain.losses[i], 1e-5);
  for (const Strategy kind : {Strategy::GPipe, Strategy::OneFOneBFlush, Strategy::ZbH1}) {
    for (const std::vector<size_t>& first :
         std::vector<std::vector<size_t>>{{0, 2}, {0, 1}, {0, 1, 2, 3}}) {
      for (const bool recompute : {false, true}) {
        SCOPED_TRACE(std::string(to_string(kind)) + " " + std::to_string(first.size()));
        Case cut_up = serial;
        cut_up.kind = kind;
        cut_up.stage_of_layer = stages_of(ends, first);
        cut_up.replicas = std::vector<int>(first.size(), 1);
        cut_up.recompute = std::vector<bool>(first.size(), recompute);
        expect_same_bits(one, train(made.model, cut_up));
      }
    }
  }
}

TEST(Pieces, ReplicasAndShardedStateGoWithThem) {
  const model::Model whole = skip_model();
  const std::vector<int> ends = {5, whole.graph().num_layers()};
  const Pieces made = in_pieces(whole, ends);
  Case serial;
  serial.parts = 4;
  serial.groups = 2;
  const Trained one = train(made.model, serial);
  Case shared = serial;
  shared.kind = Strategy::OneFOneBFlush;
  shared.replicas = {2, 1};
  shared.stage_of_layer = stages_of(ends, {0, 1});
  shared.shard_optimizer = {true, false};
  expect_same_bits(one, train(made.model, shared));
}

}  // namespace
}  // namespace penstock::runtime::testing

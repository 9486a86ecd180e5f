// Tables of vectors, looked up by tokens or by places.
#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <fmt/format.h>

#include <memory>
#include <optional>
#include <utility>

#include "penstock/model/device/devices.h"
#include "penstock/model/layers/builtin.h"
#include "penstock/model/layers/work.h"
#include "penstock/model/shapes.h"
#include "penstock/model/spread_vocabulary.h"
#include "penstock/model/works_on_parts.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::model::detail {
namespace {

/// weight [values, features]. Tokens [places...] become [places..., features].
class Embedding final : public BuiltinLayer, public WorksOnParts {
 public:
  explicit Embedding(EmbeddingOptions options)
      : options_(std::move(options)), rows_(options_.values) {}

  std::string kind() const override { return "embedding"; }
  std::string code() const override {
    const std::string whole = fmt::format("embedding {} {}", options_.dropout, padding());
    if (rows_ == options_.values) return whole;
    return fmt::format("{} rows {}+{} of {}", whole, first_row_, rows_, options_.values);
  }
  bool is_random() const override { return options_.dropout > 0; }
  std::vector<ParameterSpec> parameters() const override {
    return {{"weight", {rows_, options_.features}, options_.weight_init}};
  }
  /// Of the table's rows: a token of another row gives zeros.
  std::shared_ptr<const Layer> on_part(const InputPart& part) const override {
    auto some = std::make_shared<Embedding>(*this);
    some->first_row_ = part.runs.front().begin;
    some->rows_ = part.runs.front().length;
    return some;
  }
  std::vector<Shape> output_shapes(const std::vector<Shape>& inputs) const override {
    expect_inputs(inputs, 1);
    Shape out = inputs[0];
    out.push_back(options_.features);
    return {out};
  }

  /// Backward clears a gradient of the whole table, then adds the rows.
  profile::LayerWork work(const std::vector<Shape>& inputs, const std::vector<Shape>& outputs,
                          int64_t batch) const override {
    const int64_t numbers = batch_numbers(outputs, batch);
    const int64_t table = saturating_mul(options_.values, options_.features);
    profile::LayerWork work{.forward = {copy(numbers)},
                            .backward_weights = {elementwise({numbers, numbers, table})},
                            .backward_inputs = {},
                            .stash_bytes = tensor_bytes(numbers),
                            .saves_outputs = false};
    if (!is_random()) return work;
    work.forward.push_back(copy(numbers));
    work.backward_weights.push_back(copy(numbers));
    work.stash_bytes = saturating_add(work.stash_bytes, tensor_bytes(batch_numbers(inputs, batch)));
    return work;
  }

  Tensors forward(TensorSpan weights, MutableTensorSpan, TensorSpan inputs,
                  const ForwardContext& context) const override {
    const at::Tensor rows = rows_ == options_.values
                                ? at::embedding(weights[0], inputs[0], padding())
                                : spread_embedding(weights[0], inputs[0], padding(),
                                                   {first_row_, rows_, options_.values});
    if (!context.training || !is_random()) return {rows};
    // As if the rows of the table had been multiplied, without touching all of them.
    at::Tensor mask = at::empty({options_.values, 1}, weights[0].options());
    mask.bernoulli_(1 - options_.dropout,
                    installed_devices().generator(mask.device(), context.seed))
        .mul_(1 / (1 - options_.dropout));
    return {at::mul(rows, at::embedding(mask, inputs[0]))};
  }

 private:
  int64_t padding() const { return options_.padding.value_or(-1); }

  EmbeddingOptions options_;
  int64_t rows_;  ///< of the table that there is, from first_row_ on
  int64_t first_row_ = 0;
};

/// weight [places, features]: a vector for each place, added to what is there. Inputs may have
/// fewer places.
class PositionEmbedding final : public BuiltinLayer, public WorksOnParts {
 public:
  PositionEmbedding(Shape places, Init init) : places_(std::move(places)), init_(std::move(init)) {}
  /// The places that there are.
  PositionEmbedding(const PositionEmbedding& whole, InputPart part)
      : places_(whole.places_), init_(whole.init_), part_(std::move(part)) {}

  std::string kind() const override { return "position_embedding"; }
  std::vector<ParameterSpec> parameters() const override { return {{"weight", places_, init_}}; }
  std::vector<Shape> output_shapes(const std::vector<Shape>& inputs) const override {
    expect_inputs(inputs, 1);
    if (inputs[0].size() != 2 || inputs[0][0] > places_[0] || inputs[0][1] != places_[1]) {
      throw ConfigError(fmt::format("expected an input of shape {}, or of fewer places, found {}",
                                    shape_text(places_), shape_text(inputs[0])));
    }
    return inputs;
  }
  profile::LayerWork work(const std::vector<Shape>&, const std::vector<Shape>& outputs,
                          int64_t batch) const override {
    const int64_t numbers = batch_numbers(outputs, batch);
    return {.forward = {elementwise({numbers, batch_numbers(outputs, 1), numbers})},
            .backward_weights = {elementwise({numbers, batch_numbers(outputs, 1)})},
            .backward_inputs = {},
            .stash_bytes = tensor_bytes(numbers),
            .saves_inputs = false,
            .saves_outputs = false};
  }
  Tensors forward(TensorSpan weights, MutableTensorSpan, TensorSpan inputs,
                  const ForwardContext& context) const override {
    const int64_t own = inputs[0].size(1);
    const int64_t first = part_ ? part_->placed(own, context.team).runs.at(0).begin : 0;
    return {at::add(inputs[0], weights[0].narrow(0, first, own))};
  }
  /// Along the places.
  std::shared_ptr<const Layer> on_part(const InputPart& part) const override {
    return std::make_shared<PositionEmbedding>(*this, part);
  }

 private:
  Shape places_;
  Init init_;
  std::optional<InputPart> part_;
};

}  // namespace

LayerPtr make_embedding(const EmbeddingOptions& options) {
  check_range(options.values, 1, kMaxElements, "values");
  check_range(options.features, 1, kMaxElements, "features");
  check_probability(options.dropout);
  if (options.padding) check_range(*options.padding, 0, options.values - 1, "padding");
  return std::make_shared<Embedding>(options);
}

LayerPtr make_position_embedding(int64_t places, int64_t features, const Init& init) {
  check_range(places, 1, kMaxElements, "places");
  check_range(features, 1, kMaxElements, "features");
  return std::make_shared<PositionEmbedding>(Shape{places, features}, init);
}

}  // namespace penstock::model::detail

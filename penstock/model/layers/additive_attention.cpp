#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/softmax.h>
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "penstock/model/attends.h"
#include "penstock/model/layers/additive_scores.h"
#include "penstock/model/layers/builtin.h"
#include "penstock/model/layers/sequence_lengths.h"
#include "penstock/model/layers/work.h"
#include "penstock/model/shapes.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::model::detail {
namespace {

/// Bahdanau, Cho and Bengio (2015), normalised as Salimans and Kingma (2016) do weights: queries
/// [t, features], keys [s, features], values [s, numbers] and the source's tokens [s] make
/// [t, numbers]. linear_att, normalize_bias [features], normalize_scalar [1].
class AdditiveAttention final : public BuiltinLayer, public Attends {
 public:
  explicit AdditiveAttention(int64_t features) : features_(features) {}

  std::string kind() const override { return "additive_attention"; }
  std::vector<ParameterSpec> parameters() const override {
    const double bound = 1 / std::sqrt(static_cast<double>(features_));
    return {{"linear_att", {features_}, Init::uniform(bound)},
            {"normalize_bias", {features_}, Init::constant(0)},
            {"normalize_scalar", {1}, Init::constant(bound)}};
  }
  std::vector<Shape> output_shapes(const std::vector<Shape>& inputs) const override {
    expect_inputs(inputs, 4);
    const Shape& query = inputs[0];
    const Shape& key = inputs[1];
    const Shape& value = inputs[2];
    if (query.size() != 2 || key.size() != 2 || value.size() != 2 || query[1] != features_ ||
        key[1] != features_ || value[0] != key[0] || inputs[3] != Shape{key[0]}) {
      throw ConfigError(fmt::format(
          "expected queries [t, {0}], keys [s, {0}], values [s, numbers] and s tokens, found {1}, "
          "{2}, {3} and {4}",
          features_, shape_text(query), shape_text(key), shape_text(value), shape_text(inputs[3])));
    }
    return {{query[0], value[1]}};
  }

  /// The gradients of weights and inputs are made of the same numbers of all pairs of places.
  bool weight_gradients_can_wait() const override { return false; }

  /// Sums and tanh of all pairs of places, which backward makes again, and a product with them.
  profile::LayerWork work(const std::vector<Shape>& inputs, const std::vector<Shape>& outputs,
                          int64_t batch) const override {
    const int64_t targets = inputs[0][0];
    const int64_t sources = inputs[1][0];
    const int64_t scores = saturating_mul(batch, saturating_mul(targets, sources));
    const int64_t pairs = saturating_mul(scores, features_);
    const profile::Operation rank = matrix_product(scores, features_, 1);
    const profile::Operation sum = products(batch, {targets, sources, outputs[0][1]});
    const profile::Operation softmax = normalization({scores, scores});
    return {.forward = {elementwise({pairs}), copy(pairs), rank, softmax, sum},
            .backward_weights = {rank},
            .backward_inputs = {elementwise({pairs}), copy(pairs), copy(pairs), copy(pairs),
                                elementwise({pairs, pairs}), softmax, sum, sum},
            .stash_bytes = tensor_bytes(saturating_add(
                saturating_add(batch_numbers(outputs, batch), batch_numbers({inputs[0]}, batch)),
                scores)),
            .saves_outputs = false};
  }

  Tensors forward(TensorSpan weights, MutableTensorSpan, TensorSpan inputs,
                  const ForwardContext&) const override {
    return {at::bmm(shares(weights, inputs).shares, inputs[2])};
  }

  AttentionShares shares(TensorSpan weights, TensorSpan inputs) const override {
    const at::Tensor direction = weights[0] / weights[0].norm() * weights[2];
    const at::Tensor scores = additive_scores(inputs[0] + weights[1], inputs[1], direction);
    const at::Tensor lengths = sequence_lengths(inputs[3]);
    const at::Tensor is_padding = at::arange(inputs[3].size(1), lengths.options()) >= lengths;
    return {at::softmax(scores.masked_fill(is_padding.unsqueeze(1),
                                           -std::numeric_limits<double>::infinity()),
                        2),
            lengths};
  }

 private:
  int64_t features_;
};

}  // namespace

LayerPtr make_additive_attention(int64_t features) {
  check_range(features, 1, kMaxElements, "features");
  return std::make_shared<AdditiveAttention>(features);
}

}  // namespace penstock::model::detail

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "penstock/model/layers/builtin.h"
#include "penstock/model/layers/linear_product.h"
#include "penstock/model/layers/work.h"
#include "penstock/model/shapes.h"
#include "penstock/util/error.h"

namespace penstock::model::detail {
namespace {

/// weight [features, in_features] or, transposed, [in_features, features]; bias [features]; applied
/// to the last dimension.
class Linear final : public BuiltinLayer {
 public:
  Linear(int64_t in_features, LinearOptions options)
      : in_features_(in_features), options_(std::move(options)) {}

  std::string kind() const override { return options_.transposed ? "linear_transposed" : "linear"; }

  std::vector<ParameterSpec> parameters() const override {
    const Init standard = Init::uniform(1.0 / std::sqrt(static_cast<double>(in_features_)));
    Shape shape = {options_.features, in_features_};
    if (options_.transposed) std::swap(shape[0], shape[1]);
    std::vector<ParameterSpec> specs = {{"weight", shape, options_.weight_init.value_or(standard)}};
    if (options_.bias)
      specs.push_back(
          {"bias", {options_.features}, options_.weight_init ? Init::constant(0) : standard});
    return specs;
  }

  std::vector<Shape> output_shapes(const std::vector<Shape>& inputs) const override {
    expect_inputs(inputs, 1);
    if (inputs[0].empty() || inputs[0].back() != in_features_) {
      throw ConfigError(fmt::format("expected {} input features, found shape {}", in_features_,
                                    shape_text(inputs[0])));
    }
    Shape out = inputs[0];
    out.back() = options_.features;
    return {out};
  }

  profile::LayerWork work(const std::vector<Shape>&, const std::vector<Shape>& outputs,
                          int64_t batch) const override {
    const int64_t rows = batch_numbers(outputs, batch) / options_.features;
    const profile::Operation product = matrix_product(rows, in_features_, options_.features);
    profile::LayerWork work{.forward = {product},
                            .backward_weights = {product},
                            .backward_inputs = {product},
                            .stash_bytes = tensor_bytes(batch_numbers(outputs, batch)),
                            .saves_outputs = false};
    if (options_.bias)
      work.backward_weights.push_back(elementwise({batch_numbers(outputs, batch)}));
    return work;
  }

  Tensors forward(TensorSpan weights, MutableTensorSpan, TensorSpan inputs,
                  const ForwardContext&) const override {
    const at::Tensor bias = options_.bias ? weights[1] : at::Tensor();
    return {model::linear(inputs[0], options_.transposed ? weights[0].t() : weights[0], bias)};
  }

 private:
  int64_t in_features_;
  LinearOptions options_;
};

}  // namespace

LayerPtr make_linear(int64_t in_features, const LinearOptions& options) {
  check_range(options.features, 1, kMaxElements, "features");
  return std::make_shared<Linear>(in_features, options);
}

}  // namespace penstock::model::detail

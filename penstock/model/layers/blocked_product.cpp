#include "penstock/model/layers/blocked_product.h"

#include <ATen/Context.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_unsafe_view.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "penstock/model/torch_compat.h"

namespace penstock::model {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

namespace {

using OptionalScalar = decltype(std::declval<c10::IValue>().toOptional<at::Scalar>());

/// oneDNN's product as libtorch has it for its own compiler; none before libtorch 2.
const std::optional<c10::OperatorHandle>& blocked_operator() {
  using Handle = std::optional<c10::OperatorHandle>;
  static const Handle found = []() -> Handle {
    if (!at::globalContext().hasMKLDNN()) return std::nullopt;
    const auto handle = c10::Dispatcher::singleton().findSchema({"mkldnn::_linear_pointwise", ""});
    if (!handle || handle->schema().arguments().size() != 6) return std::nullopt;
    return *handle;
  }();
  return found;
}

/// rows [rows, in] times weight [features, in], plus bias [features] if defined. No history.
at::Tensor product(const at::Tensor& rows, const at::Tensor& weight, const at::Tensor& bias) {
  const at::AutoDispatchBelowAutograd without_history;
  std::vector<c10::IValue> stack = {rows,
                                    weight,
                                    bias.defined() ? c10::IValue(bias) : c10::IValue(),
                                    std::string("none"),
                                    c10::List<OptionalScalar>(),
                                    std::string()};
  blocked_operator()->callBoxed(stack);
  return stack.front().toTensor();
}

/// MKL has kernels of its own for Intel's processors.
bool is_processor_without_mkl_kernels() {
#if defined(__x86_64__)
  static const bool is_amd = [] {
    __builtin_cpu_init();
    return __builtin_cpu_is("amd") && __builtin_cpu_supports("avx2");
  }();
  return is_amd;
#else
  return false;
#endif
}

bool is_plain_float(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kFloat && tensor.device().is_cpu() &&
         tensor.layout() == at::kStrided;
}

at::Tensor rows_of(const at::Tensor& tensor) {
  return tensor.reshape({-1, tensor.size(-1)}).contiguous();
}

}  // namespace

/// A product and its gradients, those of inputs by oneDNN, too. Its own type, so that the runtime
/// knows that the gradients of its operands share no work.
class BlockedProduct : public Function<BlockedProduct> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& weight, const OptionalTensor& bias) {
    context->save_for_backward({input, weight});
    context->saved_data["has_bias"] = bias.has_value();
    std::vector<int64_t> sizes = input.sizes().vec();
    sizes.back() = weight.size(0);
    // No view: callers may change the result in place.
    return at::_unsafe_view(product(rows_of(input), weight, bias.value_or(at::Tensor())), sizes);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& input = saved[0];
    const at::Tensor rows = rows_of(gradients.front());
    variable_list result(3);
    if (context->needs_input_grad(0))
      result[0] = product(rows, saved[1].t(), {}).view(input.sizes());
    // MKL's is the faster one where both operands are transposed.
    if (context->needs_input_grad(1)) result[1] = rows.t().mm(rows_of(input));
    if (context->saved_data["has_bias"].toBool() && context->needs_input_grad(2))
      result[2] = rows.sum(0);
    return result;
  }
};

namespace detail {

bool has_blocked_product() {
  return blocked_operator().has_value() && at::globalContext().userEnabledMkldnn();
}

bool is_faster_blocked(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias) {
  if (!is_processor_without_mkl_kernels() || weight.dim() != 2 || input.dim() < 2) return false;
  if (cpu_autocasts()) return false;  // to 16 bits
  if (weight.numel() == 0 || input.size(-1) != weight.size(1)) return false;
  if (input.numel() / weight.size(1) < kLargeProduct / weight.numel()) return false;
  if (bias.defined() && (bias.dim() != 1 || bias.size(0) != weight.size(0))) return false;
  const bool are_floats =
      is_plain_float(input) && is_plain_float(weight) && (!bias.defined() || is_plain_float(bias));
  return are_floats && has_blocked_product();
}

at::Tensor blocked_linear(const at::Tensor& input, const at::Tensor& weight,
                          const at::Tensor& bias) {
  return BlockedProduct::apply(input, weight,
                               bias.defined() ? OptionalTensor(bias) : OptionalTensor());
}

}  // namespace detail

int64_t blocked_from() {
  const bool is_faster = is_processor_without_mkl_kernels() && detail::has_blocked_product();
  return is_faster ? detail::kLargeProduct : 0;
}

}  // namespace penstock::model

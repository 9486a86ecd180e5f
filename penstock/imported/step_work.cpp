#include "penstock/imported/step_work.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "penstock/imported/operator_arguments.h"
#include "penstock/model/layers/work.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::imported {

using model::detail::batch_numbers;
using model::detail::elementwise;
using model::detail::normalization;
using model::detail::tensor_bytes;
using profile::LayerWork;

namespace {

/// "torch.ops.aten.conv2d.default" -> "conv2d", "relu_" -> "relu".
std::string operator_of(const std::string& target) {
  const size_t last = target.rfind('.');
  const size_t before = last == 0 || last == std::string::npos ? last : target.rfind('.', last - 1);
  if (before == std::string::npos) return target;
  std::string name = target.substr(before + 1, last - before - 1);
  while (name.size() > 1 && name.back() == '_') name.pop_back();
  return name;
}

template <size_t N>
bool is_one_of(const std::string& name, const std::array<std::string_view, N>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

constexpr std::array<std::string_view, 6> kProducts = {"matmul", "mm",      "bmm",
                                                       "addmm",  "baddbmm", "linear"};
constexpr std::array<std::string_view, 7> kConvolutions = {
    "conv1d",           "conv2d",           "conv3d",          "convolution",
    "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"};
constexpr std::array<std::string_view, 7> kNorms = {"batch_norm",    "layer_norm", "group_norm",
                                                    "instance_norm", "rms_norm",   "softmax",
                                                    "log_softmax"};

bool is_any_fraction(exported::ScalarType type) {
  return type == exported::ScalarType::Float || type == exported::ScalarType::Double ||
         exported::is_short_float(type);
}

int64_t numbers(const std::vector<int64_t>& sizes) { return batch_numbers({sizes}, 1); }

}  // namespace

StepWork::StepWork(const Step& step, const StepFacts& facts, const FlatProgram& program,
                   const std::set<std::string>& parameters, Symbols symbols,
                   std::string batch_symbol)
    : name_(operator_of(step.node.target)),
      is_view_(facts.is_view),
      symbols_(std::move(symbols)),
      batch_symbol_(std::move(batch_symbol)) {
  const auto operands = [&](const std::vector<std::string>& names) {
    std::vector<Operand> result;
    for (const std::string& name : names) {
      const auto found = program.tensors.find(name);
      if (found == program.tensors.end()) continue;
      Operand& operand = result.emplace_back();
      operand.name = name;
      operand.bytes_per_number = exported::size_of(found->second.type);
      operand.is_fraction = is_any_fraction(found->second.type);
      for (const exported::SymbolicInt& size : found->second.sizes)
        operand.sizes.emplace_back(size);
      operand.is_parameter = parameters.contains(name);
    }
    return result;
  };
  for (const auto& input : step.node.inputs) tensors_ += tensor_names(input.value).size();
  reads_ = operands(facts.reads);
  outputs_ = operands(facts.outputs);
}

void StepWork::add_product(LayerWork& work, const Sizes& left, const Sizes& result,
                           bool right_is_parameter) const {
  const int64_t inner = left.empty() ? 1 : std::max<int64_t>(1, left.back());
  const int64_t columns = result.empty() ? 1 : std::max<int64_t>(1, result.back());
  const profile::Operation product =
      model::detail::matrix_product(numbers(result) / columns, inner, columns);
  work.forward.push_back(product);
  work.backward_inputs.push_back(product);
  (right_is_parameter ? work.backward_weights : work.backward_inputs).push_back(product);
}

void StepWork::add_convolution(LayerWork& work, const Sizes& input, const Sizes& weight,
                               const Sizes& result) const {
  if (input.size() < 3 || weight.size() < 3 || result.size() < 3) return;
  const bool transposed = name_.starts_with("conv_transpose");
  const auto pixels = [](const Sizes& sizes) {
    int64_t count = 1;
    for (size_t d = 2; d < sizes.size(); ++d) count = saturating_mul(count, sizes[d]);
    return count;
  };
  model::detail::ConvolutionCount count{.batch = input[0],
                                        .in_channels = input[1],
                                        .out_channels = result[1],
                                        .kernel = pixels(weight) / weight.back(),
                                        .kernel_width = weight.back(),
                                        .in_pixels = pixels(input),
                                        .out_pixels = pixels(result)};
  // A transposed convolution is the other's backward pass: the roles are exchanged.
  if (transposed) {
    std::swap(count.in_channels, count.out_channels);
    std::swap(count.in_pixels, count.out_pixels);
  }
  count.groups = std::max<int64_t>(1, count.in_channels / std::max<int64_t>(1, weight[1]));
  if (transposed) count.groups = std::max<int64_t>(1, result[1] / std::max<int64_t>(1, weight[1]));
  const profile::Operation convolution = model::detail::convolution(count);
  work.forward.push_back(convolution);
  work.backward_inputs.push_back(convolution);
  work.backward_weights.push_back(convolution);
}

int64_t StepWork::bytes_of(const Operand& operand, int64_t batch) const {
  Symbols symbols = symbols_;
  symbols[batch_symbol_] = batch;
  int64_t bytes = operand.bytes_per_number;
  for (const SizeExpression& size : operand.sizes)
    bytes = saturating_mul(bytes, std::max<int64_t>(1, size.evaluate(symbols)));
  return bytes;
}

void StepWork::add_to(LayerWork& work, int64_t batch) const {
  if (is_view_ || outputs_.empty()) return;
  Symbols symbols = symbols_;
  symbols[batch_symbol_] = batch;
  const auto sizes_of = [&](const Operand& operand) {
    Sizes sizes;
    for (const SizeExpression& size : operand.sizes)
      sizes.push_back(std::max<int64_t>(1, size.evaluate(symbols)));
    return sizes;
  };
  const Sizes result = sizes_of(outputs_.front());
  int64_t made = 0;
  for (const Operand& output : outputs_) made = saturating_add(made, numbers(sizes_of(output)));

  // addmm and baddbmm read what is added first.
  const size_t first = name_ == "addmm" || name_ == "baddbmm" ? 1 : 0;
  if (is_one_of(name_, kProducts) && reads_.size() > first + 1) {
    add_product(work, sizes_of(reads_[first]), result, reads_[first + 1].is_parameter);
    return;
  }
  if (is_one_of(name_, kConvolutions) && reads_.size() > 1)
    return add_convolution(work, sizes_of(reads_[0]), sizes_of(reads_[1]), result);
  if (name_ == "scaled_dot_product_attention" && reads_.size() > 2) {
    const Sizes query = sizes_of(reads_[0]);
    Sizes scores = query;
    const Sizes key = sizes_of(reads_[1]);
    if (!scores.empty() && key.size() > 1) scores.back() = key[key.size() - 2];
    add_product(work, query, scores, false);
    work.forward.push_back(normalization({numbers(scores), numbers(scores)}));
    work.backward_inputs.push_back(normalization({numbers(scores), numbers(scores)}));
    add_product(work, scores, result, false);
    return;
  }
  if (name_ == "embedding" && !reads_.empty()) {  // rows of a table; its gradient is cleared
    work.forward.push_back(elementwise({made, made}));
    if (reads_[0].is_parameter)
      work.backward_weights.push_back(elementwise({made, made, numbers(sizes_of(reads_[0]))}));
    return;
  }
  int64_t read = 0;
  int64_t weights = 0;
  for (const Operand& operand : reads_) {
    int64_t& sum = operand.is_parameter ? weights : read;
    sum = saturating_add(sum, numbers(sizes_of(operand)));
  }
  const auto pass = [&](std::initializer_list<int64_t> tensors) {
    return is_one_of(name_, kNorms) ? normalization(tensors) : elementwise(tensors);
  };
  work.forward.push_back(pass({read, weights, made}));
  work.backward_inputs.push_back(pass({read, weights, made, read}));
  if (weights > 0) work.backward_weights.push_back(pass({read, made, weights}));
}

}  // namespace penstock::imported

#include "penstock/runtime/coding/coded_tensor.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <array>

#include "penstock/runtime/coding/subspace.h"
#include "penstock/util/numbers/block_int8.h"

namespace penstock::runtime {
namespace {

using plan::BoundaryCoding;

bool is_short(at::ScalarType type) { return type == at::kBFloat16 || type == at::kHalf; }

/// How the tensors of one coding travel.
struct TensorCoding {
  bool (*takes)(const TensorLayout& layout, int64_t rank);
  TensorLayout (*layout)(const TensorLayout& layout, int64_t rank);
  at::Tensor (*encode)(const at::Tensor& tensor, int64_t rank, std::optional<uint32_t> seed);
  at::Tensor (*decode)(const at::Tensor& coded, const TensorLayout& layout);
};

bool takes_nothing(const TensorLayout&, int64_t) { return false; }
bool takes_float32(const TensorLayout& layout, int64_t) { return layout.type == at::kFloat; }
bool takes_floats(const TensorLayout& layout, int64_t) {
  return layout.type == at::kFloat || is_short(layout.type);
}
bool takes_tokens(const TensorLayout& layout, int64_t rank) {
  return takes_floats(layout, rank) && has_subspace(layout.sizes, rank);
}

template <at::ScalarType type>
TensorLayout rounded_layout(const TensorLayout& layout, int64_t) {
  return {.sizes = layout.sizes, .type = type};
}
template <at::ScalarType type>
at::Tensor rounded_to(const at::Tensor& tensor, int64_t, std::optional<uint32_t>) {
  return tensor.to(type);
}
at::Tensor widened(const at::Tensor& coded, const TensorLayout& layout) {
  return coded.to(layout.type);
}

TensorLayout int8_layout(const TensorLayout& layout, int64_t) {
  int64_t numbers = 1;
  for (const int64_t size : layout.sizes) numbers *= size;
  return {.sizes = {static_cast<int64_t>(block_int8_bytes(static_cast<size_t>(numbers)))},
          .type = at::kByte};
}
at::Tensor to_int8(const at::Tensor& tensor, int64_t, std::optional<uint32_t> seed) {
  const at::Tensor numbers = tensor.to(at::kFloat).contiguous();
  const auto count = static_cast<size_t>(numbers.numel());
  at::Tensor coded = at::empty({static_cast<int64_t>(block_int8_bytes(count))}, at::kByte);
  to_block_int8(numbers.data_ptr<float>(), count, static_cast<std::byte*>(coded.data_ptr()), seed);
  return coded;
}
at::Tensor from_int8(const at::Tensor& coded, const TensorLayout& layout) {
  at::Tensor numbers = at::empty(layout.sizes, at::kFloat);
  from_block_int8(static_cast<const std::byte*>(coded.data_ptr()),
                  static_cast<size_t>(numbers.numel()), numbers.data_ptr<float>());
  return numbers.to(layout.type);
}

TensorLayout subspace_layout(const TensorLayout& layout, int64_t rank) {
  TensorLayout coded = layout;
  coded.sizes.back() = rank;
  return coded;
}
at::Tensor to_coefficients(const at::Tensor& tensor, int64_t rank, std::optional<uint32_t>) {
  return into_subspace(tensor.to(at::kFloat), rank).to(tensor.scalar_type());
}
at::Tensor from_coefficients(const at::Tensor& coded, const TensorLayout& layout) {
  return out_of_subspace(coded.to(at::kFloat), layout.sizes.back()).to(layout.type);
}

/// By plan::Coding.
constexpr std::array<TensorCoding, plan::kNumCodings> kTensorCodings = {{
    {takes_nothing, nullptr, nullptr, nullptr},
    {takes_float32, rounded_layout<at::kBFloat16>, rounded_to<at::kBFloat16>, widened},
    {takes_float32, rounded_layout<at::kHalf>, rounded_to<at::kHalf>, widened},
    {takes_floats, int8_layout, to_int8, from_int8},
    {takes_tokens, subspace_layout, to_coefficients, from_coefficients},
}};

const TensorCoding& of(const BoundaryCoding& coding) {
  return kTensorCodings[static_cast<size_t>(coding.kind)];
}

}  // namespace

TensorLayout coded_layout(const TensorLayout& layout, const BoundaryCoding& coding) {
  return of(coding).takes(layout, coding.rank) ? of(coding).layout(layout, coding.rank) : layout;
}

at::Tensor encode(const at::Tensor& tensor, const BoundaryCoding& coding,
                  std::optional<uint32_t> seed) {
  const at::NoGradGuard no_grad;
  const TensorLayout layout{.sizes = tensor.sizes().vec(), .type = tensor.scalar_type()};
  if (!of(coding).takes(layout, coding.rank)) return tensor;
  return of(coding).encode(tensor, coding.rank, seed);
}

at::Tensor decode(const at::Tensor& coded, const TensorLayout& layout,
                  const BoundaryCoding& coding) {
  const at::NoGradGuard no_grad;
  return of(coding).takes(layout, coding.rank) ? of(coding).decode(coded, layout) : coded;
}

}  // namespace penstock::runtime

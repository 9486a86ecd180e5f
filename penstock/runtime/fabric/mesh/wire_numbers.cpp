#include "penstock/runtime/fabric/mesh/wire_numbers.h"

#include <ATen/Functions.h>

#include "penstock/util/check.h"

namespace penstock::runtime {

namespace {

size_t count_of(const at::Tensor& tensor) { return static_cast<size_t>(tensor.numel()); }

const uint16_t* short_numbers(const at::Tensor& tensor) {
  return static_cast<const uint16_t*>(tensor.data_ptr());
}

FloatType type_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return FloatType::Float32;
    case at::kBFloat16:
      return FloatType::BFloat16;
    default:
      PENSTOCK_CHECK(tensor.scalar_type() == at::kHalf, tensor.scalar_type());
      return FloatType::Float16;
  }
}

}  // namespace

at::ScalarType scalar_type(FloatType type) {
  switch (type) {
    case FloatType::Float32:
      return at::kFloat;
    case FloatType::BFloat16:
      return at::kBFloat16;
    case FloatType::Float16:
      return at::kHalf;
  }
  return at::kFloat;
}

model::Tensors narrowed(const model::Tensors& tensors, FloatType type) {
  if (!is_short(type)) return tensors;
  model::Tensors result;
  for (const at::Tensor& tensor : tensors) {
    at::Tensor& numbers = result.emplace_back();
    if (!tensor.defined()) continue;
    numbers = at::empty({tensor.numel()}, scalar_type(type));
    narrow(type, tensor.data_ptr<float>(), static_cast<uint16_t*>(numbers.data_ptr()),
           count_of(tensor));
  }
  return result;
}

at::Tensor widened(const at::Tensor& numbers) {
  const FloatType type = type_of(numbers);
  if (!is_short(type)) return numbers;
  at::Tensor result = at::empty({numbers.numel()}, at::kFloat);
  widen(type, short_numbers(numbers), result.data_ptr<float>(), count_of(numbers));
  return result;
}

void write(const at::Tensor& numbers, const at::Tensor& place) {
  const FloatType type = type_of(numbers);
  if (is_short(type))
    widen(type, short_numbers(numbers), place.data_ptr<float>(), count_of(numbers));
  else if (place.data_ptr() != numbers.data_ptr())
    place.copy_(numbers);
}

void add_part(at::Tensor& sum, const at::Tensor& part, FloatType type) {
  if (!part.defined()) return;
  const bool is_wide = part.scalar_type() == at::kFloat;
  if (!sum.defined()) {
    sum = widened(part);
    if (is_wide && is_short(type)) round_in_place(type, sum.data_ptr<float>(), count_of(sum));
  } else if (!is_wide) {
    add_widened(type, sum.data_ptr<float>(), short_numbers(part), count_of(part));
  } else if (is_short(type)) {
    add_rounded(type, sum.data_ptr<float>(), part.data_ptr<float>(), count_of(part));
  } else {
    sum.add_(part);
  }
}

}  // namespace penstock::runtime

#include "penstock/model/layers/int8_product.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <vector>

#include "penstock/model/torch_compat.h"

namespace penstock::model {

namespace {

/// Of rows that are floating-point numbers at the same time.
constexpr int64_t kSliceNumbers = int64_t{1} << 20;
constexpr int64_t kScaleBytes = sizeof(float);

/// `body(begin, rows)` for all rows, a slice at a time.
template <class Body>
void for_slices(const at::Tensor& packed, int64_t columns, Body body) {
  const int64_t all = packed.size(0);
  const int64_t most = std::max<int64_t>(1, kSliceNumbers / std::max<int64_t>(1, columns));
  for (int64_t begin = 0; begin < all; begin += most) body(begin, std::min(most, all - begin));
}

at::Tensor matrix_of(const at::Tensor& tensor) {
  return tensor.reshape({-1, tensor.size(-1)}).contiguous();
}

}  // namespace

/// The product without its bias.
class Int8Product : public torch::autograd::Function<Int8Product> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& packed) {
    context->save_for_backward({packed});
    context->saved_data["columns"] = input.size(-1);
    std::vector<int64_t> sizes = input.sizes().vec();
    const at::Tensor rows = matrix_of(input);
    at::Tensor result = at::empty({rows.size(0), packed.size(0)}, rows.options());
    for_slices(packed, rows.size(1), [&](int64_t begin, int64_t count) {
      const at::Tensor weight = unpack_int8(packed, rows.size(1), rows.scalar_type(), begin, count);
      at::Tensor part = result.narrow(1, begin, count);
      at::mm_out(part, rows, weight.t());
    });
    sizes.back() = packed.size(0);
    return at::_unsafe_view(result, sizes);  // callers may change the result in place
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const at::Tensor packed = context->get_saved_variables().front();
    const int64_t columns = context->saved_data["columns"].toInt();
    const at::Tensor rows = matrix_of(gradients.front());
    at::Tensor sum;  // in float32: the slices' products are rounded once each
    for_slices(packed, columns, [&](int64_t begin, int64_t count) {
      const at::Tensor weight = unpack_int8(packed, columns, rows.scalar_type(), begin, count);
      const at::Tensor part = rows.narrow(1, begin, count);
      if (!sum.defined())
        sum = at::mm(part, weight).to(at::kFloat);
      else if (rows.scalar_type() == at::kFloat)
        sum.addmm_(part, weight);
      else
        sum.add_(at::mm(part, weight));
    });
    std::vector<int64_t> sizes = gradients.front().sizes().vec();
    sizes.back() = columns;
    return {sum.to(rows.scalar_type()).view(sizes), at::Tensor()};
  }
};

int64_t int8_block(int64_t columns) {
  for (const int64_t block : {128, 64}) {
    if (columns % block == 0 && columns > 0) return block;
  }
  return std::max<int64_t>(1, columns);
}

int64_t int8_row_bytes(int64_t columns) {
  return columns + kScaleBytes * (columns / int8_block(columns));
}

at::Tensor pack_int8(const at::Tensor& weight) {
  const int64_t rows = weight.size(0);
  const int64_t columns = weight.size(1);
  const int64_t block = int8_block(columns);
  at::Tensor packed = at::empty({rows, int8_row_bytes(columns)}, weight.options().dtype(at::kChar));
  for_slices(packed, columns, [&](int64_t begin, int64_t count) {
    const at::Tensor numbers =
        weight.narrow(0, begin, count).to(at::kFloat).reshape({count, -1, block});
    const at::Tensor scales = numbers.abs().amax(-1, true) / 127;
    const at::Tensor whole =
        (numbers / scales.masked_fill(scales == 0, 1)).round().clamp(-127, 127).to(at::kChar);
    const at::Tensor into = packed.narrow(0, begin, count);
    into.narrow(1, 0, columns).copy_(whole.view({count, columns}));
    into.narrow(1, columns, into.size(1) - columns)
        .copy_(scales.view({count, -1}).contiguous().view(at::kChar));
  });
  return packed;
}

at::Tensor unpack_int8(const at::Tensor& packed, int64_t columns, at::ScalarType type,
                       int64_t begin, int64_t rows) {
  const at::Tensor from = packed.narrow(0, begin, rows);
  at::Tensor numbers = at::empty({rows, columns}, packed.options().dtype(at::kFloat));
  numbers.copy_(from.narrow(1, 0, columns));
  // A copy: the numbers before it may end anywhere.
  const at::Tensor scales = from.narrow(1, columns, packed.size(1) - columns)
                                .clone(at::MemoryFormat::Contiguous)
                                .view(at::kFloat);
  numbers.view({rows, scales.size(1), -1}).mul_(scales.unsqueeze(-1));
  return numbers.to(type);
}

at::Tensor int8_linear(const at::Tensor& input, const at::Tensor& packed, const at::Tensor& bias) {
  const at::Tensor product = Int8Product::apply(input, packed);
  return bias.defined() ? product + bias.to(product.scalar_type()) : product;
}

}  // namespace penstock::model

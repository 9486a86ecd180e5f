#include "penstock/model/layers/work.h"

#include <algorithm>

#include "penstock/util/numbers/arithmetic.h"

namespace penstock::model::detail {
namespace {

using profile::Operation;
using profile::OperationKind;

/// Of a tile of the transformed method, per dimension.
constexpr int64_t kTileOutputs = 4;

/// A multiplication and an addition.
constexpr int64_t kFlopsPerProduct = 2;

int64_t product(std::initializer_list<int64_t> factors) {
  int64_t result = 1;
  for (const int64_t factor : factors) result = saturating_mul(result, factor);
  return result;
}

int64_t sum(std::initializer_list<int64_t> terms) {
  int64_t result = 0;
  for (const int64_t term : terms) result = saturating_add(result, term);
  return result;
}

Operation pass(OperationKind kind, std::initializer_list<int64_t> numbers) {
  Operation operation;
  operation.kind = kind;
  operation.flops = std::max(numbers);
  operation.bytes = tensor_bytes(sum(numbers));
  return operation;
}

}  // namespace

int64_t batch_numbers(const std::vector<Shape>& shapes, int64_t batch) {
  int64_t total = 0;
  for (const Shape& shape : shapes) {
    int64_t numbers = batch;
    for (const int64_t size : shape) numbers = saturating_mul(numbers, size);
    total = saturating_add(total, numbers);
  }
  return total;
}

int64_t tensor_bytes(int64_t numbers) {
  return saturating_mul(numbers, static_cast<int64_t>(sizeof(float)));
}

Operation elementwise(std::initializer_list<int64_t> numbers) {
  return pass(OperationKind::Elementwise, numbers);
}

Operation copy(int64_t numbers) { return elementwise({numbers, numbers}); }

profile::LayerWork kept_output(const profile::Operation& forward, int64_t numbers) {
  return {.forward = {forward},
          .backward_weights = {},
          .backward_inputs = {},
          .stash_bytes = tensor_bytes(numbers),
          .saves_inputs = false,
          .saves_outputs = false};
}

Operation normalization(std::initializer_list<int64_t> numbers) {
  return pass(OperationKind::Normalization, numbers);
}

Operation matrix_product(int64_t rows, int64_t inner, int64_t columns) {
  Operation operation;
  operation.kind = OperationKind::Matmul;
  operation.flops = product({kFlopsPerProduct, rows, inner, columns});
  operation.bytes = tensor_bytes(
      sum({product({rows, inner}), product({inner, columns}), product({rows, columns})}));
  return operation;
}

Operation products(int64_t count, const ProductSizes& sizes) {
  Operation operation = matrix_product(sizes.rows, sizes.inner, sizes.columns);
  operation.flops = saturating_mul(operation.flops, count);
  operation.bytes = saturating_mul(operation.bytes, count);
  return operation;
}

int64_t transformed_tiles(int64_t height, int64_t width) {
  return saturating_mul(ceil_div(height, kTileOutputs), ceil_div(width, kTileOutputs));
}

Operation convolution(const ConvolutionCount& count) {
  const int64_t weights = product(
      {count.in_channels / count.groups, count.out_channels, count.kernel, count.kernel_width});
  Operation operation;
  operation.kind = OperationKind::Convolution;
  operation.flops = product({kFlopsPerProduct, count.batch, count.out_pixels, weights});
  operation.bytes =
      tensor_bytes(sum({product({count.batch, count.in_channels, count.in_pixels}), weights,
                        product({count.batch, count.out_channels, count.out_pixels})}));
  if (count.kernel > 1 || count.kernel_width > 1)
    operation.products_per_output =
        product({count.in_channels / count.groups, count.kernel, count.kernel_width});
  if (count.tiles > 0) {
    // A transformed tile holds its outputs and the border that the windows need.
    const int64_t tile_side = kTileOutputs + count.kernel - 1;
    const int64_t numbers_per_tile = product({tile_side, tile_side});
    const int64_t tile_numbers = product({numbers_per_tile, count.batch, count.tiles});
    operation.transformed_flops =
        product({kFlopsPerProduct, tile_numbers, count.in_channels, count.out_channels});
    operation.transformed_bytes = tensor_bytes(
        sum({product({tile_numbers, saturating_add(count.in_channels, count.out_channels)}),
             product({numbers_per_tile, count.in_channels, count.out_channels})}));
  }
  return operation;
}

}  // namespace penstock::model::detail

// How the builtin layers count their work. Numbers are single precision; every count saturates.
//
//   work.forward = {matrix_product(batch, in_features, features), copy(batch * features)};
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "penstock/model/layer.h"
#include "penstock/profile/operation.h"

namespace penstock::model::detail {

/// Numbers in tensors of these shapes for `batch` samples.
int64_t batch_numbers(const std::vector<Shape>& shapes, int64_t batch);
int64_t tensor_bytes(int64_t numbers);

/// One pass that reads or writes tensors of these sizes in numbers, one flop per number of the
/// largest.
profile::Operation elementwise(std::initializer_list<int64_t> numbers);
/// Reads and writes a tensor.
profile::Operation copy(int64_t numbers);
/// Of a layer that makes a tensor of so many numbers in one operation, and saves nothing: its
/// inputs' gradients are the output's, or views of it.
profile::LayerWork kept_output(const profile::Operation& forward, int64_t numbers);
/// Like elementwise(), with reductions between the passes.
profile::Operation normalization(std::initializer_list<int64_t> numbers);

/// [rows, inner] times [inner, columns]. The products of backward use the same three tensors in
/// other roles.
profile::Operation matrix_product(int64_t rows, int64_t inner, int64_t columns);

struct ProductSizes {
  int64_t rows = 1;
  int64_t inner = 1;
  int64_t columns = 1;
};
/// That of `count` pairs of matrices, in one call.
profile::Operation products(int64_t count, const ProductSizes& sizes);

/// Whether libraries offer the transformed method for windows of this size.
constexpr bool has_transformed_method(int64_t kernel) { return kernel == 3 || kernel == 5; }

struct ConvolutionCount {
  int64_t batch = 1;
  int64_t in_channels = 1;
  int64_t out_channels = 1;
  int64_t groups = 1;
  int64_t kernel = 1;
  int64_t kernel_width = 1;
  int64_t in_pixels = 1;  ///< per sample and channel
  int64_t out_pixels = 1;
  /// Of the transformed method, per sample and channel; 0: the shapes do not allow it.
  int64_t tiles = 0;
};

/// Tiles that cover an output of this size.
int64_t transformed_tiles(int64_t height, int64_t width);
/// A convolution. Its two backward convolutions have as many multiplications and use the same three
/// tensors in other roles.
profile::Operation convolution(const ConvolutionCount& count);

}  // namespace penstock::model::detail

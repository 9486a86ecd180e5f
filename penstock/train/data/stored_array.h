// Numbers along a first dimension as they lie in a file, which may be mapped: rows become a tensor
// when they are read, and only then are converted and aligned.
//
//   const StoredArray array = read_npy("x.npy");
//   at::Tensor batch = array.rows(at::tensor({3, 5}));
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "penstock/model/layer.h"

namespace penstock::train {

/// A type of NumPy's and how its numbers come into a tensor.
struct NumberType {
  std::string_view name;  ///< without the order of its bytes: "f4"
  at::ScalarType stored;  ///< of the same width
  at::ScalarType becomes;
  at::Tensor (*convert)(const at::Tensor& stored) = nullptr;  ///< null: they are the same
};

/// Immutable; thread-safe.
class StoredArray {
 public:
  StoredArray() = default;
  /// Of its own type.
  StoredArray(at::Tensor numbers);  // NOLINT(google-explicit-constructor): a tensor is one
  /// `first`: the numbers, row-major, or column-major with the first index fastest. They need no
  /// alignment; `owner` keeps them.
  StoredArray(const void* first, const NumberType& type, model::Shape sizes, bool column_major,
              std::shared_ptr<const void> owner);

  bool defined() const { return numbers_.defined(); }
  at::ScalarType type() const { return type_; }  ///< of rows()
  const model::Shape& sizes() const { return sizes_; }
  int64_t size() const { return sizes_.front(); }  ///< rows; the array is no single number
  /// The same with samples of this shape, of as many numbers; from [height, width, channels] to
  /// [channels, height, width] where that is the shape.
  StoredArray with_samples(const model::Shape& shape) const;

  /// [places, ...].
  at::Tensor rows(const at::Tensor& places) const;
  /// Rows [first, first + count); refers to the array's memory where it can.
  at::Tensor block(int64_t first, int64_t count) const;
  /// Calls visit(first, rows) for all rows, in blocks that need little memory.
  template <class Visit>
  void each_block(const Visit& visit) const {
    const int64_t step = rows_per_block();
    for (int64_t first = 0; first < size(); first += step)
      visit(first, block(first, std::min(step, size() - first)));
  }
  /// The numbers themselves where rows() converts nothing; otherwise null.
  const at::Tensor* plain() const;

 private:
  int64_t rows_per_block() const;
  at::Tensor converted(at::Tensor rows) const;

  at::Tensor numbers_;  ///< [rows, ...], of `stored_`; or [rows, bytes], which are not aligned
  at::ScalarType stored_ = at::kFloat;
  at::ScalarType type_ = at::kFloat;
  at::Tensor (*convert_)(const at::Tensor& stored) = nullptr;
  model::Shape sizes_;
  bool channels_last_ = false;  ///< they lie so
};

/// Whether samples of `found` are images with the channels last, of which `wanted` has them first.
bool has_channels_last(const model::Shape& found, const model::Shape& wanted);

}  // namespace penstock::train

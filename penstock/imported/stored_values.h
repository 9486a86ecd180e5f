// Values of weights and constants out of a .pt2 file, or of files beside it. Internal to imported.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "penstock/exported/program.h"

namespace penstock::imported {

/// A tensor of its own, contiguous, on the CPU, of the type in the file; undefined values (no bytes
/// in the file) are zero. `path`: of the program, whose file has it unless it says another. Throws
/// ConfigError naming file and tensor where the file cannot be read, its check sum is wrong or the
/// sizes do not fit its bytes.
at::Tensor read_values(const std::string& path, const exported::StoredTensor& tensor);

/// A tensor that nothing changes, such as a frozen weight. It is read when it is needed, and goes
/// with the last one who has it: a process that has a part of the model needs no others.
/// Thread-safe.
class StoredConstant {
 public:
  enum class Form : uint8_t { AsStored, Int8 };  ///< Int8: packed, model/layers/int8_product.h

  /// Throws ConfigError where the sizes do not fit its bytes.
  StoredConstant(std::string path, exported::StoredTensor stored, Form form = Form::AsStored);

  /// Of the tensor, as it is held.
  at::ScalarType type() const { return type_; }
  const std::vector<int64_t>& sizes() const { return sizes_; }
  int64_t num_bytes() const;
  /// One tensor for all who have it at the same time. Blocks while it is read, as stored first.
  /// Throws ConfigError as read_values(), and for numbers that are not finite where it is packed.
  at::Tensor tensor() const;

 private:
  std::string path_;
  exported::StoredTensor stored_;
  Form form_;
  at::ScalarType type_;
  std::vector<int64_t> sizes_;
  mutable std::mutex mutex_;
  mutable c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> tensor_;
};

/// Whether all numbers of the tensor, which has some, are within its bytes in the file.
bool lies_within(const exported::StoredTensor& tensor);

/// Throws ConfigError for a type that is not supported.
at::ScalarType torch_type(exported::ScalarType type);

}  // namespace penstock::imported

// Values of weights and constants out of a .pt2 file. Internal to imported.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "penstock/exported/program.h"

namespace penstock::imported {

/// A tensor of its own, contiguous, on the CPU, of the type in the file; undefined values (no bytes
/// in the file) are zero. Throws ConfigError where the file cannot be read or the sizes do not fit
/// its bytes.
at::Tensor read_values(const std::string& path, const exported::StoredTensor& tensor);

/// Whether all numbers of the tensor, which has some, are within its bytes in the file.
bool lies_within(const exported::StoredTensor& tensor);

/// Throws ConfigError for a type that is not supported.
at::ScalarType torch_type(exported::ScalarType type);

}  // namespace penstock::imported

// The memory of tensors on the CPU, as a program sees it that counts from its start: what a plan
// predicts, without libraries, code and what an allocator keeps for later.
//
//   count_tensor_memory();                         // at the start of main()
//   reset_tensor_memory_peak();
//   train();
//   const int64_t peak = tensor_memory().peak;
#pragma once

#include <cstdint>

namespace penstock::model {

/// In bytes, of the whole process, with what the allocator adds to each tensor.
struct TensorMemory {
  int64_t now = 0;
  int64_t peak = 0;  ///< of `now`, since reset_tensor_memory_peak()
};

/// From here on. Before any other thread uses tensors; a second call does nothing. Scratch memory
/// of libraries that do not ask libtorch for it (oneDNN, BLAS) is not counted.
void count_tensor_memory();

/// Thread-safe; zeros where nothing is counted.
TensorMemory tensor_memory();

/// Thread-safe.
void reset_tensor_memory_peak();

}  // namespace penstock::model

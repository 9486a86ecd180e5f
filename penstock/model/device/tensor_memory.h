// The memory of tensors on the CPU, as a program sees it that counts from its start: how much, of
// whom, and for what. Without libraries, code and what an allocator keeps for later, the sum is
// what a plan predicts.
//
//   count_tensor_memory();                         // at the start of main()
//   reset_tensor_memory_peak();
//   train();
//   const int64_t peak = tensor_memory().peak;
//
// Threads say what they take memory for; a tensor that becomes something else is told so:
//
//   const MemoryOwner worker(WorkerId{2});
//   {
//     const MemoryPass forward(MemoryKind::Activations);
//     outputs = layer.forward(...);                // working memory; what is left: activations
//   }
//   set_memory_kind(outputs[0], MemoryKind::Messages);
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "penstock/util/ids.h"
#include "penstock/util/process/memory_kinds.h"

namespace penstock::model {

/// In bytes, of the whole process, with what the allocator adds to each tensor.
struct TensorMemory {
  int64_t now = 0;
  int64_t peak = 0;  ///< of `now`, since reset_tensor_memory_peak()
};

/// From here on. Before any other thread uses tensors; a second call does nothing. Each tensor gets
/// a head of 64 bytes. Scratch memory of libraries that do not ask libtorch for it (oneDNN, BLAS)
/// is not counted.
void count_tensor_memory();

/// Thread-safe; zeros where nothing is counted.
TensorMemory tensor_memory();
/// The same by kind: all tensors, those that a worker has taken or been given, at the peak of each.
MemoryBytes tensor_memory_peak();
MemoryBytes tensor_memory_peak(WorkerId worker);
/// What the process had when it was largest, looked at near the peaks of its tensors.
ProcessMemory process_memory_peak();

/// Of all of them. Thread-safe.
void reset_tensor_memory_peak();

/// While it lives, what this thread takes belongs to the worker. One thread at a time per worker.
class MemoryOwner {
 public:
  explicit MemoryOwner(WorkerId worker);
  ~MemoryOwner();
  MemoryOwner(const MemoryOwner&) = delete;
  MemoryOwner& operator=(const MemoryOwner&) = delete;

 private:
  uint16_t before_;
};

/// While it lives, what this thread takes is of this kind, also within a pass.
class MemoryScope {
 public:
  explicit MemoryScope(MemoryKind kind);
  ~MemoryScope();
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;

 private:
  MemoryKind kind_before_;
  uint32_t pass_before_;
};

/// While it lives, what a worker's thread takes is working memory. What is left of it then is of
/// the kind `kept`. In other threads nothing. Not within another pass.
class MemoryPass {
 public:
  explicit MemoryPass(MemoryKind kept);
  ~MemoryPass();
  MemoryPass(const MemoryPass&) = delete;
  MemoryPass& operator=(const MemoryPass&) = delete;

 private:
  MemoryKind kind_before_;
  uint32_t pass_ = 0;
};

/// The tensor's memory, of which others may be views, is of this kind from here on, and belongs to
/// this thread's worker. Nothing for memory that is not counted. O(1).
void set_memory_kind(const at::Tensor& tensor, MemoryKind kind);

}  // namespace penstock::model

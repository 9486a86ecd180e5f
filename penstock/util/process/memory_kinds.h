// What the bytes of a run are for, and what a process holds beside its tensors.
//
//   MemoryBytes bytes;
//   bytes[MemoryKind::Weights] = 4096;
//   bytes.sum();                          // 4096
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace penstock {

enum class MemoryKind : uint8_t {
  Weights,         ///< the newest version, and the float32 weights behind those of 16 bits
  Versions,        ///< older ones, and their memory kept for reuse
  Gradients,       ///< of weights, summed
  OptimizerState,  ///< as the optimiser names it
  Activations,     ///< what passes keep until their backward passes (the stash)
  Messages,        ///< received, or about to leave
  Inputs,          ///< the data set, and batches made of it
  Constants,       ///< frozen weights, constants of the program, buffers
  Profile,         ///< what profiling has left
  Working,         ///< of passes and steps that run
  Other,
};

inline constexpr size_t kNumMemoryKinds = 11;

/// "weights", "versions", "gradients", ...: one word each, as JSON files have them.
std::string_view to_string(MemoryKind kind);

/// Bytes of each kind.
struct MemoryBytes {
  std::array<int64_t, kNumMemoryKinds> of = {};

  int64_t& operator[](MemoryKind kind) { return of[static_cast<size_t>(kind)]; }
  int64_t operator[](MemoryKind kind) const { return of[static_cast<size_t>(kind)]; }
  int64_t sum() const;
  bool operator==(const MemoryBytes&) const = default;
};

/// What a process had in memory, by its own account, when it was largest. Bytes.
struct ProcessMemory {
  MemoryBytes tensors = {};
  int64_t libraries = 0;  ///< code and data of program and libraries, as they were at the start
  int64_t objects = 0;    ///< in use in the heap since then, beside tensors
  int64_t slack = 0;      ///< free in the heap, and not given back to the system
  int64_t resident = 0;   ///< all pages, as the system counts them

  /// What is accounted for.
  int64_t named() const { return tensors.sum() + libraries + objects + slack; }
  bool operator==(const ProcessMemory&) const = default;
};

/// What allocator and system say now. Bytes; zeros where they say nothing.
struct HeapState {
  int64_t in_use = 0;    ///< of the heap, by the program
  int64_t free = 0;      ///< of the heap, and not given back to the system
  int64_t resident = 0;  ///< pages of the process
  int64_t shared = 0;    ///< of these, pages of files: code and constants
};

/// Some microseconds with tcmalloc, and more with glibc's allocator and many arenas. Thread-safe.
HeapState heap_state();

}  // namespace penstock

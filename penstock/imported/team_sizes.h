// Sizes of a program's values as numbers that tell symbols apart, and where a part lies after a
// change of shape. Internal to imported.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "penstock/imported/flat_program.h"
#include "penstock/imported/symbolic_size.h"
#include "penstock/shard/type.h"

namespace penstock::imported {

/// Of one value. Symbols, such as the batch, count as large primes of their own: products of sizes
/// are equal only where they are for all batches.
struct ValueSizes {
  std::vector<int64_t> numbers;
  std::vector<bool> fixed;  ///< not made of symbols
  size_t rank() const { return numbers.size(); }
};

/// Not thread-safe.
class TeamSizes {
 public:
  explicit TeamSizes(const FlatProgram& program) : program_(program) {}
  /// Of rank 0 where it is not described.
  const ValueSizes& of(const std::string& name);

 private:
  const FlatProgram& program_;
  Symbols primes_;
  std::map<std::string, ValueSizes> known_;
};

/// A part after a change of shape.
struct ReshapedPart {
  size_t dimension = 0;
  std::vector<int64_t> blocks;
  std::vector<int64_t> divides = {};  ///< lengths that the region's units must divide
};

/// Where a part along `part.dimension` lies when the numbers of `from`, in order, are given the
/// sizes `to`. Nothing: not along one dimension.
std::optional<ReshapedPart> reshaped(const shard::Type& part, const ValueSizes& from,
                                     const ValueSizes& to);

}  // namespace penstock::imported

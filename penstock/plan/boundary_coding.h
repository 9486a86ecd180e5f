// How the values between two stages travel, and the gradients that come back: a row each. A lossy
// coding makes messages smaller and changes what is learned. docs/small-messages.md has the
// formulas and what they cost; runtime/coding/ computes them.
//
//   const BoundaryCoding coding = parse_boundary("int8");
//   coded_bytes(coding, {.bytes = 4096}) == 1056;   // of 1024 numbers in float32
//
// No coding keeps anything from message to message. Error feedback would add what one micro-batch
// lost to the values of other samples, which are not its own; so gradients in int8 are rounded at
// random instead, without bias (docs/small-messages.md, "Why no error feedback").
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "penstock/util/numbers/precision.h"

namespace penstock::plan {

enum class Coding : uint8_t {
  Float32,   ///< as they are, in whatever the model computes
  BFloat16,  ///< 16 bits, rounded to the nearest
  Float16,   ///< the same; what is above 65,504 becomes infinite
  Int8,      ///< 8 bits, and a scale for each 64 numbers (util/numbers/block_int8.h)
  /// The coefficients of each token in a fixed orthonormal basis. Source: Ramasinghe et al.,
  /// "Protocol Models", NeurIPS 2025 (arXiv 2506.01260), whose models write nothing outside of it.
  Subspace,
};
inline constexpr size_t kNumCodings = static_cast<size_t>(Coding::Subspace) + 1;
inline constexpr int64_t kMostRank = 65'536;

/// The coding of one boundary, both ways.
struct BoundaryCoding {
  Coding kind = Coding::Float32;
  int64_t rank = 0;  ///< of the subspace; 0 for the others

  bool is_exact() const { return kind == Coding::Float32; }
  bool operator==(const BoundaryCoding&) const = default;
};

/// The values of a message.
struct CodedValues {
  int64_t bytes = 0;  ///< as the model computes them
  Precision precision = Precision::Float32;
  int64_t width = 0;  ///< numbers of a token, the last size of the value; 0: not known
};

struct CodingTraits {
  Coding coding = Coding::Float32;
  std::string_view name;     ///< on command lines and in files; that of a subspace ends in ":K"
  std::string_view summary;  ///< for people
  bool takes_rank = false;
  /// What travels of so many numbers of 32 bits, of tokens of `width`; null: as many bytes as there
  /// are.
  int64_t (*bytes)(int64_t numbers, int64_t width, int64_t rank) = nullptr;
  /// The same of numbers of 16 bits; null: as they are.
  int64_t (*short_bytes)(int64_t numbers, int64_t width, int64_t rank) = nullptr;
  /// What 1000 numbers take from the processor of each end, roughly (benchmarks/coding_bench.cpp,
  /// AMD EPYC); of a subspace for each unit of its rank.
  int64_t ns_per_1000 = 0;
};

/// In their order.
std::span<const CodingTraits> codings();
const CodingTraits& traits(Coding coding);

/// "float32", "bfloat16", "float16", "int8", "subspace:160".
std::string to_string(const BoundaryCoding& coding);
/// Throws ConfigError listing the names when `name` is none of them, or the rank is not from 1 to
/// kMostRank.
BoundaryCoding parse_boundary(std::string_view name);
/// Also "auto", which is nothing.
std::optional<BoundaryCoding> parse_boundary_choice(std::string_view name);

/// What travels of these values. A subspace of tokens whose width is not known counts as if nothing
/// were coded. Saturates.
int64_t coded_bytes(const BoundaryCoding& coding, const CodedValues& values);
/// What coding or decoding them takes from a worker. Saturates.
int64_t coding_ns(const BoundaryCoding& coding, const CodedValues& values);

}  // namespace penstock::plan

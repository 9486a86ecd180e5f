// The numbers in which a model computes: its activations, their gradients, and the versions of the
// weights that computation reads. Trained weights, optimiser state and sums of gradients are
// float32 in every precision (docs/training.md, "Precision").
//
//   const Precision precision = parse_precision("bfloat16");
//   is_short(precision);     // 16 bits: half of the bytes
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "penstock/util/numbers/short_floats.h"

namespace penstock {

enum class Precision : uint8_t {
  Float32,
  Tf32,      ///< float32 whose products GPUs make of 10 bits of fraction
  BFloat16,  ///< 16 bits with float32's range
  Float16,   ///< 16 bits up to 65504: the loss is scaled, so that small gradients do not vanish
};

inline constexpr std::array kPrecisions = {Precision::Float32, Precision::Tf32, Precision::BFloat16,
                                           Precision::Float16};

/// "float32", "tf32", "bfloat16", "float16".
std::string_view to_string(Precision precision);
/// Throws ConfigError listing the names when `name` is none of them.
Precision parse_precision(std::string_view name);

/// In which activations are stored.
constexpr FloatType float_type(Precision precision) {
  return precision == Precision::BFloat16  ? FloatType::BFloat16
         : precision == Precision::Float16 ? FloatType::Float16
                                           : FloatType::Float32;
}
constexpr bool is_short(Precision precision) { return is_short(float_type(precision)); }
/// Whether the loss is scaled, and steps whose gradients are not finite are left out.
constexpr bool scales_loss(Precision precision) { return precision == Precision::Float16; }

}  // namespace penstock

// Numbers of 16 bits in which values travel: conversion from and to float32, and addition in
// float32. Vectorised: AVX2 and F16C where the processor has them, otherwise loops that the
// compiler vectorises for any processor; both give the same bits. Pure functions, thread-safe.
//
//   std::vector<uint16_t> sent(count);
//   narrow(FloatType::BFloat16, gradient, sent.data(), count);       // half of the bytes
//   add_widened(FloatType::BFloat16, sum, sent.data(), count);       // sum[i] += sent[i]
//
// Rounding is to the nearest, ties to even (IEEE 754). What is too large becomes infinite: from
// 65,520 on in float16, whose largest number is 65,504; bfloat16 has float32's range. float16 has
// subnormal numbers down to 2^-24. narrow() keeps a NaN, quiet, with its sign.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace penstock {

enum class FloatType : uint8_t {
  Float32,
  BFloat16,  ///< 8 bits of exponent, 7 of fraction: float32 without its lower half
  Float16,   ///< 5 bits of exponent, 10 of fraction: IEEE 754's binary16
};

constexpr bool is_short(FloatType type) { return type != FloatType::Float32; }
constexpr int64_t bytes_of(FloatType type) { return is_short(type) ? 2 : 4; }
/// "float32", "bfloat16", "float16".
std::string_view to_string(FloatType type);

// All of these for a short type; ranges that do not overlap.

void narrow(FloatType type, const float* from, uint16_t* to, size_t count);
/// Exact.
void widen(FloatType type, const uint16_t* from, float* to, size_t count);
/// sum[i] += part[i]
void add_widened(FloatType type, float* sum, const uint16_t* part, size_t count);
/// What narrow() and widen() make of it, in its place.
void round_in_place(FloatType type, float* values, size_t count);
/// sum[i] += part[i], which is rounded before.
void add_rounded(FloatType type, float* sum, const float* part, size_t count);

/// The functions above for one type.
struct ShortFloatLoops {
  void (*narrow)(const float*, uint16_t*, size_t);
  void (*widen)(const uint16_t*, float*, size_t);
  void (*add_widened)(float*, const uint16_t*, size_t);
  void (*round_in_place)(float*, size_t);
  void (*add_rounded)(float*, const float*, size_t);
};
/// Those for any processor.
const ShortFloatLoops& portable_loops(FloatType type);
/// Those that this processor runs fastest: what the functions above use.
const ShortFloatLoops& best_loops(FloatType type);

}  // namespace penstock

#include "penstock/util/numbers/short_floats.h"

#include <bit>
#include <cmath>

#if defined(__x86_64__) && defined(__GNUC__)
#define PENSTOCK_HAS_F16C 1
#include <cpuid.h>
#include <immintrin.h>
#endif

#include "penstock/util/check.h"

namespace penstock {

namespace {

// Without branches, so that loops over them become vector instructions.

constexpr uint32_t kSign = 0x8000'0000;
constexpr uint32_t kInfinity = 0x7F80'0000;
constexpr uint32_t kQuiet = 0x0040'0000;

inline uint32_t bits_of(float value) { return std::bit_cast<uint32_t>(value); }

struct BFloat16 {
  [[gnu::always_inline]] static inline uint16_t narrow(float value) {
    const uint32_t bits = bits_of(value);
    // A carry out of the fraction is right, too: into the exponent, and from there to infinity.
    const uint32_t rounded = bits + 0x7FFF + (bits >> 16 & 1);
    const uint32_t nan = bits | kQuiet;
    return static_cast<uint16_t>((std::isnan(value) ? nan : rounded) >> 16);
  }
  [[gnu::always_inline]] static inline float widen(uint16_t value) {
    return std::bit_cast<float>(uint32_t{value} << 16);
  }
};

struct Float16 {
  static constexpr uint32_t kTooLarge = 0x4780'0000;        // 65536
  static constexpr uint32_t kSmallestNormal = 0x3880'0000;  // 2^-14
  static constexpr uint32_t kOfExponents = 112U << 23;      // 127 - 15: the difference of biases

  [[gnu::always_inline]] static inline uint16_t narrow(float value) {
    const uint32_t sign = bits_of(value) >> 16 & 0x8000;
    const uint32_t bits = bits_of(value) & ~kSign;
    const uint32_t special = bits > kInfinity ? 0x7E00 | (bits >> 13 & 0x3FF) : 0x7C00;
    // In the sum with 0.5 the last bit is 2^-24, that of a subnormal number: the addition rounds.
    const float aligned = std::bit_cast<float>(bits) + 0.5F;
    const uint32_t subnormal = bits_of(aligned) - bits_of(0.5F);
    const uint32_t normal = (bits - kOfExponents + 0xFFF + (bits >> 13 & 1)) >> 13;
    const uint32_t finite = bits < kSmallestNormal ? subnormal : normal;
    return static_cast<uint16_t>(sign | (bits >= kTooLarge ? special : finite));
  }
  [[gnu::always_inline]] static inline float widen(uint16_t value) {
    const uint32_t sign = uint32_t{value & 0x8000U} << 16;
    const uint32_t bits = uint32_t{value & 0x7FFFU} << 13;
    const uint32_t normal = bits + kOfExponents;
    const uint32_t special = (normal + kOfExponents) | (bits > 0x0F80'0000 ? kQuiet : 0);
    // A subnormal number has no leading 1: 2^-14 is added before, and taken away behind.
    const float small =
        std::bit_cast<float>(bits + kSmallestNormal) - std::bit_cast<float>(kSmallestNormal);
    const uint32_t finite = bits < 0x0080'0000 ? bits_of(small) : normal;
    return std::bit_cast<float>(sign | (bits >= 0x0F80'0000 ? special : finite));
  }
};

template <class Format>
struct Loops {
  [[gnu::always_inline]] static inline void narrow(const float* from, uint16_t* to, size_t count) {
#pragma omp simd
    for (size_t i = 0; i < count; ++i) to[i] = Format::narrow(from[i]);
  }
  [[gnu::always_inline]] static inline void widen(const uint16_t* from, float* to, size_t count) {
#pragma omp simd
    for (size_t i = 0; i < count; ++i) to[i] = Format::widen(from[i]);
  }
  [[gnu::always_inline]] static inline void add_widened(float* sum, const uint16_t* part,
                                                        size_t count) {
#pragma omp simd
    for (size_t i = 0; i < count; ++i) sum[i] += Format::widen(part[i]);
  }
  [[gnu::always_inline]] static inline void round_in_place(float* values, size_t count) {
#pragma omp simd
    for (size_t i = 0; i < count; ++i) values[i] = Format::widen(Format::narrow(values[i]));
  }
  [[gnu::always_inline]] static inline void add_rounded(float* sum, const float* part,
                                                        size_t count) {
#pragma omp simd
    for (size_t i = 0; i < count; ++i) sum[i] += Format::widen(Format::narrow(part[i]));
  }
};

template <class Format>
constexpr ShortFloatLoops kPortable{
    [](const float* from, uint16_t* to, size_t n) { Loops<Format>::narrow(from, to, n); },
    [](const uint16_t* from, float* to, size_t n) { Loops<Format>::widen(from, to, n); },
    [](float* sum, const uint16_t* part, size_t n) { Loops<Format>::add_widened(sum, part, n); },
    [](float* values, size_t n) { Loops<Format>::round_in_place(values, n); },
    [](float* sum, const float* part, size_t n) { Loops<Format>::add_rounded(sum, part, n); }};

#ifdef PENSTOCK_HAS_F16C

// The same loops, which the compiler makes of AVX2's instructions here.
#define PENSTOCK_AVX2 [[gnu::target("avx2,f16c")]]

struct BFloat16Avx2 {
  PENSTOCK_AVX2 static void narrow(const float* from, uint16_t* to, size_t count) {
    Loops<BFloat16>::narrow(from, to, count);
  }
  PENSTOCK_AVX2 static void widen(const uint16_t* from, float* to, size_t count) {
    Loops<BFloat16>::widen(from, to, count);
  }
  PENSTOCK_AVX2 static void add_widened(float* sum, const uint16_t* part, size_t count) {
    Loops<BFloat16>::add_widened(sum, part, count);
  }
  PENSTOCK_AVX2 static void round_in_place(float* values, size_t count) {
    Loops<BFloat16>::round_in_place(values, count);
  }
  PENSTOCK_AVX2 static void add_rounded(float* sum, const float* part, size_t count) {
    Loops<BFloat16>::add_rounded(sum, part, count);
  }
};

// F16C converts eight numbers at once; the rest as above.
struct Float16F16c {
  static constexpr size_t kLanes = 8;

  PENSTOCK_AVX2 static __m128i narrow8(__m256 values) {
    return _mm256_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT);
  }
  PENSTOCK_AVX2 static __m256 widen8(const uint16_t* from) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  PENSTOCK_AVX2 static void narrow(const float* from, uint16_t* to, size_t count) {
    size_t i = 0;
    for (; i + kLanes <= count; i += kLanes)
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), narrow8(_mm256_loadu_ps(from + i)));
    Loops<Float16>::narrow(from + i, to + i, count - i);
  }
  PENSTOCK_AVX2 static void widen(const uint16_t* from, float* to, size_t count) {
    size_t i = 0;
    for (; i + kLanes <= count; i += kLanes) _mm256_storeu_ps(to + i, widen8(from + i));
    Loops<Float16>::widen(from + i, to + i, count - i);
  }
  PENSTOCK_AVX2 static void add_widened(float* sum, const uint16_t* part, size_t count) {
    size_t i = 0;
    for (; i + kLanes <= count; i += kLanes)
      _mm256_storeu_ps(sum + i, _mm256_add_ps(_mm256_loadu_ps(sum + i), widen8(part + i)));
    Loops<Float16>::add_widened(sum + i, part + i, count - i);
  }
  PENSTOCK_AVX2 static void round_in_place(float* values, size_t count) {
    size_t i = 0;
    for (; i + kLanes <= count; i += kLanes)
      _mm256_storeu_ps(values + i, _mm256_cvtph_ps(narrow8(_mm256_loadu_ps(values + i))));
    Loops<Float16>::round_in_place(values + i, count - i);
  }
  PENSTOCK_AVX2 static void add_rounded(float* sum, const float* part, size_t count) {
    size_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      const __m256 rounded = _mm256_cvtph_ps(narrow8(_mm256_loadu_ps(part + i)));
      _mm256_storeu_ps(sum + i, _mm256_add_ps(_mm256_loadu_ps(sum + i), rounded));
    }
    Loops<Float16>::add_rounded(sum + i, part + i, count - i);
  }
};

template <class Functions>
constexpr ShortFloatLoops kFast{Functions::narrow, Functions::widen, Functions::add_widened,
                                Functions::round_in_place, Functions::add_rounded};

bool has_f16c() {
  static const bool has = [] {
    unsigned eax = 0;
    unsigned ebx = 0;
    unsigned ecx = 0;
    unsigned edx = 0;
    // Not every compiler's __builtin_cpu_supports() knows F16C.
    return __builtin_cpu_supports("avx2") != 0 && __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 &&
           (ecx & bit_F16C) != 0;
  }();
  return has;
}

#endif

}  // namespace

std::string_view to_string(FloatType type) {
  switch (type) {
    case FloatType::Float32:
      return "float32";
    case FloatType::BFloat16:
      return "bfloat16";
    case FloatType::Float16:
      return "float16";
  }
  return "float32";
}

const ShortFloatLoops& portable_loops(FloatType type) {
  PENSTOCK_CHECK(is_short(type), "float32 is not converted");
  return type == FloatType::BFloat16 ? kPortable<BFloat16> : kPortable<Float16>;
}

const ShortFloatLoops& best_loops(FloatType type) {
#ifdef PENSTOCK_HAS_F16C
  if (has_f16c() && is_short(type))
    return type == FloatType::BFloat16 ? kFast<BFloat16Avx2> : kFast<Float16F16c>;
#endif
  return portable_loops(type);
}

void narrow(FloatType type, const float* from, uint16_t* to, size_t count) {
  best_loops(type).narrow(from, to, count);
}

void widen(FloatType type, const uint16_t* from, float* to, size_t count) {
  best_loops(type).widen(from, to, count);
}

void add_widened(FloatType type, float* sum, const uint16_t* part, size_t count) {
  best_loops(type).add_widened(sum, part, count);
}

void round_in_place(FloatType type, float* values, size_t count) {
  best_loops(type).round_in_place(values, count);
}

void add_rounded(FloatType type, float* sum, const float* part, size_t count) {
  best_loops(type).add_rounded(sum, part, count);
}

}  // namespace penstock

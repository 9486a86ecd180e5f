#include "penstock/util/numbers/short_floats.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "penstock/util/numbers/rng.h"

namespace penstock {
namespace {

constexpr size_t kAll = 65536;

/// The format by its definition: bits of exponent and of fraction.
struct Format {
  FloatType type;
  int exponent_bits;
  int fraction_bits;

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  double largest() const {
    return std::ldexp(2 - std::ldexp(1.0, -fraction_bits), (1 << exponent_bits) - 2 - bias());
  }
  /// The value of 16 bits.
  double value(uint16_t bits) const {
    const int fraction = bits & ((1 << fraction_bits) - 1);
    const int exponent = bits >> fraction_bits & ((1 << exponent_bits) - 1);
    const double sign = (bits & 0x8000) != 0 ? -1 : 1;
    if (exponent == (1 << exponent_bits) - 1) return fraction == 0 ? sign * HUGE_VAL : std::nan("");
    if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias() - fraction_bits);
    return sign * std::ldexp((1 << fraction_bits) + fraction, exponent - bias() - fraction_bits);
  }
  /// The nearest number of the format, ties to the even one: by arithmetic in double precision.
  double rounded(float value) const {
    if (std::isnan(value) || std::isinf(value) || value == 0) return value;
    const int exponent = std::max(std::ilogb(value), 1 - bias());
    const double unit = std::ldexp(1.0, exponent - fraction_bits);
    const double result =
        std::nearbyint(double{value} / unit) * unit;  // exact but for the rounding
    return std::abs(result) > largest() ? std::copysign(HUGE_VAL, value) : result;
  }
};

class ShortFloats : public ::testing::TestWithParam<Format> {
 protected:
  std::vector<const ShortFloatLoops*> all_loops() const {
    return {&portable_loops(GetParam().type), &best_loops(GetParam().type)};
  }
};

std::vector<uint16_t> all_values() {
  std::vector<uint16_t> values(kAll);
  for (size_t i = 0; i < kAll; ++i) values[i] = static_cast<uint16_t>(i);
  return values;
}

/// Any bits, so that all exponents occur; and what lies around numbers of 16 bits and between them.
std::vector<float> some_floats(const Format& format) {
  Rng rng(7);
  std::vector<float> values = {0.0F,
                               -0.0F,
                               HUGE_VALF,
                               -HUGE_VALF,
                               65504.0F,
                               65519.99F,
                               65520.0F,
                               65536.0F,
                               -65520.0F,
                               std::numeric_limits<float>::max(),
                               std::numeric_limits<float>::lowest(),
                               std::numeric_limits<float>::min(),
                               std::numeric_limits<float>::denorm_min(),
                               0x1p-24F,
                               0x1p-25F,
                               0x1.000002p-25F,
                               0x1p-14F,
                               0x1.ffffp-15F};
  for (int i = 0; i < 1'000'003; ++i)
    values.push_back(std::bit_cast<float>(static_cast<uint32_t>(rng.next())));
  for (size_t i = 0; i + 1 < kAll; ++i) {
    const double here = format.value(static_cast<uint16_t>(i));
    const double next = format.value(static_cast<uint16_t>(i + 1));
    const auto tie = static_cast<float>((here + next) / 2);
    values.insert(values.end(), {tie, std::nextafter(tie, 0.0F), std::nextafter(tie, HUGE_VALF),
                                 static_cast<float>(here)});
  }
  return values;
}

void expect_same(float found, double expected, float value) {
  if (std::isnan(expected)) {
    ASSERT_TRUE(std::isnan(found)) << std::hexfloat << value;
    ASSERT_EQ(std::signbit(found), std::signbit(value));
    return;
  }
  ASSERT_EQ(std::bit_cast<uint32_t>(found), std::bit_cast<uint32_t>(static_cast<float>(expected)))
      << std::hexfloat << value << " became " << found << ", expected " << expected;
}

TEST_P(ShortFloats, EveryValueIsExactAndComesBack) {
  const std::vector<uint16_t> values = all_values();
  for (const ShortFloatLoops* loops : all_loops()) {
    std::vector<float> wide(kAll);
    std::vector<uint16_t> back(kAll);
    loops->widen(values.data(), wide.data(), kAll);
    loops->narrow(wide.data(), back.data(), kAll);
    for (size_t i = 0; i < kAll; ++i) {
      const double expected = GetParam().value(values[i]);
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(wide[i])) << i;
        // Quiet, with the sign and the rest of the fraction.
        ASSERT_EQ(back[i], values[i] | 1 << (GetParam().fraction_bits - 1)) << i;
      } else {
        ASSERT_EQ(double{wide[i]}, expected) << i;
        ASSERT_EQ(std::signbit(wide[i]), std::signbit(expected)) << i;
        ASSERT_EQ(back[i], values[i]);
      }
    }
  }
}

TEST_P(ShortFloats, RoundsToTheNearestTiesToEven) {
  const std::vector<float> values = some_floats(GetParam());
  for (const ShortFloatLoops* loops : all_loops()) {
    std::vector<uint16_t> narrow(values.size());
    std::vector<float> wide(values.size());
    std::vector<float> rounded = values;
    loops->narrow(values.data(), narrow.data(), values.size());
    loops->widen(narrow.data(), wide.data(), values.size());
    loops->round_in_place(rounded.data(), values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      expect_same(wide[i], GetParam().rounded(values[i]), values[i]);
      ASSERT_EQ(std::bit_cast<uint32_t>(rounded[i]), std::bit_cast<uint32_t>(wide[i]));
    }
  }
}

TEST_P(ShortFloats, AllLoopsGiveTheSameBits) {
  const std::vector<float> values = some_floats(GetParam());
  std::vector<uint16_t> portable(values.size());
  std::vector<uint16_t> best(values.size());
  portable_loops(GetParam().type).narrow(values.data(), portable.data(), values.size());
  best_loops(GetParam().type).narrow(values.data(), best.data(), values.size());
  EXPECT_EQ(portable, best);
}

TEST_P(ShortFloats, AdditionIsInFloat32) {
  // Every length, so that what is left behind the last vector is added, too; not aligned.
  for (size_t count = 0; count < 70; ++count) {
    Rng rng(count);
    std::vector<float> parts(count + 1);
    std::vector<float> sums(count + 1);
    for (float& part : parts) part = static_cast<float>(rng.uniform() * 8 - 4);
    for (float& sum : sums) sum = static_cast<float>(rng.uniform() * 8 - 4);
    for (const ShortFloatLoops* loops : all_loops()) {
      std::vector<uint16_t> sent(count + 1, 0x1234);
      std::vector<float> widened = sums;
      std::vector<float> rounded = sums;
      loops->narrow(parts.data() + 1, sent.data() + 1, count);
      loops->add_widened(widened.data() + 1, sent.data() + 1, count);
      loops->add_rounded(rounded.data() + 1, parts.data() + 1, count);
      for (size_t i = 1; i <= count; ++i) {
        const auto part = static_cast<float>(GetParam().rounded(parts[i]));
        ASSERT_EQ(widened[i], sums[i] + part);
        ASSERT_EQ(rounded[i], sums[i] + part);
      }
      ASSERT_EQ(sent.front(), 0x1234);
      ASSERT_EQ(widened.front(), sums.front());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, ShortFloats,
                         ::testing::Values(Format{FloatType::BFloat16, 8, 7},
                                           Format{FloatType::Float16, 5, 10}),
                         [](const auto& format) {
                           return format.param.type == FloatType::BFloat16 ? "BFloat16" : "Float16";
                         });

}  // namespace
}  // namespace penstock

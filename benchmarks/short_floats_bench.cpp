// Gradients in 16 bits: what converting and adding them costs, against a plain loop over one number
// at a time and against ATen. Bytes are those that are read and written.
//
//   short_floats_bench --benchmark_repetitions=5 --benchmark_report_aggregates_only
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>

#include <bit>
#include <cmath>
#include <vector>

#include "penstock/util/numbers/short_floats.h"

namespace {

using namespace penstock;

constexpr FloatType kBFloat16 = FloatType::BFloat16;
constexpr FloatType kFloat16 = FloatType::Float16;

// As one would write them: with branches, one number at a time.

uint16_t plain_narrow(FloatType type, float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  if (std::isnan(value)) return sign | (type == kBFloat16 ? 0x7FC0 : 0x7E00);
  if (type == kBFloat16) return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
  const float size = std::fabs(value);
  if (size >= 65520.0F) return sign | 0x7C00;
  if (size < 0x1p-14F) return static_cast<uint16_t>(sign | std::lrint(size * 0x1p24F));
  const uint32_t rounded = (bits & 0x7FFF'FFFF) + 0xFFF + (bits >> 13 & 1);
  return static_cast<uint16_t>(sign | ((rounded - (112U << 23)) >> 13));
}

float plain_widen(FloatType type, uint16_t value) {
  if (type == kBFloat16) return std::bit_cast<float>(uint32_t{value} << 16);
  const uint32_t sign = uint32_t{value & 0x8000U} << 16;
  const uint32_t exponent = value >> 10 & 31;
  const uint32_t fraction = value & 0x3FF;
  if (exponent == 0)
    return std::copysign(static_cast<float>(fraction) * 0x1p-24F, std::bit_cast<float>(sign));
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F80'0000 | fraction << 13);
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
}

__attribute__((optimize("no-tree-vectorize"))) void plain_narrow_all(FloatType type,
                                                                     const float* from,
                                                                     uint16_t* to, size_t count) {
  for (size_t i = 0; i < count; ++i) to[i] = plain_narrow(type, from[i]);
}

__attribute__((optimize("no-tree-vectorize"))) void plain_add(FloatType type, float* sum,
                                                              const uint16_t* part, size_t count) {
  for (size_t i = 0; i < count; ++i) sum[i] += plain_widen(type, part[i]);
}

/// Gradients, in a shard as the runtime cuts them (fits the cache) or larger than every cache.
struct Data {
  explicit Data(int64_t count)
      : wide(at::randn({count}).mul(1e-2)),
        sum(at::zeros({count})),
        half(at::empty({count}, at::kHalf)),
        brain(at::empty({count}, at::kBFloat16)),
        numbers(static_cast<size_t>(count)) {
    half.copy_(wide);
    brain.copy_(wide);
  }
  at::Tensor& narrow(FloatType type) { return type == kBFloat16 ? brain : half; }
  uint16_t* bits(FloatType type) { return static_cast<uint16_t*>(narrow(type).data_ptr()); }
  size_t count() const { return static_cast<size_t>(wide.numel()); }
  float* floats() { return wide.data_ptr<float>(); }
  float* sums() { return sum.data_ptr<float>(); }

  at::Tensor wide;
  at::Tensor sum;
  at::Tensor half;
  at::Tensor brain;
  std::vector<uint16_t> numbers;
};

template <class Body>
void measure(benchmark::State& state, int64_t bytes_per_number, Body body) {
  at::set_num_threads(1);
  Data data(state.range(0));
  for (auto _ : state) {
    body(data);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0) * bytes_per_number);
}

void narrow_plain(benchmark::State& state, FloatType type) {
  measure(state, 6, [&](Data& d) { plain_narrow_all(type, d.floats(), d.bits(type), d.count()); });
}
void narrow_aten(benchmark::State& state, FloatType type) {
  measure(state, 6, [&](Data& d) { d.narrow(type).copy_(d.wide); });
}
void narrow_portable(benchmark::State& state, FloatType type) {
  measure(state, 6,
          [&](Data& d) { portable_loops(type).narrow(d.floats(), d.bits(type), d.count()); });
}
void narrow_ours(benchmark::State& state, FloatType type) {
  measure(state, 6, [&](Data& d) { narrow(type, d.floats(), d.bits(type), d.count()); });
}

void widen_aten(benchmark::State& state, FloatType type) {
  measure(state, 6, [&](Data& d) { d.sum.copy_(d.narrow(type)); });
}
void widen_portable(benchmark::State& state, FloatType type) {
  measure(state, 6,
          [&](Data& d) { portable_loops(type).widen(d.bits(type), d.sums(), d.count()); });
}
void widen_ours(benchmark::State& state, FloatType type) {
  measure(state, 6, [&](Data& d) { widen(type, d.bits(type), d.sums(), d.count()); });
}

void add_plain(benchmark::State& state, FloatType type) {
  measure(state, 10, [&](Data& d) { plain_add(type, d.sums(), d.bits(type), d.count()); });
}
void add_aten(benchmark::State& state, FloatType type) {
  measure(state, 10, [&](Data& d) { d.sum.add_(d.narrow(type)); });
}
void add_portable(benchmark::State& state, FloatType type) {
  measure(state, 10,
          [&](Data& d) { portable_loops(type).add_widened(d.sums(), d.bits(type), d.count()); });
}
void add_ours(benchmark::State& state, FloatType type) {
  measure(state, 10, [&](Data& d) { add_widened(type, d.sums(), d.bits(type), d.count()); });
}

void add_float32_aten(benchmark::State& state) {
  measure(state, 12, [](Data& d) { d.sum.add_(d.wide); });
}

constexpr int64_t kShard = int64_t{128} << 10;
constexpr int64_t kLarge = int64_t{16} << 20;

#define PENSTOCK_FOR_BOTH(function)                                           \
  BENCHMARK_CAPTURE(function, bfloat16, kBFloat16)->Arg(kShard)->Arg(kLarge); \
  BENCHMARK_CAPTURE(function, float16, kFloat16)->Arg(kShard)->Arg(kLarge)

PENSTOCK_FOR_BOTH(narrow_plain);
PENSTOCK_FOR_BOTH(narrow_aten);
PENSTOCK_FOR_BOTH(narrow_portable);
PENSTOCK_FOR_BOTH(narrow_ours);
PENSTOCK_FOR_BOTH(widen_aten);
PENSTOCK_FOR_BOTH(widen_portable);
PENSTOCK_FOR_BOTH(widen_ours);
PENSTOCK_FOR_BOTH(add_plain);
PENSTOCK_FOR_BOTH(add_aten);
PENSTOCK_FOR_BOTH(add_portable);
PENSTOCK_FOR_BOTH(add_ours);
BENCHMARK(add_float32_aten)->Arg(kShard)->Arg(kLarge);

}  // namespace

BENCHMARK_MAIN();

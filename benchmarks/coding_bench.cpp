// What the codings of boundaries cost at each end of a message (plan/boundary_coding.cpp,
// ns_per_1000). Bytes are those of the values in float32; tokens have 512 numbers.
//
//   coding_bench --benchmark_repetitions=5 --benchmark_report_aggregates_only
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>

#include "penstock/runtime/coding/coded_tensor.h"

namespace {

using namespace penstock;

constexpr int64_t kWidth = 512;
const char* const kNames[] = {"bfloat16", "float16", "int8", "subspace:160"};

at::Tensor values(const benchmark::State& state) {
  at::set_num_threads(1);
  return at::randn({state.range(1) / kWidth, kWidth});
}

void count(benchmark::State& state) {
  state.SetBytesProcessed(state.iterations() * state.range(1) * 4);
  state.SetLabel(kNames[state.range(0)]);
}

/// Of a gradient: int8 is rounded at random.
void bench_encode(benchmark::State& state) {
  const at::Tensor tensor = values(state);
  const plan::BoundaryCoding coding = plan::parse_boundary(kNames[state.range(0)]);
  for (auto _ : state) benchmark::DoNotOptimize(runtime::encode(tensor, coding, 7));
  count(state);
}

void bench_decode(benchmark::State& state) {
  const at::Tensor tensor = values(state);
  const plan::BoundaryCoding coding = plan::parse_boundary(kNames[state.range(0)]);
  const runtime::TensorLayout layout{.sizes = tensor.sizes().vec()};
  const at::Tensor coded = runtime::encode(tensor, coding, 7);
  for (auto _ : state) benchmark::DoNotOptimize(runtime::decode(coded, layout, coding));
  count(state);
}

BENCHMARK(bench_encode)->ArgsProduct({{0, 1, 2, 3}, {131072, 4194304}});
BENCHMARK(bench_decode)->ArgsProduct({{0, 1, 2, 3}, {131072, 4194304}});

}  // namespace

BENCHMARK_MAIN();

// How fast the simulator runs actions, and in how much memory: pipelines that are generated while
// they are simulated, and others.
//
//   build/release/benchmarks/simulate_bench
//   build/release/benchmarks/simulate_bench --benchmark_filter=SixteenThousand    # 10^8 actions:
//     about half a minute
//
// items_per_second are actions per second; peak_rss_MB is that of the process so far, so run one
// benchmark at a time to compare it.
#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include <algorithm>

#include "penstock/schedule/generate.h"
#include "penstock/simulate/simulator.h"

namespace {

using namespace penstock;
using plan::Strategy;

constexpr int64_t kMessageBytes = 100'000;

/// Stages of one time, on servers of 8 in racks of 16 servers. Where 8 workers of a server talk to
/// another one, messages of 1 MB are about twice what its link carries.
simulate::Costs costs_of(const schedule::ScheduleShape& shape, int64_t message_bytes) {
  simulate::Costs costs;
  costs.stages.assign(shape.replicas.size(), {.forward_ns = 1'000'000,
                                              .backward_ns = 2'000'000,
                                              .step_ns = 100'000,
                                              .sync_ns = 500'000,
                                              .stash_bytes = 1'000'000,
                                              .weight_bytes = 1'000'000});
  for (const schedule::StageLink& link : schedule::chain_links(shape.num_stages()))
    costs.links.push_back({link.from, link.to, message_bytes});
  const int racks = std::max(1, (shape.num_workers() + 127) / 128);
  costs.cluster = {.levels = {{.name = "server",
                               .count = 8,
                               .bandwidth_bytes_per_s = 12'000'000'000,
                               .latency_ns = 5'000},
                              {.name = "rack",
                               .count = 16,
                               .bandwidth_bytes_per_s = 1'250'000'000,
                               .latency_ns = 20'000},
                              {.name = "hall",
                               .count = racks,
                               .bandwidth_bytes_per_s = 5'000'000'000,
                               .latency_ns = 50'000}},
                   .device = {}};
  return costs;
}

double peak_rss_mb() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1000;
}

void simulate_streaming(benchmark::State& state, Strategy kind,
                        const schedule::ScheduleShape& shape, const simulate::Options& options,
                        int64_t message_bytes = kMessageBytes) {
  const schedule::LazySchedule lazy(kind, shape, schedule::chain_links(shape.num_stages()));
  const simulate::Costs costs = costs_of(shape, message_bytes);
  for (auto _ : state)
    benchmark::DoNotOptimize(simulate::simulate(lazy, costs, options).makespan_ns);
  state.SetItemsProcessed(state.iterations() * lazy.num_actions());
  state.counters["peak_rss_MB"] = peak_rss_mb();
}

schedule::ScheduleShape straight(int stages, int64_t micro_batches, int64_t accumulate,
                                 Strategy kind) {
  return {.replicas = std::vector<int>(static_cast<size_t>(stages), 1),
          .micro_batches = micro_batches,
          .accumulate = accumulate,
          .policy = default_policy(kind)};
}

void Straight1F1B(benchmark::State& state) {
  const auto stages = static_cast<int>(state.range(0));
  simulate_streaming(state, Strategy::OneFOneB,
                     straight(stages, 4'000'000 / 8 / stages, 1, Strategy::OneFOneB), {});
}

void StraightGPipe(benchmark::State& state) {
  const auto stages = static_cast<int>(state.range(0));
  simulate_streaming(state, Strategy::GPipe,
                     straight(stages, 4'000'000 / 6 / stages, 64, Strategy::GPipe), {});
}

/// Kinds that are written down before they are simulated; the time is that of simulating alone.
void InMemory(benchmark::State& state, Strategy kind) {
  const auto stages = static_cast<int>(state.range(0));
  const schedule::ScheduleShape shape =
      with_placement(kind, straight(stages, 4'000'000 / 7 / stages, 64, kind), traits(kind).chunks);
  const schedule::Schedule full = lower(generate(kind, shape), schedule::chain_links(stages));
  simulate::Costs costs = costs_of(shape, kMessageBytes);
  for (simulate::StageCost& stage : costs.stages) stage.backward_weight_ns = 1'000'000;
  for (auto _ : state) benchmark::DoNotOptimize(simulate::simulate(full, costs, {}).makespan_ns);
  state.SetItemsProcessed(state.iterations() * full.num_actions());
  state.counters["peak_rss_MB"] = peak_rss_mb();
}

/// 80,000 replicas whose messages all wait at the link to one worker.
void ManyMessagesAtOneLink(benchmark::State& state) {
  constexpr int kReplicas = 80'000;
  const schedule::ScheduleShape shape{
      .replicas = {kReplicas, 1}, .micro_batches = kReplicas, .accumulate = kReplicas};
  simulate_streaming(state, Strategy::OneFOneBFlush, shape, {});
}

/// Replicated stages that share the links of their servers; messages of the given size.
void Replicated1F1B(benchmark::State& state) {
  const schedule::ScheduleShape shape{.replicas = std::vector<int>(16, 16),
                                      .micro_batches = 40'000,
                                      .accumulate = 256,
                                      .policy = default_policy(Strategy::OneFOneB)};
  simulate_streaming(state, Strategy::OneFOneB, shape, {}, state.range(0));
}

void StragglersAndSpread(benchmark::State& state) {
  simulate::Options options;
  options.stragglers = {.share = 0.05, .factor = 2};
  options.compute_spread = 0.1;
  simulate_streaming(state, Strategy::OneFOneB, straight(64, 8'000, 1, Strategy::OneFOneB),
                     options);
}

/// 16,384 stages of one worker, 1,000 micro-batches, a step after each.
void SixteenThousandWorkers(benchmark::State& state) {
  simulate_streaming(state, Strategy::OneFOneB, straight(16'384, 1'000, 1, Strategy::OneFOneB), {});
}

/// 1,024 stages of 16 replicas, 16,000 micro-batches: 1,000 for each worker.
void SixteenThousandReplicatedWorkers(benchmark::State& state) {
  const schedule::ScheduleShape shape{.replicas = std::vector<int>(1'024, 16),
                                      .micro_batches = 16'000,
                                      .accumulate = 160,
                                      .policy = default_policy(Strategy::OneFOneB)};
  simulate_streaming(state, Strategy::OneFOneB, shape, {}, state.range(0));
}

BENCHMARK(Straight1F1B)->Arg(4)->Arg(64)->Arg(1024)->Unit(benchmark::kMillisecond);
BENCHMARK(StraightGPipe)->Arg(64)->Unit(benchmark::kMillisecond);
BENCHMARK(Replicated1F1B)
    ->Arg(kMessageBytes)
    ->Arg(10 * kMessageBytes)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(InMemory, ZbH1, Strategy::ZbH1)->Arg(64)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(InMemory, ZbV, Strategy::ZbV)->Arg(64)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(InMemory, Interleaved, Strategy::Interleaved)
    ->Arg(64)
    ->Unit(benchmark::kMillisecond);
BENCHMARK(ManyMessagesAtOneLink)->Unit(benchmark::kMillisecond);
BENCHMARK(StragglersAndSpread)->Unit(benchmark::kMillisecond);
BENCHMARK(SixteenThousandWorkers)->Unit(benchmark::kSecond)->Iterations(1);
BENCHMARK(SixteenThousandReplicatedWorkers)
    ->Arg(kMessageBytes)
    ->Arg(10 * kMessageBytes)
    ->Unit(benchmark::kSecond)
    ->Iterations(1);

}  // namespace

BENCHMARK_MAIN();

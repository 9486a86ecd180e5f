// How fast the core handles schedules (in actions) and plans (in layers and workers).
//
//   build/release/benchmarks/core_bench --benchmark_filter=Simulate
#include <benchmark/benchmark.h>

#include <algorithm>
#include <string>

#include "penstock/planner/cost/named_models.h"
#include "penstock/planner/partition/dp_partitioner.h"
#include "penstock/planner/planner.h"
#include "penstock/planner/testing/testing_graphs.h"
#include "penstock/schedule/formats/text_format.h"
#include "penstock/schedule/generate.h"
#include "penstock/simulate/simulator.h"
#include "penstock/verify/verify.h"

namespace {

using namespace penstock;

constexpr int64_t kMicroBatches = 256;

schedule::Schedule compute_schedule(int stages) {
  constexpr auto kKind = plan::Strategy::OneFOneB;
  return schedule::generate(kKind, {.replicas = std::vector<int>(static_cast<size_t>(stages), 1),
                                    .micro_batches = kMicroBatches,
                                    .accumulate = 1,
                                    .policy = plan::default_policy(kKind)});
}

schedule::Schedule full_schedule(int stages) {
  return schedule::lower(compute_schedule(stages), schedule::chain_links(stages));
}

/// A chain of layers with costs that no two neighbours share.
profile::Profile chain_profile(int layers) {
  std::vector<graph::LayerNode> nodes;
  profile::Profile result;
  for (int i = 0; i < layers; ++i) {
    const graph::ValueRef input =
        i == 0 ? graph::ValueRef::model_input(0) : graph::ValueRef{LayerId{i - 1}, 0};
    nodes.push_back({"layer" + std::to_string(i), "linear", {input}, 1});
    const int64_t ns = 100'000 + 37'000 * (i * 7 % 11);
    result.costs.push_back({.forward_ns = ns,
                            .backward_ns = 2 * ns,
                            .output_bytes = {10'000 + 1'000 * (i * 5 % 13)},
                            .weight_bytes = 100'000});
  }
  result.batch_size = 32;
  result.copy_bandwidth_bytes_per_s = 10'000'000'000;
  result.graph = graph::ModelGraph::build(1, std::move(nodes), {{LayerId{layers - 1}, 0}});
  return result;
}

void count_actions(benchmark::State& state, const schedule::Schedule& schedule) {
  state.SetItemsProcessed(state.iterations() * schedule.num_actions());
}

void Lower(benchmark::State& state) {
  const auto stages = static_cast<int>(state.range(0));
  const schedule::Schedule compute = compute_schedule(stages);
  const auto links = schedule::chain_links(stages);
  for (auto _ : state) benchmark::DoNotOptimize(schedule::lower(compute, links));
  count_actions(state, full_schedule(stages));
}

void ParseText(benchmark::State& state) {
  const schedule::Schedule full = full_schedule(static_cast<int>(state.range(0)));
  const std::string text = schedule::to_text(full);
  for (auto _ : state) benchmark::DoNotOptimize(schedule::parse_schedule(text, "text"));
  count_actions(state, full);
}

// Millions of actions: 64 stages, on 8 workers for interleaved, 32 for zb-v, otherwise one each.
void Verify(benchmark::State& state, plan::Strategy kind) {
  constexpr int kStages = 64;
  constexpr int64_t kActionsPerCell = 7;
  schedule::ScheduleShape shape{
      .replicas = std::vector<int>(kStages, kind == plan::Strategy::Chimera ? 2 : 1),
      .micro_batches = state.range(0) * 1'000'000 / (kStages * kActionsPerCell),
      .accumulate = 64,
      .policy = plan::default_policy(kind)};
  shape = schedule::with_placement(kind, shape,
                                   kind == plan::Strategy::Interleaved ? 8 : traits(kind).chunks);
  const schedule::Schedule full =
      schedule::lower(schedule::generate(kind, shape), schedule::chain_links(kStages));
  for (auto _ : state) {
    const auto violations = verify::verify(full);
    if (!violations.empty()) state.SkipWithError(violations[0].message.c_str());
  }
  count_actions(state, full);
}

// 8 million actions of 100,000 workers, one of which waits for gradients before it has taken its
// inputs.
void VerifyDeadlock(benchmark::State& state) {
  constexpr int kStages = 100'000;
  schedule::Schedule bad = schedule::generate(
      plan::Strategy::GPipe,
      {.replicas = std::vector<int>(kStages, 1), .micro_batches = 14, .accumulate = 14});
  bad = schedule::lower(bad, schedule::chain_links(kStages));
  auto& list = bad.workers[kStages / 2];
  const auto receive = std::find_if(
      list.begin(), list.end(), [](const auto& a) { return a.op == schedule::Op::RecvBackward; });
  std::rotate(list.begin(), receive, receive + 1);
  for (auto _ : state) {
    if (verify::verify(bad).size() != 1) state.SkipWithError("expected one deadlock");
  }
  count_actions(state, bad);
}

void Simulate(benchmark::State& state) {
  const schedule::Schedule full = full_schedule(static_cast<int>(state.range(0)));
  simulate::Costs costs;
  costs.stages.assign(static_cast<size_t>(state.range(0)),
                      {.forward_ns = 1000, .backward_ns = 2000, .step_ns = 100});
  for (auto _ : state) benchmark::DoNotOptimize(simulate::simulate(full, costs));
  count_actions(state, full);
}

void Plan(benchmark::State& state) {
  const profile::Profile profile = chain_profile(static_cast<int>(state.range(0)));
  const cluster::Cluster cluster =
      cluster::local_cluster(static_cast<int>(state.range(1)), profile.copy_bandwidth_bytes_per_s);
  for (auto _ : state) benchmark::DoNotOptimize(planner::make_plan(profile, cluster, {}));
}

cluster::Cluster plan_cluster(int workers) {
  if (workers < 4096)
    return {.levels = {{.name = "flat",
                        .count = workers,
                        .bandwidth_bytes_per_s = 10'000'000'000,
                        .latency_ns = 5'000}}};
  return {.levels = {{.name = "server",
                      .count = 8,
                      .bandwidth_bytes_per_s = 10'000'000'000,
                      .latency_ns = 5'000},
                     {.name = "rack",
                      .count = workers / 8,
                      .bandwidth_bytes_per_s = 1'250'000'000,
                      .latency_ns = 20'000}}};
}

// The exact partition alone: layers, workers (from 4096 on in servers of 8), memory limit in MB.
void Partition(benchmark::State& state) {
  const profile::Profile profile = chain_profile(static_cast<int>(state.range(0)));
  const cluster::Cluster cluster = plan_cluster(static_cast<int>(state.range(1)));
  const auto model = planner::make_cost_model("penstock", cluster, planner::GradientSync::Ring);
  const std::vector<planner::PlannedLayer> layers =
      planner::testing_graphs::planned_layers(profile);
  for (auto _ : state) {
    const planner::CutStates states(profile.graph, layers);
    benchmark::DoNotOptimize(
        planner::best_partition({.states = states,
                                 .model = *model,
                                 .memory = {.limit_bytes = state.range(2) * 1'000'000},
                                 .recompute = planner::Choice::Auto,
                                 .cluster = cluster,
                                 .workers = cluster.num_workers()}));
  }
}

BENCHMARK(Lower)->Arg(4)->Arg(64);
BENCHMARK(ParseText)->Arg(4)->Arg(64);
BENCHMARK_CAPTURE(Verify, 1f1b, plan::Strategy::OneFOneB)
    ->ArgName("M")
    ->Arg(1)
    ->Arg(10)
    ->Arg(40)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(Verify, zb_h1, plan::Strategy::ZbH1)
    ->ArgName("M")
    ->Arg(1)
    ->Arg(10)
    ->Arg(40)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(Verify, interleaved, plan::Strategy::Interleaved)
    ->ArgName("M")
    ->Arg(1)
    ->Arg(10)
    ->Arg(40)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(Verify, zb_v, plan::Strategy::ZbV)
    ->ArgName("M")
    ->Arg(1)
    ->Arg(10)
    ->Arg(40)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(Verify, chimera, plan::Strategy::Chimera)
    ->ArgName("M")
    ->Arg(1)
    ->Arg(10)
    ->Arg(40)
    ->Unit(benchmark::kMillisecond);
BENCHMARK(VerifyDeadlock)->Unit(benchmark::kMillisecond);
BENCHMARK(Simulate)->Arg(4)->Arg(64);
BENCHMARK(Partition)
    ->ArgNames({"layers", "workers", "memory_MB"})
    ->ArgsProduct({{250, 500, 1000}, {64, 4096}, {0}})
    ->Args({1000, 512, 0})
    ->Args({1000, 4096, 20})
    ->Unit(benchmark::kMillisecond);
BENCHMARK(Plan)->Args({20, 4})->Args({100, 16});

}  // namespace

BENCHMARK_MAIN();

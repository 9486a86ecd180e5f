// Planning of models with more cuts than can be tried: time, and the optimality gap that is left
// (0: proven optimal). And whole plans for profiles and clusters from files, each profile on each
// cluster.
//
//   build/release/benchmarks/planner_large_bench
//   build/release/benchmarks/planner_large_bench --benchmark_filter=File vgg16.graph.txt
//     examples/clusters/cluster-a.toml
#include <benchmark/benchmark.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "penstock/cluster/cluster.h"
#include "penstock/planner/cost/named_models.h"
#include "penstock/planner/partition/bounded_search.h"
#include "penstock/planner/planner.h"
#include "penstock/planner/testing/testing_graphs.h"
#include "penstock/planner/testing/testing_models.h"

namespace {

using namespace penstock;

/// One level: 16 workers at `gbps` each. Two: 4 servers of 4 workers on 12 GB/s, joined at `gbps`.
cluster::Cluster sixteen(int levels, int64_t gbps) {
  const cluster::Level outer{.name = "network",
                             .count = 16,
                             .bandwidth_bytes_per_s = gbps * 125'000'000,
                             .latency_ns = 20'000};
  if (levels == 1) return {.levels = {outer}};
  const cluster::Level inner{
      .name = "server", .count = 4, .bandwidth_bytes_per_s = 12'000'000'000, .latency_ns = 5'000};
  cluster::Cluster result{.levels = {inner, outer}};
  result.levels[1].count = 4;
  return result;
}

profile::Profile branched() {
  Rng rng(1);
  return planner::testing_models::branched(rng, 500, 10, 0.1);
}

/// The search for one partition, the model's cuts prepared anew each time.
void search(benchmark::State& state, const profile::Profile& profile,
            const cluster::Cluster& cluster, const planner::SearchLimits& limits = {}) {
  const auto layers = planner::testing_graphs::planned_layers(profile);
  const auto model = planner::make_cost_model("penstock", cluster, planner::GradientSync::Ring);
  for (auto _ : state) {
    const planner::CutSpace space(profile.graph, layers, limits);
    const auto best = planner::best_partition(space, [&](const planner::CutStates& states) {
      return planner::PartitionProblem{.states = states,
                                       .model = *model,
                                       .memory = {},
                                       .cluster = cluster,
                                       .workers = cluster.num_workers()};
    });
    state.counters["gap_percent"] = 100 * best.gap();
    state.counters["stages"] = static_cast<double>(best.partition->ends.size());
    state.counters["bottleneck_ms"] = best.partition->bottleneck_ns / 1e6;
    state.counters["downsets"] = space.num_downsets().value_or(0);
  }
}

/// The whole plan, alternatives and simulations included.
void plan(benchmark::State& state, const profile::Profile& profile) {
  const cluster::Cluster cluster = sixteen(static_cast<int>(state.range(0)), state.range(1));
  for (auto _ : state) {
    const planner::PlanResult result = planner::make_plan(profile, cluster, {});
    state.counters["gap_percent"] = 100 * result.plan->optimality_gap;
    state.counters["stages"] = static_cast<double>(result.plan->stages.size());
  }
}

cluster::Cluster sixteen(const benchmark::State& state) {
  return sixteen(static_cast<int>(state.range(0)), state.range(1));
}

void SearchInception(benchmark::State& state) {
  search(state, planner::testing_models::inception_v3(64), sixteen(state));
}
void SearchBranched(benchmark::State& state) { search(state, branched(), sixteen(state)); }

// Prefixes of topological orders alone, without the diagram of all downsets.
void SearchInceptionByOrders(benchmark::State& state) {
  search(state, planner::testing_models::inception_v3(64), sixteen(state),
         {.lattice_nodes = 0, .rounds = 0});
}
// With the diagram, without a second selection around the best partition.
void SearchInceptionOneRound(benchmark::State& state) {
  search(state, planner::testing_models::inception_v3(64), sixteen(state), {.rounds = 0});
}
void PlanInception(benchmark::State& state) {
  plan(state, planner::testing_models::inception_v3(64));
}
void PlanBranched(benchmark::State& state) { plan(state, branched()); }

void clusters(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"levels", "gbps"})
      ->ArgsProduct({{1, 2}, {10, 25, 100}})
      ->Unit(benchmark::kMillisecond)
      ->MinTime(0.01);
}

BENCHMARK(SearchInception)->Apply(clusters);
BENCHMARK(SearchBranched)->Apply(clusters);
BENCHMARK(SearchInceptionByOrders)->Apply(clusters);
BENCHMARK(SearchInceptionOneRound)->Apply(clusters);
BENCHMARK(PlanInception)->Apply(clusters);
BENCHMARK(PlanBranched)->Apply(clusters);

void plan_file(benchmark::State& state, const std::filesystem::path& profile_path,
               const std::filesystem::path& cluster_path) {
  const profile::Profile profile = profile::load_profile(profile_path);
  const cluster::Cluster cluster = cluster::load_cluster(cluster_path);
  for (auto _ : state) {
    const planner::PlanResult result = planner::make_plan(profile, cluster, {});
    if (!result.plan) return state.SkipWithError(result.reason.c_str());
  }
}

void search_file(benchmark::State& state, const std::filesystem::path& profile_path,
                 const std::filesystem::path& cluster_path) {
  search(state, profile::load_profile(profile_path), cluster::load_cluster(cluster_path));
}

void register_files(const std::vector<std::filesystem::path>& paths) {
  for (const auto& profile : paths) {
    if (profile.extension() == ".toml") continue;
    for (const auto& cluster : paths) {
      if (cluster.extension() != ".toml") continue;
      const std::string files =
          "File/" + profile.filename().string() + "/" + cluster.filename().string();
      benchmark::RegisterBenchmark(("Search" + files).c_str(), search_file, profile, cluster)
          ->Unit(benchmark::kMillisecond)
          ->MinTime(0.01);
      benchmark::RegisterBenchmark(("Plan" + files).c_str(), plan_file, profile, cluster)
          ->Unit(benchmark::kMillisecond)
          ->MinTime(1);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  const auto is_option = [](const std::string& argument) { return argument.starts_with('-'); };
  if (std::any_of(argv + 1, argv + argc, is_option))
    return benchmark::ReportUnrecognizedArguments(argc, argv) ? 2 : 0;
  register_files({argv + 1, argv + argc});
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}

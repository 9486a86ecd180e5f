// What must hold of plans for any input: random small models on random small clusters, some with
// memory limits and unequal devices.
#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <cmath>
#include <numeric>

#include "penstock/planner/cost/named_models.h"
#include "penstock/planner/families/families.h"
#include "penstock/planner/planner.h"
#include "penstock/planner/testing/testing_brute_force.h"
#include "penstock/planner/testing/testing_graphs.h"
#include "penstock/schedule/generate.h"
#include "penstock/simulate/simulate_plan.h"
#include "penstock/util/error.h"

namespace penstock::planner {
namespace {

using testing_graphs::between;
using testing_graphs::random_profile;

cluster::Cluster two_level_cluster(Rng& rng, int most_workers) {
  cluster::Cluster cluster = testing_graphs::flat_cluster(
      static_cast<int>(between(rng, 1, most_workers)), between(rng, 1, 20) * 100'000'000,
      between(rng, 0, 5), rng.below(4) == 0);
  if (rng.below(2) == 0) {
    cluster.levels[0].count = static_cast<int>(between(rng, 1, 2));
    cluster.levels.push_back(
        {.name = "rack",
         .count = static_cast<int>(between(rng, 1, std::max(1, most_workers / 2))),
         .bandwidth_bytes_per_s = between(rng, 1, 10) * 100'000'000,
         .latency_ns = between(rng, 0, 20)});
  }
  testing_graphs::add_machines(rng, cluster);
  const int workers = cluster.num_workers();
  if (rng.below(4) == 0) {
    const int first = static_cast<int>(between(rng, 0, workers - 1));
    cluster.groups = {
        {.first = first,
         .count = static_cast<int>(between(rng, 1, workers - first)),
         .device = {.name = "other", .memory_bytes = 0, .speed = rng.below(2) == 0 ? 0.5 : 2.0}}};
  }
  return cluster;
}

void may_move_to_host(Rng& rng, cluster::Cluster& cluster, PlanOptions& options) {
  if (options.recompute == Choice::Always || rng.below(2) == 0) return;
  cluster.device.host_bytes_per_s = between(rng, 1, 1000) * 1'000'000;
  for (cluster::DeviceGroup& group : cluster.groups)
    group.device.host_bytes_per_s = between(rng, 1, 1000) * 1'000'000;
  options.offload = rng.below(2) == 0 ? Choice::Auto : Choice::Always;
}

PlanOptions random_options(Rng& rng) {
  const std::vector<std::string> strategies{"auto",  "serial", "dp",         "mp",
                                            "gpipe", "1f1b",   "1f1b-flush", "2bw"};
  const std::vector<Choice> recompute{Choice::Never, Choice::Always, Choice::Auto};
  PlanOptions options;
  options.strategy = plan::parse_strategy_choice(strategies[rng.below(strategies.size())]);
  options.cost_model = cost_model_names()[rng.below(4)];
  options.recompute = recompute[rng.below(3)];
  options.shard_optimizer = recompute[rng.below(3)];
  if (rng.below(2) == 0) options.sync = plan::GradientSync::Hierarchical;
  if (rng.below(4) == 0 && options.strategy != plan::Strategy::TwoBuffered)
    options.micro_batches = between(rng, 1, 10);
  if (rng.below(3) == 0) options.optimizer_state_per_weight = 2;
  options.gradient_precision = plan::kSyncPrecisions[rng.below(3)];
  return options;
}

// The memory model and the search options as the planner sets them.
double brute_force_ns(const profile::Profile& profile, const cluster::Cluster& cluster,
                      const PlanOptions& options, bool& exists) {
  const std::vector<PlannedLayer> layers = testing_graphs::planned_layers(profile);
  const CutStates states(profile.graph, layers);
  const auto model = make_cost_model(options.cost_model, cluster, options.sync->sync,
                                     SyncOverlap::Hidden, options.gradient_precision);
  const MemoryModel memory{.limit_bytes = options.memory_limit_bytes.value_or(0),
                           .micro_batches = options.micro_batches.value_or(0),
                           .max_workers = cluster.num_workers(),
                           .optimizer_state_per_weight = options.optimizer_state_per_weight,
                           .shard_optimizer = options.shard_optimizer != Choice::Never};
  const auto best = brute_force(profile.graph, layers,
                                {.states = states,
                                 .model = *model,
                                 .memory = memory,
                                 .recompute = options.recompute,
                                 .cluster = cluster,
                                 .workers = cluster.num_workers(),
                                 .straight = options.straight,
                                 .at_least_two_stages = true,
                                 .use_all_workers = options.cost_model == "released"});
  exists = best.has_value();
  return exists ? best->bottleneck_ns : 0;
}

// A plan with another bottleneck is faster, simulated.
TEST(PlannerProperty, BottlenecksAreThoseOfBruteForce) {
  int plans = 0;
  int refusals = 0;
  int faster = 0;
  for (uint64_t seed = 0; seed < 1'500; ++seed) {
    Rng rng(seed);
    const profile::Profile profile = random_profile(rng, static_cast<int>(between(rng, 1, 4)), 0.2);
    const cluster::Cluster cluster = two_level_cluster(rng, 4);
    PlanOptions options = random_options(rng);
    options.strategy = plan::Strategy::OneFOneB;
    // "penstock" prices the finished plan with its real step; a given one is the same in the
    // search.
    if (options.cost_model == "penstock") options.micro_batches = between(rng, 1, 10);
    if (rng.below(2) == 0) options.memory_limit_bytes = between(rng, 100, 900);
    options.straight = rng.below(4) == 0;
    bool exists = false;
    const double expected_ns = brute_force_ns(profile, cluster, options, exists);
    const PlanResult result = make_plan(profile, cluster, options);
    ASSERT_EQ(result.plan.has_value(), exists) << "seed " << seed << ' ' << result.reason;
    (exists ? plans : refusals) += 1;
    if (!exists) continue;
    ASSERT_EQ(result.plan->explanation.optimality_gap, 0);
    if (result.plan->prediction.bottleneck_ns == std::llround(expected_ns)) continue;
    ++faster;
    const Context context(profile, cluster, options);
    SplitFinder finder(context);
    const auto found =
        finder.best({.strategy = plan::Strategy::OneFOneB, .straight = options.straight});
    ASSERT_TRUE(found);
    const plan::Plan optimum = price(context, found->split, found->micro_batches);
    ASSERT_EQ(optimum.prediction.bottleneck_ns, std::llround(expected_ns))
        << "seed " << seed << ' ' << options.cost_model;
    ASSERT_EQ(options.cost_model, "penstock");
    ASSERT_GT(result.plan->prediction.throughput_samples_per_s,
              optimum.prediction.throughput_samples_per_s);
  }
  EXPECT_GT(plans, 500);
  EXPECT_GT(refusals, 50);
  EXPECT_LT(faster, 50);
}

/// Times of a chain's layers with the loss in the last one, cut into this many runs of layers: the
/// shortest longest run.
int64_t shortest_longest_run(const std::vector<int64_t>& times, size_t begin, int runs) {
  if (runs == 1)
    return std::accumulate(times.begin() + static_cast<std::ptrdiff_t>(begin), times.end(),
                           int64_t{0});
  int64_t best = INT64_MAX;
  int64_t first = 0;
  for (size_t end = begin + 1; end + static_cast<size_t>(runs) - 1 <= times.size(); ++end) {
    first += times[end - 1];
    best = std::min(best, std::max(first, shortest_longest_run(times, end, runs - 1)));
  }
  return best;
}

TEST(PlannerProperty, TheStageOfTheLossHasFewerLayers) {
  int moved = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Rng rng(seed);
    const auto layers = static_cast<size_t>(between(rng, 4, 9));
    std::vector<int64_t> forward_ns(layers);
    for (int64_t& time : forward_ns) time = between(rng, 100, 400);
    const std::vector<int64_t> none(layers, 0);
    profile::Profile profile = testing_graphs::chain(forward_ns, none, none);
    const int workers = static_cast<int>(between(rng, 2, 4));
    const auto plan_of = [&] {
      PlanOptions options{.strategy = plan::Strategy::Online, .straight = true, .micro_batches = 1};
      const PlanResult result = make_plan(
          profile, testing_graphs::flat_cluster(workers, 1'000'000'000'000, 0, true), options);
      EXPECT_TRUE(result.plan) << result.reason;
      return *result.plan;
    };
    const plan::Plan without = plan_of();
    profile::LayerCost& last = profile.costs.back();
    last.loss_ns = between(rng, 300, 1'500);
    last.forward_ns += last.loss_ns / 3;
    last.backward_ns += last.loss_ns - last.loss_ns / 3;
    profile::validate(profile);
    const plan::Plan with = plan_of();
    std::vector<int64_t> times;
    for (const profile::LayerCost& cost : profile.costs)
      times.push_back(cost.forward_ns + cost.backward_ns);
    EXPECT_EQ(with.prediction.bottleneck_ns, shortest_longest_run(times, 0, workers))
        << "seed " << seed;
    if (with.stages.back().layers.size() < without.stages.back().layers.size()) ++moved;
    // The simulator charges the same stage.
    const simulate::Result result = simulate::simulate_plan(with, 200, {});
    EXPECT_NEAR(static_cast<double>(result.makespan_ns),
                200.0 * static_cast<double>(with.prediction.bottleneck_ns),
                12.0 * static_cast<double>(with.prediction.bottleneck_ns))
        << "seed " << seed;
  }
  EXPECT_GT(moved, 50);
}

simulate::Result simulated(const plan::Plan& plan) { return simulate::simulate_plan(plan, 6, {}); }

int64_t named_bytes(const std::string& reason) {
  const size_t end = reason.find(" bytes");
  return std::stoll(reason.substr(reason.rfind('(', end) + 1));
}

// 60 is a multiple of all replica counts that occur.
TEST(PlannerProperty, MemoryLimitsHoldWithGradientGroups) {
  int fitting = 0;
  int heavier = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    Rng rng(seed);
    const profile::Profile profile = random_profile(rng, static_cast<int>(between(rng, 1, 6)), 0.2);
    const cluster::Cluster cluster = two_level_cluster(rng, 5);
    PlanOptions options = random_options(rng);
    options.strategy = rng.below(2) == 0 ? plan::Strategy::OneFOneBFlush : plan::Strategy::OneFOneB;
    options.micro_batches = between(rng, 1, 80);
    options.memory_limit_bytes = between(rng, 50, 900);
    const PlanResult counted_once = make_plan(profile, cluster, options);
    options.gradient_groups = 60;
    const PlanResult result = make_plan(profile, cluster, options);
    if (!result.plan) {
      heavier += counted_once.plan ? 1 : 0;
      options.memory_limit_bytes = named_bytes(result.reason);
      ASSERT_TRUE(make_plan(profile, cluster, options).plan) << "seed " << seed << result.reason;
      continue;
    }
    ++fitting;
    ASSERT_TRUE(counted_once.plan) << "seed " << seed;
    EXPECT_GE(result.plan->prediction.bottleneck_ns, counted_once.plan->prediction.bottleneck_ns)
        << "seed " << seed;
    for (const plan::Stage& stage : result.plan->stages)
      EXPECT_LE(stage.memory_bytes, options.memory_limit_bytes) << "seed " << seed;
  }
  EXPECT_GT(fitting, 100);
  EXPECT_GT(heavier, 20);
}

TEST(PlannerProperty, MemoryLimitsHoldAndReasonsAreRight) {
  int fitting = 0;
  int refused = 0;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    Rng rng(seed);
    const profile::Profile profile = random_profile(rng, static_cast<int>(between(rng, 1, 6)), 0.2);
    cluster::Cluster cluster = two_level_cluster(rng, 5);
    PlanOptions options = random_options(rng);
    may_move_to_host(rng, cluster, options);
    options.memory_limit_bytes = between(rng, 50, 700);
    PlanResult result = make_plan(profile, cluster, options);
    if (!result.plan) {
      ++refused;
      options.memory_limit_bytes = named_bytes(result.reason);
      PlanOptions less = options;
      *less.memory_limit_bytes -= 1;
      less.synchronous_pipelines = false;  // of which one may need less than the named minimum
      if (less.memory_limit_bytes > 0) {
        EXPECT_FALSE(make_plan(profile, cluster, less).plan.has_value())
            << "seed " << seed << ' ' << result.reason;
      }
      const std::string reason = result.reason;
      result = make_plan(profile, cluster, options);
      ASSERT_TRUE(result.plan.has_value())
          << "seed " << seed << ' ' << reason << "; then " << result.reason;
    }
    ++fitting;
    plan::validate(*result.plan);
    const simulate::Result run = simulated(*result.plan);
    const int64_t most =
        *std::max_element(run.peak_memory_bytes.begin(), run.peak_memory_bytes.end());
    for (const plan::Stage& stage : result.plan->stages)
      EXPECT_LE(stage.memory_bytes, options.memory_limit_bytes) << "seed " << seed;
    EXPECT_LE(most, options.memory_limit_bytes) << "seed " << seed;
  }
  EXPECT_GT(fitting, 300);
  EXPECT_GT(refused, 100);
}

// By more than half a percent, which is what the plan's own notes call as fast.
TEST(PlannerProperty, NothingThatAutoMayPickIsFaster) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Rng rng(seed);
    const profile::Profile profile = random_profile(rng, static_cast<int>(between(rng, 1, 7)), 0.2);
    const cluster::Cluster cluster = two_level_cluster(rng, 6);
    PlanOptions options;
    options.compare = true;
    if (rng.below(2) == 0) options.memory_limit_bytes = between(rng, 200, 900);
    const PlanResult result = make_plan(profile, cluster, options);
    if (!result.plan) continue;
    for (const plan::Alternative& row : result.plan->explanation.alternatives) {
      EXPECT_FALSE(row.note.empty()) << "seed " << seed << ' ' << row.strategy;
      const bool changes_weights = traits(default_policy(row.strategy)).fills_pipeline ||
                                   default_policy(row.strategy) == plan::WeightPolicy::Current;
      if (changes_weights) continue;
      EXPECT_LE(row.throughput_samples_per_s,
                1.005 * result.plan->prediction.throughput_samples_per_s)
          << "seed " << seed << ' ' << row.strategy;
      if (options.memory_limit_bytes) {
        EXPECT_LE(row.memory_bytes, options.memory_limit_bytes);
      }
    }
  }
}

TEST(PlannerProperty, AnythingIsAPlanOrAConfigError) {
  const int64_t amounts[] = {0, 1, 1'000'000'000'000'000'000, int64_t{1} << 62, INT64_MAX};
  int plans = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Rng rng(seed);
    profile::Profile profile = random_profile(rng, static_cast<int>(between(rng, 1, 4)), 0.2);
    for (profile::LayerCost& cost : profile.costs) {
      if (rng.below(3) == 0) cost.weight_bytes = amounts[rng.below(5)];
      if (rng.below(3) == 0) cost.forward_ns = amounts[rng.below(3)];
      if (rng.below(3) == 0) cost.stash_bytes = amounts[rng.below(5)];
    }
    cluster::Cluster cluster = two_level_cluster(rng, 4);
    if (rng.below(3) == 0) cluster.levels[0].bandwidth_bytes_per_s = amounts[1 + rng.below(4)];
    if (rng.below(3) == 0) cluster.levels[0].latency_ns = amounts[rng.below(5)];
    if (rng.below(10) == 0) cluster.levels[0].count = static_cast<int>(between(rng, 1, 1'100'000));
    if (rng.below(3) == 0) cluster.device.memory_bytes = amounts[rng.below(5)];
    if (rng.below(4) == 0) cluster.device.speed = rng.below(2) == 0 ? 1e-300 : 1e300;
    cluster.groups.clear();
    PlanOptions options = random_options(rng);
    options.compare = rng.below(4) == 0;
    if (rng.below(4) == 0)
      options.strategy = synchronous_pipelines()[rng.below(synchronous_pipelines().size())];
    if (rng.below(3) == 0) options.memory_limit_bytes = amounts[rng.below(5)];
    if (rng.below(3) == 0) options.mini_batch = amounts[rng.below(5)];
    try {
      const PlanResult result = make_plan(profile, cluster, options);
      if (!result.plan) {
        EXPECT_FALSE(result.reason.empty());
        continue;
      }
      ++plans;
      plan::validate(*result.plan);
      EXPECT_EQ(plan::parse_plan(plan::to_json(*result.plan), "plan"), *result.plan)
          << "seed " << seed;
    } catch (const ConfigError&) {
    }
  }
  EXPECT_GT(plans, 50);
}

}  // namespace
}  // namespace penstock::planner

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "penstock/simulate/simulator.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/rng.h"

namespace penstock::simulate {
namespace {

using schedule::Action;
using schedule::LazySchedule;
using schedule::Op;
using schedule::Schedule;
using schedule::ScheduleShape;
using schedule::Strategy;
using testing::HasSubstr;

struct StreamCase {
  Strategy kind = Strategy::OneFOneB;
  ScheduleShape shape;
  std::vector<schedule::StageLink> links;
  Costs costs;
};

StreamCase random_case(uint64_t seed) {
  Rng rng(seed);
  StreamCase result;
  const std::vector<Strategy> kinds = {Strategy::ModelParallel, Strategy::GPipe,
                                       Strategy::OneFOneB,      Strategy::OneFOneBFlush,
                                       Strategy::TwoBuffered,   Strategy::EagerOneFOneB,
                                       Strategy::ForwardOnly};
  result.kind = kinds[rng.below(kinds.size())];
  const auto stages = static_cast<int>(1 + rng.below(5));
  for (int s = 0; s < stages; ++s) {
    result.shape.replicas.push_back(static_cast<int>(1 + rng.below(4)));
    result.costs.stages.push_back({.forward_ns = static_cast<int64_t>(rng.below(50)),
                                   .backward_ns = static_cast<int64_t>(rng.below(90)),
                                   .step_ns = static_cast<int64_t>(rng.below(10)),
                                   .sync_ns = static_cast<int64_t>(rng.below(30)),
                                   .stash_bytes = static_cast<int64_t>(rng.below(100)),
                                   .weight_bytes = static_cast<int64_t>(rng.below(100)),
                                   .input_bytes = static_cast<int64_t>(rng.below(50))});
    result.shape.recompute.push_back(rng.below(3) == 0);
  }
  if (result.kind == Strategy::EagerOneFOneB)
    result.shape.slack = static_cast<int64_t>(rng.below(4));
  result.shape.global_norm = rng.below(3) == 0;
  result.shape.policy = default_policy(result.kind);
  result.shape.micro_batches = static_cast<int64_t>(rng.below(60));
  result.shape.accumulate = static_cast<int64_t>(1 + rng.below(10));
  if (result.kind == Strategy::TwoBuffered) result.shape.accumulate += pipeline_depth(result.shape);
  result.links = schedule::chain_links(stages);
  if (stages > 2 && rng.below(2) == 0) result.links.push_back({StageId{0}, StageId{stages - 1}});
  for (const schedule::StageLink& link : result.links)
    result.costs.links.push_back({link.from, link.to, static_cast<int64_t>(rng.below(80))});
  result.costs.latency_ns = static_cast<int64_t>(rng.below(20));
  return result;
}

/// Three levels of 4 workers, with contention.
cluster::Cluster hierarchy() {
  return {.levels =
              {{.name = "a", .count = 4, .bandwidth_bytes_per_s = 4'000'000'000, .latency_ns = 1},
               {.name = "b", .count = 4, .bandwidth_bytes_per_s = 2'000'000'000, .latency_ns = 3},
               {.name = "c", .count = 4, .bandwidth_bytes_per_s = 1'000'000'000, .latency_ns = 9}},
          .device = {}};
}

void expect_equal(const Result& a, const Result& b) {
  EXPECT_EQ(a.timeline, b.timeline);
  EXPECT_EQ(a.makespan_ns, b.makespan_ns);
  EXPECT_EQ(a.idle_share, b.idle_share);
  EXPECT_EQ(a.peak_memory_bytes, b.peak_memory_bytes);
  EXPECT_EQ(a.num_actions, b.num_actions);
  EXPECT_EQ(a.throughput_samples_per_s, b.throughput_samples_per_s);
}

template <class Actions>
Result result_or_refusal(const Actions& actions, const Costs& costs, const Options& options,
                         std::string& refusal) {
  try {
    return simulate(actions, costs, options);
  } catch (const ConfigError& error) {
    refusal = error.what();
    return {};
  }
}

/// Ends of all actions where no link is shared, by passes over the lists until nothing changes:
/// slow, and independent of the engine.
std::vector<std::vector<int64_t>> swept_ends(const Schedule& schedule, const Costs& costs) {
  using Key = std::tuple<bool, int32_t, int32_t, int64_t>;
  std::map<Key, int64_t> sent;
  std::map<std::pair<int32_t, int64_t>, std::vector<int64_t>> at_sync;
  std::vector<std::vector<int64_t>> ends(schedule.workers.size());
  for (bool changed = true; changed;) {
    changed = false;
    std::map<std::pair<int32_t, int64_t>, std::vector<int64_t>> standing;
    for (size_t w = 0; w < schedule.workers.size(); ++w) {
      int64_t now = 0;
      std::vector<int64_t> mine;
      for (const Action& action : schedule.workers[w]) {
        const StageCost& cost = costs.stages[action.stage.index()];
        const bool backward = action.op == Op::SendBackward || action.op == Op::RecvBackward;
        const auto key = [&](bool sends) {
          return Key{backward, sends ? action.stage.value : action.peer.value,
                     sends ? action.peer.value : action.stage.value, action.micro_batch.value};
        };
        if (action.op == Op::Forward || action.op == Op::Recompute) now += cost.forward_ns;
        if (action.op == Op::Backward) now += cost.backward_ns;
        if (action.op == Op::BackwardInput) now += cost.backward_ns - cost.backward_weight_ns;
        if (action.op == Op::BackwardWeight) now += cost.backward_weight_ns;
        if (action.op == Op::Step) now += cost.step_ns;
        if (schedule::is_send(action.op)) sent[key(true)] = now;
        if (schedule::is_receive(action.op)) {
          const auto found = sent.find(key(false));
          if (found != sent.end()) now = std::max(now, found->second + costs.latency_ns);
        }
        if (action.op == Op::SyncGradients || action.op == Op::NormGradients) {
          const bool sync = action.op == Op::SyncGradients;
          const std::pair<int32_t, int64_t> group{sync ? action.stage.value : -1,
                                                  action.mini_batch.value};
          standing[group].push_back(now);
          for (const int64_t other : at_sync[group]) now = std::max(now, other);
          const double rounds = std::ceil(std::log2(static_cast<double>(ends.size())));
          now += sync ? cost.sync_ns : 2 * static_cast<int64_t>(rounds) * costs.latency_ns;
        }
        mine.push_back(now);
      }
      changed = changed || mine != ends[w];
      ends[w] = std::move(mine);
    }
    changed = changed || standing != at_sync;
    at_sync = std::move(standing);
  }
  return ends;
}

}  // namespace

TEST(Streaming, EqualsTheScheduleInMemory) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    StreamCase test = random_case(seed);
    if (seed % 2 == 0) test.costs.cluster = hierarchy();
    if (seed % 5 == 0) test.costs.credits = static_cast<int64_t>(1 + seed % 3);
    Options options{.keep_timeline = true, .seed = seed};
    if (seed % 3 == 0) {
      options.stragglers = {.share = 0.3, .factor = 2};
      options.compute_spread = 0.2;
    }
    const Schedule full = lower(generate(test.kind, test.shape), test.links);
    const LazySchedule lazy(test.kind, test.shape, test.links);
    std::string refusal;  // with only one credit some of these deadlock
    const Result expected = result_or_refusal(full, test.costs, options, refusal);
    std::string lazy_refusal;
    expect_equal(expected, result_or_refusal(lazy, test.costs, options, lazy_refusal));
    EXPECT_EQ(refusal, lazy_refusal);
    if (HasFailure()) return;
  }
}

TEST(Streaming, WithoutContentionEveryActionEndsWhenItsLastPredecessorAllows) {
  for (uint64_t seed = 1'000; seed < 1'200; ++seed) {
    const StreamCase test = random_case(seed);
    const Schedule full = lower(generate(test.kind, test.shape), test.links);
    const Result result = simulate(full, test.costs);
    const auto expected = swept_ends(full, test.costs);
    for (size_t w = 0; w < expected.size(); ++w) {
      std::vector<int64_t> ends;
      for (const auto& event : result.timeline.workers[w]) ends.push_back(event.end_ns);
      ASSERT_EQ(ends, expected[w]) << "seed " << seed << ", worker " << w;
    }
  }
}

// Every kind, in every combination that it supports.
TEST(Streaming, EveryKindEndsWhenItsLastPredecessorAllows) {
  std::map<Strategy, int> runs;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    Rng rng(seed);
    const Strategy kind =
        plan::scheduled_strategies()[rng.below(plan::scheduled_strategies().size())];
    StreamCase test = random_case(seed);
    ScheduleShape& shape = test.shape;
    shape.policy = default_policy(kind);
    shape.slack = kind == Strategy::EagerOneFOneB ? 1 : 0;
    shape.replicas.assign(2 * (1 + rng.below(3)), traits(kind).replicas_per_copy());
    if (kind == Strategy::Serial || kind == Strategy::DataParallel)
      shape.replicas = {kind == Strategy::Serial ? 1 : 3};
    if (kind == Strategy::TwoBuffered) shape.accumulate = pipeline_depth(shape) + 1;
    shape.recompute.resize(shape.replicas.size());
    shape = with_placement(kind, shape);
    test.costs.stages.resize(shape.replicas.size(), {.forward_ns = 13, .backward_ns = 31});
    for (StageCost& stage : test.costs.stages)
      stage.backward_weight_ns = static_cast<int64_t>(rng.below(32)) * stage.backward_ns / 31;
    const Schedule full = lower(generate(kind, shape), schedule::chain_links(shape.num_stages()));
    test.costs.links.clear();
    const Result result = simulate(full, test.costs);
    const auto expected = swept_ends(full, test.costs);
    for (size_t w = 0; w < expected.size(); ++w) {
      std::vector<int64_t> ends;
      for (const auto& event : result.timeline.workers[w]) ends.push_back(event.end_ns);
      ASSERT_EQ(ends, expected[w]) << to_string(kind) << ", seed " << seed << ", worker " << w;
    }
    ++runs[kind];
  }
  EXPECT_EQ(runs.size(), plan::scheduled_strategies().size());
}

TEST(Streaming, ContentionNeverMakesASerialChainOfMessagesFaster) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    StreamCase test = random_case(seed);
    const LazySchedule lazy(test.kind, test.shape, test.links);
    test.costs.cluster = hierarchy();
    const int64_t contended = simulate(lazy, test.costs, {}).makespan_ns;
    for (cluster::Level& level : test.costs.cluster->levels) level.by_reference = true;
    EXPECT_GE(contended, simulate(lazy, test.costs, {}).makespan_ns) << "seed " << seed;
  }
}

TEST(Streaming, KeepsNoTimelineByDefault) {
  const StreamCase test = random_case(7);
  const LazySchedule lazy(test.kind, test.shape, test.links);
  EXPECT_TRUE(simulate(lazy, test.costs, {}).timeline.workers.empty());
  const Result kept = simulate(lazy, test.costs, {.keep_timeline = true});
  EXPECT_EQ(kept.timeline.workers.size(), static_cast<size_t>(test.shape.num_workers()));
  EXPECT_EQ(kept.timeline.makespan_ns(), kept.makespan_ns);
  EXPECT_EQ(kept.timeline.idle_share(), kept.idle_share);
}

// 1F1B in steady state: (m + p - 1)(F + B) for p equal stages, at any depth.
TEST(Streaming, ADeepPipelineTakesItsClosedForm) {
  constexpr int kStages = 512;
  const ScheduleShape shape{.replicas = std::vector<int>(kStages, 1),
                            .micro_batches = 256,
                            .accumulate = 1,
                            .policy = schedule::WeightPolicy::Stash};
  const LazySchedule lazy(Strategy::OneFOneB, shape, schedule::chain_links(kStages));
  Costs costs;
  costs.stages.assign(kStages, {.forward_ns = 10, .backward_ns = 20, .stash_bytes = 1});
  const Result result = simulate(lazy, costs, {});
  EXPECT_EQ(result.makespan_ns, (256 + kStages - 1) * 30);
  EXPECT_EQ(result.num_actions, lazy.num_actions());
  EXPECT_EQ(result.peak_memory_bytes.front(), 256);
  EXPECT_EQ(result.peak_memory_bytes.back(), 1);
}

TEST(Streaming, ReportsProgressUpToTheEnd) {
  const ScheduleShape shape{.replicas = {1, 1},
                            .micro_batches = 200'000,
                            .accumulate = 1,
                            .policy = schedule::WeightPolicy::Stash};
  const LazySchedule lazy(Strategy::OneFOneB, shape, schedule::chain_links(2));
  Costs costs;
  costs.stages.assign(2, {.forward_ns = 10, .backward_ns = 20});
  std::vector<int64_t> seen;
  Options options;
  options.progress = [&](int64_t done, int64_t total) {
    EXPECT_EQ(total, lazy.num_actions());
    seen.push_back(done);
  };
  EXPECT_EQ(simulate(lazy, costs, options).makespan_ns, 200'001 * 30);
  EXPECT_GE(seen.size(), 2u);
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_EQ(seen.back(), lazy.num_actions());
}

TEST(Streaming, RefusesSchedulesThatWouldNotEndOrNotFit) {
  const auto failure = [](const ScheduleShape& shape) -> std::string {
    Costs costs;
    costs.stages.assign(shape.replicas.size(), {});
    try {
      simulate(LazySchedule(Strategy::GPipe, shape, schedule::chain_links(shape.num_stages())),
               costs, {});
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(failure({.replicas = {1, 1}, .micro_batches = 10'000'000'000, .accumulate = 1}),
              HasSubstr("at most 10000000000"));
  EXPECT_THAT(failure({.replicas = {2'000'000}, .micro_batches = 1}),
              HasSubstr("at most 1000000 are simulated"));
}

}  // namespace penstock::simulate

// Schedules with split backwards, recomputation, norms and several stages on a worker.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "penstock/schedule/formats/text_format.h"
#include "penstock/schedule/generate.h"
#include "penstock/simulate/simulator.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/rng.h"

namespace penstock::simulate {
namespace {

using schedule::Op;
using schedule::Schedule;
using schedule::ScheduleShape;
using schedule::Strategy;
using testing::ElementsAre;
using testing::HasSubstr;

/// The V of two workers: worker 0 holds stages 0 and 3, worker 1 stages 1 and 2.
Schedule small_v() {
  const Schedule compute = schedule::parse_schedule(
      "# penstock schedule 1\n# kind: custom\n# replicas: 1 1 1 1\n# micro-batches: 1  accumulate: "
      "1  weights: flush\n# hosts: 0 1 1 0\n"
      "0F0,3F0,3I0,3W0,0I0,0W0\n1F0,2F0,2I0,1I0,2W0,1W0\n",
      "test");
  return schedule::lower(compute, schedule::chain_links(4));
}

Costs split_costs(int num_stages, int64_t forward_ns, int64_t input_ns, int64_t weight_ns) {
  Costs costs;
  costs.stages.assign(static_cast<size_t>(num_stages), {.forward_ns = forward_ns,
                                                        .backward_ns = input_ns + weight_ns,
                                                        .backward_weight_ns = weight_ns});
  return costs;
}

Schedule lowered_in_place(Strategy kind, int stages, int64_t micro_batches) {
  const ScheduleShape shape{.replicas = std::vector<int>(static_cast<size_t>(stages), 1),
                            .micro_batches = micro_batches,
                            .accumulate = micro_batches};
  return schedule::lower(generate(kind, with_placement(kind, shape)),
                         schedule::chain_links(stages));
}

int64_t end_of(const Result& result, Op op, int stage) {
  for (const auto& events : result.timeline.workers) {
    for (const auto& event : events) {
      if (event.action.op == op && event.action.stage.value == stage) return event.end_ns;
    }
  }
  return -1;
}

}  // namespace

TEST(SplitBackward, PartsTakeTheirTimesAndStagesOfOneWorkerNeedNoMessages) {
  Costs costs = split_costs(4, 10, 7, 3);
  costs.latency_ns = 5;
  const Result result = simulate(small_v(), costs);
  EXPECT_EQ(end_of(result, Op::Forward, 1), 10 + 5 + 10);
  EXPECT_EQ(end_of(result, Op::Forward, 2), 35);  // no message from stage 1
  EXPECT_EQ(end_of(result, Op::BackwardInput, 3), 35 + 5 + 10 + 7);
  EXPECT_EQ(end_of(result, Op::BackwardWeight, 3), 60);
  EXPECT_EQ(end_of(result, Op::BackwardInput, 1), 57 + 5 + 7 + 7);  // before both of the worker's W
  EXPECT_EQ(end_of(result, Op::BackwardWeight, 1), 82);
  EXPECT_EQ(end_of(result, Op::BackwardInput, 0), 76 + 5 + 7);
  EXPECT_EQ(result.makespan_ns, 91);
  EXPECT_DOUBLE_EQ(result.idle_share, 1 - 80.0 / (2 * 91));
}

TEST(SplitBackward, InterleavedIsNeverSlowerByItAndKeepsNoMoreAnywhere) {
  Rng rng(11);
  const auto between = [&](uint64_t least, uint64_t most) {
    return static_cast<int64_t>(least + rng.below(most - least + 1));
  };
  for (int i = 0; i < 500; ++i) {
    const auto workers = static_cast<int>(between(2, 8));
    const auto chunks = static_cast<int>(between(2, 4));
    const int64_t micro_batches = between(1, static_cast<uint64_t>(4 * workers));
    const ScheduleShape shape{
        .replicas = std::vector<int>(static_cast<size_t>(workers * chunks), 1),
        .micro_batches = micro_batches,
        .accumulate = micro_batches};
    const auto run = [&](Strategy kind, const Costs& costs) {
      return simulate(schedule::lower(generate(kind, with_placement(kind, shape, chunks)),
                                      schedule::chain_links(workers * chunks)),
                      costs);
    };
    Costs costs = split_costs(workers * chunks, between(1, 900), between(1, 900), between(1, 900));
    for (StageCost& stage : costs.stages) stage.stash_bytes = 1;
    costs.latency_ns = between(0, 2) * between(0, 500);
    const Result whole = run(Strategy::Interleaved, costs);
    const Result split = run(Strategy::InterleavedZb, costs);
    const auto most = [](const Result& result) {
      return *std::max_element(result.peak_memory_bytes.begin(), result.peak_memory_bytes.end());
    };
    ASSERT_LE(split.makespan_ns, whole.makespan_ns)
        << workers << ' ' << chunks << ' ' << micro_batches << ' ' << costs.latency_ns;
    ASSERT_EQ(most(split), most(whole));
  }
}

TEST(SplitBackward, MemoryIsCountedForEveryStageOfAWorker) {
  Costs costs = split_costs(4, 10, 7, 3);
  const int64_t weights[] = {1000, 2000, 500, 3000};
  const int64_t stashes[] = {10, 20, 5, 30};
  for (size_t s = 0; s < 4; ++s) {
    costs.stages[s].weight_bytes = weights[s];
    costs.stages[s].stash_bytes = stashes[s];
  }
  EXPECT_THAT(simulate(small_v(), costs).peak_memory_bytes,
              ElementsAre(3 * 4000 + 40, 3 * 2500 + 25));
}

TEST(SplitBackward, TheStashIsFreedByTheWeightsGradients) {
  const auto peak = [](const std::string& list) {
    const Schedule schedule = schedule::parse_schedule(
        "# penstock schedule 1\n# kind: custom\n# replicas: 1\n# micro-batches: 2  accumulate: 2  "
        "weights: flush\n# lowered: yes\n" +
            list + "\n",
        "test");
    Costs costs;
    costs.stages = {{.stash_bytes = 10}};
    return simulate(schedule, costs).peak_memory_bytes[0];
  };
  EXPECT_EQ(peak("0F0@0,0I0@0,0F1@0,0I1@0,0W0@0,0W1@0,0FREE0@0,0STEP0@0"), 20);
  EXPECT_EQ(peak("0F0@0,0I0@0,0W0@0,0F1@0,0I1@0,0W1@0,0FREE0@0,0STEP0@0"), 10);
}

// Idle time (p - 1)(F + B) per worker, for all F, I and W.
TEST(SplitBackward, WithoutTheSplitTheClosedFormsHold) {
  for (const int p : {2, 3, 5}) {
    for (const Strategy kind :
         {Strategy::GPipe, Strategy::OneFOneBFlush, Strategy::EagerOneFOneB}) {
      const Costs costs = split_costs(p, 11, 17, 5);
      EXPECT_EQ(simulate(lowered_in_place(kind, p, 16), costs).makespan_ns, (16 + p - 1) * 33)
          << to_string(kind) << " " << p;
    }
  }
}

// Qi et al., ICLR 2024, table 2: worker 0 of ZB-H1 is idle for (p - 1)(F + I - W) where all three
// are equal.
TEST(SplitBackward, ZbH1HasAThirdOfTheIdleTimeOf1F1B) {
  for (const int p : {2, 4, 6}) {
    const int64_t m = 3 * p;
    EXPECT_EQ(
        simulate(lowered_in_place(Strategy::ZbH1, p, m), split_costs(p, 10, 10, 10)).makespan_ns,
        30 * m + (p - 1) * 10)
        << p;
  }
}

TEST(Recompute, RunsTheForwardAgainWhileGradientsTravel) {
  const ScheduleShape shape{
      .replicas = {1, 1}, .micro_batches = 1, .accumulate = 1, .recompute = {true, false}};
  Costs costs = split_costs(2, 10, 7, 3);
  costs.stages[0].stash_bytes = 100;
  costs.stages[0].input_bytes = 7;
  costs.latency_ns = 50;
  const Result result =
      simulate(schedule::lower(generate(Strategy::GPipe, shape), schedule::chain_links(2)), costs);
  EXPECT_EQ(end_of(result, Op::Recompute, 0), 20);  // long before its gradient arrives
  EXPECT_EQ(result.makespan_ns, 10 + 50 + 10 + 10 + 50 + 10);
  EXPECT_EQ(result.peak_memory_bytes[0], 107);
}

TEST(Norm, StartsWithTheLastWorkerAndCostsLatencyUpAndDownATree) {
  const ScheduleShape shape{
      .replicas = {1, 1, 1}, .micro_batches = 2, .accumulate = 2, .global_norm = true};
  Costs costs = split_costs(3, 10, 7, 3);
  costs.latency_ns = 4;
  const Result with =
      simulate(schedule::lower(generate(Strategy::GPipe, shape), schedule::chain_links(3)), costs);
  ScheduleShape plain = shape;
  plain.global_norm = false;
  const Result without =
      simulate(schedule::lower(generate(Strategy::GPipe, plain), schedule::chain_links(3)), costs);
  EXPECT_EQ(with.makespan_ns, without.makespan_ns + 2 * 2 * 4);
  for (const auto& events : with.timeline.workers) {
    for (const auto& event : events) {
      if (event.action.op != Op::NormGradients) continue;
      EXPECT_EQ(event.end_ns, with.makespan_ns);
      EXPECT_EQ(event.end_ns - event.start_ns - event.waiting_ns, 16);
    }
  }
}

TEST(Norm, GoesThroughEveryLevelOfTheCluster) {
  const ScheduleShape shape{
      .replicas = {6}, .micro_batches = 6, .accumulate = 6, .global_norm = true};
  Costs costs = split_costs(1, 10, 7, 3);
  costs.cluster = {
      .levels = {{.name = "server", .count = 4, .bandwidth_bytes_per_s = 1'000, .latency_ns = 5},
                 {.name = "alone", .count = 1, .bandwidth_bytes_per_s = 1, .latency_ns = 1'000},
                 {.name = "rack", .count = 9, .bandwidth_bytes_per_s = 1'000, .latency_ns = 20}},
      .device = {}};
  const Schedule schedule = schedule::lower(generate(Strategy::DataParallel, shape), {});
  // Four workers of server 0 and two of server 1: two rounds inside, one between the two servers in
  // use, and the same back.
  EXPECT_EQ(simulate(schedule, costs).makespan_ns, 20 + 2 * (2 * 5 + 1 * 25));
}

TEST(Norm, AWorkerThatNeverArrivesIsADeadlock) {
  const Schedule schedule = schedule::parse_schedule(
      "# penstock schedule 1\n# kind: custom\n# replicas: 1 1\n# micro-batches: 1  accumulate: 1  "
      "weights: flush\n# norm: yes\n"
      "0F0@0,0B0@0,0NORM0,0STEP0@0\n1F0@0,1B0@0,1STEP0@0\n",
      "test");
  try {
    simulate(schedule, split_costs(2, 1, 1, 1));
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("worker 0 is at 0NORM0 and waits for all workers (1 of 2 have arrived)"));
  }
}

TEST(WorkerOfReplica, WorkerNumbersAreThoseOfTheCluster) {
  const ScheduleShape shape{.replicas = {1, 1, 1, 1},
                            .micro_batches = 1,
                            .accumulate = 1,
                            .worker_of_replica = {0, 2, 1, 3}};
  const Schedule schedule =
      schedule::lower(generate(Strategy::ForwardOnly, shape), schedule::chain_links(4));
  Costs costs = split_costs(4, 10, 7, 3);
  costs.links = {
      {StageId{0}, StageId{1}, 100}, {StageId{1}, StageId{2}, 100}, {StageId{2}, StageId{3}, 100}};
  costs.cluster = {
      .levels =
          {{.name = "server", .count = 2, .bandwidth_bytes_per_s = 1'000'000'000, .latency_ns = 1},
           {.name = "rack", .count = 2, .bandwidth_bytes_per_s = 1'000'000'000, .latency_ns = 20}},
      .device = {}};
  for (StageCost& stage : costs.stages) stage.first_worker = 0;  // not read
  // each link crosses from server to server
  EXPECT_EQ(simulate(schedule, costs).makespan_ns, 4 * 10 + 3 * (100 + 21));
  costs.cluster->levels[1].count = 1;
  EXPECT_THROW(simulate(schedule, costs), ConfigError);
}

TEST(WorkerOfReplica, AStageOfAnotherWorkerIsRefused) {
  const Schedule schedule = schedule::parse_schedule(
      "# penstock schedule 1\n# kind: custom\n# replicas: 1 1\n# micro-batches: 1  accumulate: 1  "
      "weights: flush\n# lowered: yes\n"
      "0F0@0,1F0@0\n\n",
      "test");
  EXPECT_THROW(simulate(schedule, split_costs(2, 1, 1, 1)), ConfigError);
}

TEST(SplitBackward, StragglersAreSlowInEveryAction) {
  Options options;
  options.stragglers = {.share = 1, .factor = 3};
  EXPECT_EQ(simulate(small_v(), split_costs(4, 10, 7, 3), options).makespan_ns,
            3 * simulate(small_v(), split_costs(4, 10, 7, 3)).makespan_ns);
}

TEST(SplitBackward, EnormousTimesSaturate) {
  EXPECT_EQ(
      simulate(small_v(), split_costs(4, INT64_MAX, INT64_MAX / 2, INT64_MAX / 2)).makespan_ns,
      INT64_MAX);
}

TEST(SplitBackward, RefusesMoreWeightTimeThanBackwardTime) {
  Costs costs = split_costs(4, 1, 1, 1);
  costs.stages[2].backward_weight_ns = 3;
  EXPECT_THROW(simulate(small_v(), costs), ConfigError);
}

}  // namespace penstock::simulate

#include "penstock/simulate/sum_lanes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

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
using testing::HasSubstr;

constexpr int64_t kForwardNs = 10;
constexpr int64_t kBackwardNs = 20;

/// One stage of two layers: the first is used first and made last.
Costs two_buckets(int64_t first_wire_ns, int64_t last_wire_ns) {
  StageCost stage{.forward_ns = kForwardNs,
                  .backward_ns = kBackwardNs,
                  .step_ns = 4,
                  .sync_ns = first_wire_ns + last_wire_ns + 1,
                  .sync_latency_ns = 1,
                  .weight_bytes = 100};
  stage.buckets = {{.weight_bytes = 50, .backward_ns = 20, .step_ns = 2, .wire_ns = first_wire_ns},
                   {.weight_bytes = 50,
                    .forward_ns = 6,
                    .backward_ns = 5,
                    .step_ns = 2,
                    .wire_ns = last_wire_ns}};
  Costs costs;
  costs.stages = {stage};
  return costs;
}

ScheduleShape two_replicas(int64_t steps) {
  return {.replicas = {2}, .micro_batches = 2 * steps, .accumulate = 2};
}

Schedule data_parallel(const ScheduleShape& shape) {
  return schedule::lower(schedule::generate(Strategy::DataParallel, shape), {});
}

/// "1SUM0.2 15-30": stage, mini-batch, bucket, time.
std::string text_of(const schedule::SumLane& lane) {
  std::string text;
  for (const schedule::SumEvent& event : lane.events) {
    text += std::to_string(event.mini_batch.value) + "." + std::to_string(event.bucket) + " " +
            std::to_string(event.start_ns) + "-" + std::to_string(event.end_ns) + "\n";
  }
  return text;
}

TEST(SumLanes, ASumTravelsWhileTheBackwardPassGoesOnAndIsNeededByItsLayer) {
  const Result result = simulate(data_parallel(two_replicas(2)), two_buckets(5, 12));
  ASSERT_EQ(result.timeline.sums.size(), 2U);
  EXPECT_EQ(result.timeline.sums[0].worker, WorkerId{0});
  EXPECT_EQ(text_of(result.timeline.sums[1]), "0.1 15-27\n0.0 30-35\n1.1 55-67\n1.0 70-75\n");
  const auto& events = result.timeline.workers[0];
  std::string times;
  for (const auto& event : events) {
    times += std::string(schedule::to_string(event.action.op)) + " " +
             std::to_string(event.start_ns) + "-" + std::to_string(event.end_ns) + " waits " +
             std::to_string(event.waiting_ns) + "\n";
  }
  // The second forward pass waits for its first layer's sum, not for the other, and steps both.
  EXPECT_EQ(times,
            "F 0-10 waits 0\nB 10-30 waits 0\nSYNC 30-30 waits 0\nFREE 30-30 waits 0\n"
            "STEP 30-30 waits 0\nF 30-50 waits 6\nB 50-70 waits 0\nSYNC 70-70 waits 0\n"
            "FREE 70-70 waits 0\nSTEP 70-70 waits 0\n");
  // The last sums are taken at the end: 70 + 6 + 2 + 2.
  EXPECT_EQ(result.makespan_ns, 80);
}

TEST(SumLanes, AMoreUrgentBucketOvertakes) {
  const Result result = simulate(data_parallel(two_replicas(1)), two_buckets(5, 20));
  EXPECT_EQ(text_of(result.timeline.sums[0]), "0.1 15-30\n0.0 30-35\n0.1 35-40\n");
  // 30, waits until 36, steps until 38, waits until 41, steps.
  EXPECT_EQ(result.makespan_ns, 43);
}

TEST(SumLanes, ASumBeginsWhenItsLastReplicaHasMadeIt) {
  Options options{.keep_timeline = true};
  options.stragglers = {.share = 0.5, .factor = 2};
  const Result result = simulate(data_parallel(two_replicas(1)), two_buckets(5, 12), options);
  // The straggler has B from 20 to 60.
  EXPECT_EQ(text_of(result.timeline.sums[0]), "0.1 30-42\n0.0 60-65\n");
}

TEST(SumLanes, SumsTakeProcessorTimeThatWaitsForThemPay) {
  Costs costs = two_buckets(5, 12);
  costs.stages[0].buckets[0].processor_ns = 3;
  costs.stages[0].buckets[1].processor_ns = 7;
  const Result result = simulate(data_parallel(two_replicas(2)), costs);
  const auto& forward = result.timeline.workers[0][5];
  ASSERT_EQ(forward.action.op, Op::Forward);
  // The first sum comes at 36: of 6 ns the worker moves and adds for 3. The other one has come
  // before; its 7 ns make the pass longer.
  EXPECT_EQ(forward.start_ns, 30);
  EXPECT_EQ(forward.waiting_ns, 3);
  EXPECT_EQ(forward.end_ns, 30 + 10 + 3 + 3 + 7 + 2 + 2);
  // At the end 77 + 6 + 2 + 7 + 2.
  EXPECT_EQ(result.makespan_ns, 94);
}

TEST(SumLanes, IdleTimePaysForThem) {
  const auto second_pass = [](int64_t processor_ns) {
    Costs costs = two_buckets(5, 12);
    costs.stages[0].buckets[0].processor_ns = processor_ns;
    costs.stages.insert(costs.stages.begin(),
                        {.forward_ns = kForwardNs, .backward_ns = kBackwardNs, .weight_bytes = 1});
    costs.links = {{StageId{0}, StageId{1}, 0}};
    const ScheduleShape shape{.replicas = {1, 2}, .micro_batches = 4, .accumulate = 2};
    const Result result =
        simulate(schedule::lower(schedule::generate(Strategy::OneFOneBFlush, shape),
                                 schedule::chain_links(2)),
                 costs);
    std::vector<schedule::TimelineEvent> passes;
    for (const auto& event : result.timeline.workers[1]) {
      if (event.action.op == Op::Forward) passes.push_back(event);
    }
    return passes.at(1);
  };
  // The replica gives its gradients away at 40, and waits until 90 for its next micro-batch.
  EXPECT_EQ(second_pass(0).start_ns, 90);
  EXPECT_EQ(second_pass(0).end_ns, 90 + 10 + 4);
  EXPECT_EQ(second_pass(50).end_ns, 90 + 10 + 4);
  EXPECT_EQ(second_pass(57).end_ns, 90 + 10 + 4 + 7);
}

TEST(SumLanes, SyncWaitsWhereEverythingIsNeededAtOnce) {
  const auto sync_of = [](const ScheduleShape& shape, const Costs& costs) {
    const Result result = simulate(data_parallel(shape), costs);
    for (const auto& event : result.timeline.workers[0]) {
      if (event.action.op == Op::SyncGradients) return event;
    }
    return schedule::TimelineEvent{};
  };
  const Costs costs = two_buckets(5, 12);
  EXPECT_EQ(sync_of(two_replicas(1), costs).end_ns, 30);

  Costs tied = costs;
  tied.stages[0].waits_for_sums = true;
  ScheduleShape norm = two_replicas(1);
  norm.global_norm = true;
  for (const auto& sync : {sync_of(two_replicas(1), tied), sync_of(norm, costs)}) {
    EXPECT_EQ(sync.start_ns, 30);
    EXPECT_EQ(sync.end_ns, 36);
    EXPECT_EQ(sync.waiting_ns, 6);
  }
  // The policy `latest`: 1f1b with one stage.
  const ScheduleShape latest{.replicas = {2},
                             .micro_batches = 2,
                             .accumulate = 2,
                             .policy = schedule::WeightPolicy::Latest};
  const Schedule pipeline =
      schedule::lower(schedule::generate(Strategy::OneFOneB, latest), schedule::chain_links(1));
  EXPECT_EQ(simulate(pipeline, costs).makespan_ns, 36 + 4);
  // Then STEP takes its time.
  EXPECT_EQ(simulate(data_parallel(two_replicas(1)), tied).makespan_ns, 36 + 4);
}

TEST(SumLanes, ServersAreALaneOfTheirOwn) {
  Costs costs = two_buckets(5, 12);
  cluster::Cluster cluster;
  cluster.levels = {{.name = "rack", .count = 2, .bandwidth_bytes_per_s = 1'000'000'000}};
  cluster.cpu_machines = {.count = 2, .bandwidth_bytes_per_s = 1'000'000'000};
  costs.cluster = cluster;
  for (auto& bucket : costs.stages[0].buckets) bucket.server_ns = 2 * bucket.wire_ns;
  const Result result = simulate(data_parallel(two_replicas(1)), costs);
  ASSERT_EQ(result.timeline.sums.size(), 4U);
  EXPECT_EQ(result.timeline.sums[3].name(), "server 1, sums");
  EXPECT_EQ(text_of(result.timeline.sums[3]), "0.1 15-30\n0.0 30-40\n0.1 40-49\n");
  EXPECT_EQ(text_of(result.timeline.sums[0]), "0.1 15-27\n0.0 30-35\n");
  // Both lanes must have served a bucket: 30, 41, stepped until 43, 50 and 52.
  EXPECT_EQ(result.makespan_ns, 52);
}

TEST(SumLanes, StagesOfTheSameWorkersShareALane) {
  // Chimera: each of two workers holds a replica of both stages.
  const ScheduleShape shape{
      .replicas = {2, 2}, .micro_batches = 2, .accumulate = 2, .worker_of_replica = {0, 1, 1, 0}};
  const Schedule schedule =
      schedule::lower(schedule::generate(Strategy::Chimera, shape), schedule::chain_links(2));
  Costs costs = two_buckets(30, 30);
  costs.stages.push_back(costs.stages[0]);
  const Result result = simulate(schedule, costs);
  ASSERT_EQ(result.timeline.sums.size(), 2U);
  int64_t busy_ns = 0;
  int64_t end_ns = 0;
  for (const schedule::SumEvent& event : result.timeline.sums[0].events) {
    EXPECT_GE(event.start_ns, end_ns);
    end_ns = event.end_ns;
    busy_ns += event.end_ns - event.start_ns;
  }
  EXPECT_EQ(busy_ns, 4 * 30);
}

TEST(SumLanes, AReplicaThatNeverGivesItsPartIsNamed) {
  Schedule schedule = data_parallel(two_replicas(1));
  schedule.workers[1].clear();
  try {
    simulate(schedule, two_buckets(5, 12));
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("waits for the other replicas of stage 0 (1 of 2"));
  }
}

TEST(SumLanes, ATimeBeyondTheRangeSaturates) {
  Costs costs = two_buckets(5, 12);
  for (auto& bucket : costs.stages[0].buckets) bucket.wire_ns = INT64_MAX;
  EXPECT_EQ(simulate(data_parallel(two_replicas(2)), costs).makespan_ns, INT64_MAX);
}

/// Checks that every sum of a stage begins when all replicas have begun the last backward pass of
/// its mini-batch, and ends before anybody has run a forward pass on the weights that it makes.
void check_sums(const schedule::Timeline& timeline, const std::string& name) {
  std::map<std::pair<StageId, MiniBatchId>, std::pair<int64_t, int64_t>> spans;
  for (const schedule::SumLane& lane : timeline.sums) {
    for (const schedule::SumEvent& event : lane.events) {
      const auto [entry, added] =
          spans.try_emplace(std::pair(event.stage, event.mini_batch), event.start_ns, event.end_ns);
      auto& [start_ns, end_ns] = entry->second;
      start_ns = std::min(start_ns, event.start_ns);
      end_ns = std::max(end_ns, event.end_ns);
    }
  }
  ASSERT_FALSE(spans.empty()) << name;
  for (const auto& events : timeline.workers) {
    std::map<std::pair<StageId, MiniBatchId>, int64_t> last_pass_ns;
    for (const auto& event : events) {
      const schedule::Action& action = event.action;
      if (schedule::makes_weight_gradients(action.op))
        last_pass_ns[{action.stage, action.mini_batch}] = event.start_ns;
      if (action.op != Op::Forward || action.version.value < 1) continue;
      const auto made = spans.find({action.stage, MiniBatchId{action.version.value - 1}});
      if (made == spans.end()) continue;
      EXPECT_LE(made->second.second, event.end_ns) << name << schedule::to_text(action);
    }
    for (const auto& [pass, start_ns] : last_pass_ns) {
      const auto sum = spans.find(pass);
      if (sum == spans.end()) continue;
      EXPECT_GE(sum->second.first, start_ns) << name;
    }
  }
}

TEST(SumLanesProperty, EveryKindEndsWithItsSumsBetweenTheirPassesAndTheirUse) {
  int checked = 0;
  for (const Strategy kind : plan::scheduled_strategies()) {
    if (!traits(kind).trains || traits(kind).is_chunked()) continue;
    for (uint64_t seed = 0; seed < 40; ++seed) {
      Rng rng(seed);
      ScheduleShape shape{.replicas = {static_cast<int>(2 + rng.below(2))},
                          .policy = default_policy(kind)};
      while (traits(kind).extent == plan::Extent::Pipeline && rng.below(3) > 0)
        shape.replicas.push_back(static_cast<int>(1 + rng.below(3)));
      shape.accumulate = static_cast<int64_t>(1 + rng.below(6));
      if (kind == Strategy::TwoBuffered) shape.accumulate = 4 * schedule::pipeline_depth(shape);
      shape.micro_batches = shape.accumulate * 4;
      Schedule schedule;
      try {
        schedule = schedule::lower(schedule::generate(kind, shape),
                                   schedule::chain_links(shape.num_stages()));
      } catch (const ConfigError&) {
        continue;  // not a shape of this kind
      }
      Costs costs = two_buckets(1 + static_cast<int64_t>(rng.below(40)),
                                1 + static_cast<int64_t>(rng.below(40)));
      costs.stages.resize(shape.replicas.size(), costs.stages[0]);
      for (size_t s = 0; s < shape.replicas.size(); ++s) {
        if (shape.replicas[s] == 1) costs.stages[s].buckets.clear();
      }
      Options options{.keep_timeline = true, .seed = seed};
      options.compute_spread = 0.2;
      const std::string name = std::string(to_string(kind)) + " seed " + std::to_string(seed) + " ";
      check_sums(simulate(schedule, costs, options).timeline, name);
      ++checked;
    }
  }
  EXPECT_GT(checked, 150);
}

}  // namespace
}  // namespace penstock::simulate

#include "penstock/simulate/simulator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "penstock/schedule/formats/text_format.h"
#include "penstock/schedule/generate.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/rng.h"

namespace penstock::simulate {
namespace {

using schedule::Schedule;
using schedule::ScheduleShape;
using schedule::Strategy;
using testing::HasSubstr;

Schedule lowered(Strategy kind, std::vector<int> replicas, int64_t micro_batches,
                 int64_t accumulate) {
  const ScheduleShape shape{.replicas = std::move(replicas),
                            .micro_batches = micro_batches,
                            .accumulate = accumulate,
                            .policy = default_policy(kind)};
  return schedule::lower(generate(kind, shape), schedule::chain_links(shape.num_stages()));
}

Costs uniform_costs(int num_stages, int64_t forward_ns, int64_t backward_ns) {
  Costs costs;
  costs.stages.assign(static_cast<size_t>(num_stages),
                      {.forward_ns = forward_ns, .backward_ns = backward_ns});
  return costs;
}

std::string failure(const Schedule& schedule, const Costs& costs) {
  try {
    simulate(schedule, costs);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

Schedule parsed(const std::string& text) { return schedule::parse_schedule(text, "test"); }

TEST(Simulator, SerialTimeIsTheSumOfAllActions) {
  Costs costs = uniform_costs(1, 10, 20);
  costs.stages[0].step_ns = 5;
  const Result result = simulate(lowered(Strategy::Serial, {1}, 4, 2), costs);
  EXPECT_EQ(result.makespan_ns, 4 * 30 + 2 * 5);
  EXPECT_DOUBLE_EQ(result.idle_share, 0);
  EXPECT_DOUBLE_EQ(result.throughput_samples_per_s, 4 * 1e9 / 130);
}

TEST(Simulator, ActionsThatRunTogetherHaveATimeOfTheirOwn) {
  const Schedule schedule = schedule::lower(
      parsed("# penstock schedule 1\n# replicas: 1 1\n# micro-batches: 3  accumulate: 3  weights: "
             "flush\n# lowered: no\n"
             "0F0,0F1,(0F2;0B0)OVERLAP_F_B,0B1,0B2\n1F0,1B0,1F1,1B1,1F2,1B2\n"),
      schedule::chain_links(2));
  Costs costs = uniform_costs(2, 10, 30);
  costs.latency_ns = 5;
  const auto ends = [&](double overlap) {
    costs.overlap = overlap;
    const Result result = simulate(schedule, costs);
    std::vector<int64_t> found;
    for (const auto& event : result.timeline.workers[0]) {
      if (is_compute(event.action.op)) found.push_back(event.end_ns);
    }
    // Stage 1 has F2 only when both have ended.
    for (const auto& event : result.timeline.workers[1]) {
      if (to_text(event.action) == "1F2@0") found.push_back(event.start_ns);
    }
    return found;
  };
  // B0's gradient is there at 10 + 5 + 40 + 5 = 60; stage 1 computes until 95.
  EXPECT_EQ(ends(0), (std::vector<int64_t>{10, 20, 70, 100, 130, 180, 105}));
  // Both together take 40 - 10 = 30, of which F has a quarter.
  EXPECT_EQ(ends(1), (std::vector<int64_t>{10, 20, 67, 90, 130, 170, 95}));
  EXPECT_EQ(ends(0.5), (std::vector<int64_t>{10, 20, 69, 95, 130, 175, 100}));
  costs.overlap = 1.5;
  EXPECT_THAT(failure(schedule, costs), HasSubstr("between 0 and 1, found 1.5"));
}

// Each replica has micro-batches k, k + r, ... and adds the gradients of all micro-batches of a
// mini-batch except the first.
TEST(Simulator, GradientsAreAddedFromTheSecondMicroBatchOn) {
  Costs costs = uniform_costs(1, 10, 20);
  costs.stages[0].accumulate_ns = 3;
  EXPECT_EQ(simulate(lowered(Strategy::Serial, {1}, 6, 3), costs).makespan_ns, 6 * 30 + 2 * 2 * 3);
  EXPECT_EQ(simulate(lowered(Strategy::Serial, {1}, 4, 1), costs).makespan_ns, 4 * 30);
  EXPECT_EQ(simulate(lowered(Strategy::DataParallel, {2}, 6, 6), costs).makespan_ns,
            3 * 30 + 2 * 3);
  EXPECT_EQ(simulate(lowered(Strategy::DataParallel, {2}, 6, 3), costs).makespan_ns,
            2 * (2 * 30 + 3));
  Costs split = uniform_costs(2, 10, 20);
  for (StageCost& stage : split.stages) {
    stage.backward_weight_ns = 8;
    stage.accumulate_ns = 4;
  }
  const Result result =
      simulate(lowered(Strategy::ZbH1, {1, 1}, 4, 4), split, {.keep_timeline = true});
  for (const auto& worker : result.timeline.workers) {
    for (const auto& event : worker) {
      if (event.action.op == schedule::Op::BackwardInput) {
        EXPECT_EQ(event.end_ns - event.start_ns, 12);
      }
      if (event.action.op != schedule::Op::BackwardWeight) continue;
      EXPECT_EQ(event.end_ns - event.start_ns, event.action.micro_batch.value == 0 ? 8 : 12);
    }
  }
}

TEST(Simulator, RefusesMoreWorkersThanItSimulates) {
  Schedule schedule{.kind = "dp",
                    .shape = {.replicas = {kMaxSimulatedWorkers + 1}, .micro_batches = 0},
                    .lowered = true};
  schedule.workers.resize(static_cast<size_t>(kMaxSimulatedWorkers) + 1);
  EXPECT_THAT(failure(schedule, uniform_costs(1, 10, 20)),
              HasSubstr("1000001 workers, at most 1000000 are simulated"));
}

// GPipe (arXiv 1811.06965), section 2: idle time (p - 1)(F + B).
TEST(Simulator, GPipeIsIdleForPMinusOneForwardsAndBackwards) {
  for (const int stages : {1, 2, 3, 5}) {
    const Result result =
        simulate(lowered(Strategy::GPipe, std::vector<int>(static_cast<size_t>(stages), 1), 8, 8),
                 uniform_costs(stages, 10, 20));
    EXPECT_EQ(result.makespan_ns, (8 + stages - 1) * 30) << stages;
  }
}

TEST(Simulator, OneFOneBFlushTakesAsLongAsGPipe) {
  for (const int stages : {2, 3, 4}) {
    const auto replicas = std::vector<int>(static_cast<size_t>(stages), 1);
    EXPECT_EQ(
        simulate(lowered(Strategy::OneFOneBFlush, replicas, 8, 8), uniform_costs(stages, 10, 20))
            .makespan_ns,
        simulate(lowered(Strategy::GPipe, replicas, 8, 8), uniform_costs(stages, 10, 20))
            .makespan_ns);
  }
}

TEST(Simulator, OneFOneBIsIdleOnlyAtBothEnds) {
  const Result result =
      simulate(lowered(Strategy::OneFOneB, {1, 1, 1}, 100, 1), uniform_costs(3, 10, 20));
  EXPECT_EQ(result.makespan_ns, 100 * 30 + 2 * 30);
}

TEST(Simulator, ModelParallelTakesOneMicroBatchAtATime) {
  const Result result =
      simulate(lowered(Strategy::ModelParallel, {1, 1}, 10, 1), uniform_costs(2, 10, 20));
  EXPECT_EQ(result.makespan_ns, 10 * 60);
}

TEST(Simulator, MessagesCostTransferAndLatency) {
  Costs costs = uniform_costs(2, 10, 20);
  costs.links = {{StageId{0}, StageId{1}, 1000}};
  costs.bandwidth_bytes_per_s = 1'000'000'000;
  costs.latency_ns = 7;
  // F0, 1000 + 7, F1 B1, 1000 + 7, B0.
  EXPECT_EQ(simulate(lowered(Strategy::ModelParallel, {1, 1}, 1, 1), costs).makespan_ns,
            60 + 2 * 1007);
  costs.bandwidth_bytes_per_s = 0;
  EXPECT_EQ(simulate(lowered(Strategy::ModelParallel, {1, 1}, 1, 1), costs).makespan_ns,
            60 + 2 * 7);
}

TEST(Simulator, MessagesOfOneChannelGoOneAfterTheOther) {
  Costs costs = uniform_costs(2, 1, 1);
  costs.links = {{StageId{0}, StageId{1}, 100}};
  costs.bandwidth_bytes_per_s = 1'000'000'000;
  // The four activations follow each other over the link, then the four gradients do: F0, 4
  // transfers, F1, B1, 4 transfers, B0.
  EXPECT_EQ(simulate(lowered(Strategy::GPipe, {1, 1}, 4, 4), costs).makespan_ns,
            1 + 400 + 1 + 1 + 400 + 1);
}

TEST(Simulator, SyncStartsWithTheLastReplicaAndIsChargedToAll) {
  Costs costs = uniform_costs(1, 10, 20);
  costs.stages[0].sync_ns = 100;
  costs.stages[0].step_ns = 3;
  const Result result = simulate(lowered(Strategy::DataParallel, {2}, 3, 3), costs);
  // Replica 0 has micro-batches 0 and 2, replica 1 has 1.
  EXPECT_EQ(result.makespan_ns, 2 * 30 + 100 + 3);
  for (const schedule::TimelineEvent& event : result.timeline.workers[1]) {
    if (event.action.op != schedule::Op::SyncGradients) continue;
    EXPECT_EQ(event.start_ns, 30);
    EXPECT_EQ(event.waiting_ns, 30);
    EXPECT_EQ(event.end_ns, 160);
  }
}

TEST(Simulator, ASenderWaitsForCredits) {
  const Schedule schedule = parsed(
      "# penstock schedule 1\n# kind: custom\n# replicas: 1 1\n# micro-batches: 3  accumulate: 3  "
      "weights: flush\n"
      "0F0@0,0SEND_F0,0F1@0,0SEND_F1,0F2@0,0SEND_F2\n"
      "1RECV_F0,1F0@0,1RECV_F1,1F1@0,1RECV_F2,1F2@0\n");
  Costs costs;
  costs.stages = {{.forward_ns = 1}, {.forward_ns = 100}};
  costs.credits = 1;
  const Result result = simulate(schedule, costs);
  // The second message is received at 101; only then may the third be sent.
  const schedule::TimelineEvent& last_send = result.timeline.workers[0].back();
  EXPECT_EQ(last_send.start_ns, 3);
  EXPECT_EQ(last_send.end_ns, 101);
  EXPECT_EQ(last_send.waiting_ns, 98);
  costs.credits = 2;
  EXPECT_EQ(simulate(schedule, costs).timeline.workers[0].back().end_ns, 3);
  costs.credits = 0;
  EXPECT_EQ(simulate(schedule, costs).timeline.workers[0].back().end_ns, 201);
}

TEST(Simulator, DeadlockNamesTheWaitingWorkers) {
  const Schedule schedule = parsed(
      "# penstock schedule 1\n# kind: custom\n# replicas: 1 1\n# micro-batches: 1  accumulate: 1  "
      "weights: flush\n"
      "0RECV_B0,0F0@0,0SEND_F0,0B0@0\n"
      "1RECV_F0,1F0@0,1B0@0,1SEND_B0\n");
  const std::string message = failure(schedule, uniform_costs(2, 1, 1));
  EXPECT_THAT(message, HasSubstr("deadlock"));
  EXPECT_THAT(message, HasSubstr("worker 0 is at 0RECV_B0 and waits for worker 1"));
  EXPECT_THAT(message, HasSubstr("worker 1 is at 1RECV_F0 and waits for worker 0"));
}

TEST(Simulator, AReceiveWithoutItsSendIsADeadlock) {
  const Schedule schedule = parsed(
      "# penstock schedule 1\n# kind: custom\n# replicas: 1 1\n# micro-batches: 1  accumulate: 1  "
      "weights: flush\n"
      "0F0@0\n"
      "1RECV_F0,1F0@0\n");
  EXPECT_THAT(failure(schedule, uniform_costs(2, 1, 1)),
              HasSubstr("a message that no worker sends"));
}

TEST(Simulator, AMessageThatIsSentTwiceIsRefused) {
  const std::string header =
      "# penstock schedule 1\n# kind: custom\n# replicas: 1 1\n# micro-batches: 1  accumulate: 1  "
      "weights: flush\n";
  EXPECT_THAT(failure(parsed(header + "0F0@0,0SEND_F0,0SEND_F0\n1F0@0\n"), uniform_costs(2, 1, 1)),
              HasSubstr("worker 0 sends a message that is already on its way: 0SEND_F0"));
}

TEST(Simulator, ReplicasThatSynchroniseInDifferentOrdersDeadlock) {
  const Schedule schedule = parsed(
      "# penstock schedule 1\n# kind: custom\n# replicas: 2\n# micro-batches: 4  accumulate: 2  "
      "weights: flush\n"
      "0F0@0,0B0@0,0SYNC0,0SYNC1\n0F1@0,0B1@0,0SYNC1,0SYNC0\n");
  EXPECT_THAT(failure(schedule, uniform_costs(1, 1, 1)),
              HasSubstr("waits for the other replicas of stage 0 (1 of 2 have arrived)"));
}

TEST(Simulator, RefusesScheduleAndCostsThatDoNotFit) {
  EXPECT_THAT(failure(schedule::generate(Strategy::Serial, {.replicas = {1}, .micro_batches = 1}),
                      uniform_costs(1, 1, 1)),
              HasSubstr("lower()"));
  EXPECT_THAT(failure(lowered(Strategy::GPipe, {1, 1}, 2, 2), uniform_costs(3, 1, 1)),
              HasSubstr("3 stages"));
  EXPECT_THAT(failure(lowered(Strategy::Serial, {1}, 1, 1), uniform_costs(1, -1, 1)),
              HasSubstr("negative"));
  Schedule short_of_workers = lowered(Strategy::GPipe, {1, 1}, 2, 2);
  short_of_workers.workers.pop_back();
  EXPECT_THAT(failure(short_of_workers, uniform_costs(2, 1, 1)),
              HasSubstr("1 workers, its replicas are 2"));
  Costs costs = uniform_costs(2, 1, 1);
  costs.links = {{StageId{1}, StageId{0}, 5}};
  EXPECT_THAT(failure(lowered(Strategy::GPipe, {1, 1}, 2, 2), costs), HasSubstr("link 1 -> 0"));
}

TEST(Simulator, EnormousTimesSaturate) {
  const Result result = simulate(lowered(Strategy::OneFOneB, {1, 1}, 4, 1),
                                 uniform_costs(2, INT64_MAX / 2, INT64_MAX / 2));
  EXPECT_EQ(result.makespan_ns, INT64_MAX);
}

TEST(Simulator, EmptyScheduleTakesNoTime) {
  const Result result = simulate(lowered(Strategy::OneFOneB, {1, 1}, 0, 1), uniform_costs(2, 1, 1));
  EXPECT_EQ(result.makespan_ns, 0);
  EXPECT_EQ(result.throughput_samples_per_s, 0);
}

// PipeDream (SOSP 2019), section 3.3: stage s of p keeps p - s versions and as many stashes.
TEST(Simulator, StashKeepsOneVersionPerMicroBatchInFlight) {
  Costs costs = uniform_costs(3, 1, 1);
  for (StageCost& stage : costs.stages) {
    stage.weight_bytes = 1000;
    stage.stash_bytes = 1;
  }
  const Result result = simulate(lowered(Strategy::OneFOneB, {1, 1, 1}, 20, 1), costs);
  EXPECT_EQ(result.peak_memory_bytes,
            (std::vector<int64_t>{(3 + 1 + 1) * 1000 + 3, (2 + 1 + 1) * 1000 + 2,
                                  (1 + 1 + 1) * 1000 + 1}));
}

TEST(Simulator, GPipeKeepsOneVersionEveryStashAndItsSetsOfGradients) {
  Costs costs = uniform_costs(2, 1, 1);
  for (StageCost& stage : costs.stages) {
    stage.weight_bytes = 1000;
    stage.stash_bytes = 1;
  }
  costs.optimizer_state_per_weight = 2;
  const Result result = simulate(lowered(Strategy::GPipe, {1, 1}, 16, 8), costs);
  EXPECT_EQ(result.peak_memory_bytes, (std::vector<int64_t>{4008, 4008}));
  costs.stages[1].gradient_sets = 5;
  EXPECT_EQ(simulate(lowered(Strategy::GPipe, {1, 1}, 16, 8), costs).peak_memory_bytes,
            (std::vector<int64_t>{4008, 8008}));
}

TEST(Simulator, EvaluationKeepsOnlyTheWeights) {
  Costs costs = uniform_costs(2, 1, 1);
  for (StageCost& stage : costs.stages) {
    stage.weight_bytes = 1000;
    stage.stash_bytes = 1;
  }
  EXPECT_EQ(simulate(lowered(Strategy::ForwardOnly, {1, 1}, 8, 8), costs).peak_memory_bytes,
            (std::vector<int64_t>{1000, 1000}));
}

// Lower bounds on the makespan of every schedule, over seeded random shapes and costs.
TEST(Simulator, NeverFasterThanTheBusiestWorkerOrTheLongestMicroBatch) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Rng rng(seed);
    const auto stages = static_cast<int>(1 + rng.below(4));
    std::vector<int> replicas;
    for (int s = 0; s < stages; ++s) replicas.push_back(static_cast<int>(1 + rng.below(3)));
    Costs costs;
    int64_t longest_ns = 0;
    for (int s = 0; s < stages; ++s) {
      costs.stages.push_back({.forward_ns = static_cast<int64_t>(rng.below(50)),
                              .backward_ns = static_cast<int64_t>(rng.below(50)),
                              .step_ns = static_cast<int64_t>(rng.below(10)),
                              .sync_ns = static_cast<int64_t>(rng.below(30))});
      longest_ns += costs.stages.back().forward_ns + costs.stages.back().backward_ns;
    }
    costs.latency_ns = static_cast<int64_t>(rng.below(20));
    longest_ns += 2 * (stages - 1) * costs.latency_ns;
    const auto micro_batches = static_cast<int64_t>(1 + rng.below(30));
    const Strategy kind = rng.below(2) == 0 ? Strategy::OneFOneB : Strategy::OneFOneBFlush;
    const ScheduleShape shape{.replicas = replicas,
                              .micro_batches = micro_batches,
                              .accumulate = static_cast<int64_t>(1 + rng.below(8)),
                              .policy = default_policy(kind)};
    const Result result =
        simulate(schedule::lower(generate(kind, shape), schedule::chain_links(stages)), costs);
    EXPECT_GE(result.makespan_ns, longest_ns) << "seed " << seed;
    for (int w = 0; w < shape.num_workers(); ++w)
      EXPECT_LE(result.timeline.busy_ns(WorkerId{w}), result.makespan_ns) << "seed " << seed;
    for (const auto& events : result.timeline.workers) {
      for (size_t e = 1; e < events.size(); ++e)
        ASSERT_EQ(events[e].start_ns, events[e - 1].end_ns) << "seed " << seed;
    }
    EXPECT_EQ(result.timeline,
              simulate(schedule::lower(generate(kind, shape), schedule::chain_links(stages)), costs)
                  .timeline)
        << "seed " << seed;
  }
}

TEST(Simulator, SimulatesAnEpochOfAMillionActions) {
  const Schedule schedule = lowered(Strategy::OneFOneB, {1, 1, 1, 1}, 30'000, 1);
  EXPECT_GT(schedule.num_actions(), 500'000);
  EXPECT_EQ(simulate(schedule, uniform_costs(4, 10, 20)).makespan_ns, 30'003 * 30);
}

}  // namespace
}  // namespace penstock::simulate

#include "penstock/simulate/network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "penstock/cluster/topology.h"
#include "penstock/schedule/formats/text_format.h"
#include "penstock/simulate/simulator.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/rng.h"

namespace penstock::simulate {
namespace {

using schedule::Op;
using schedule::Strategy;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kPerNs = 1'000'000'000;  // bytes per second at one byte per ns

/// `servers` of `workers` each: 10 bytes per ns and 5 ns inside, 1 byte per ns and 20 ns more
/// between them.
cluster::Cluster two_levels(int workers, int servers) {
  return {.levels = {{.name = "server",
                      .count = workers,
                      .bandwidth_bytes_per_s = 10 * kPerNs,
                      .latency_ns = 5},
                     {.name = "rack",
                      .count = servers,
                      .bandwidth_bytes_per_s = kPerNs,
                      .latency_ns = 20}},
          .device = {}};
}

Costs two_stages(cluster::Cluster cluster, int64_t bytes) {
  Costs costs;
  costs.stages = {{.forward_ns = 10}, {.forward_ns = 1}};
  costs.links = {{StageId{0}, StageId{1}, bytes}};
  costs.cluster = std::move(cluster);
  return costs;
}

/// Ends of all receives, by micro-batch.
std::vector<int64_t> arrivals(const schedule::Schedule& schedule, const Costs& costs) {
  const Result result = simulate(schedule, costs);
  std::vector<int64_t> ends(static_cast<size_t>(schedule.shape.micro_batches));
  for (const auto& events : result.timeline.workers) {
    for (const auto& event : events) {
      if (event.action.op == Op::RecvForward) ends[event.action.micro_batch.index()] = event.end_ns;
    }
  }
  return ends;
}

schedule::Schedule forward_only(std::vector<int> replicas, int64_t micro_batches) {
  const schedule::ScheduleShape shape{
      .replicas = std::move(replicas), .micro_batches = micro_batches, .accumulate = micro_batches};
  return lower(generate(Strategy::ForwardOnly, shape), schedule::chain_links(shape.num_stages()));
}

std::string network_failure(const Costs& costs, const std::vector<int>& replicas) {
  try {
    simulate(forward_only(replicas, 1), costs);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

/// A step of one micro-batch through two stages, of 10 + 20 and 1 + 2 ns, over this link.
int64_t step_over(const LinkCost& link, int64_t latency_ns = 0) {
  const schedule::ScheduleShape shape{.replicas = {1, 1}, .micro_batches = 1, .accumulate = 1};
  const schedule::Schedule schedule =
      lower(generate(Strategy::ModelParallel, shape), schedule::chain_links(2));
  Costs costs;
  costs.stages = {{.forward_ns = 10, .backward_ns = 20}, {.forward_ns = 1, .backward_ns = 2}};
  costs.bandwidth_bytes_per_s = kPerNs;
  costs.latency_ns = latency_ns;
  costs.links = {link};
  return simulate(schedule, costs).makespan_ns;
}

}  // namespace

TEST(Network, GradientsMayBeSmallerThanWhatTheyComeFrom) {
  const auto end_of_step = [&](std::optional<int64_t> gradient_bytes) {
    return step_over({StageId{0}, StageId{1}, 1000, gradient_bytes}, /*latency_ns=*/5);
  };
  const int64_t computing_ns = 10 + 1 + 2 + 20;
  EXPECT_EQ(end_of_step({}), computing_ns + 2 * (1000 + 5));
  EXPECT_EQ(end_of_step(100), computing_ns + 1000 + 100 + 2 * 5);
  EXPECT_EQ(end_of_step(0), computing_ns + 1000 + 2 * 5);
}

TEST(Network, CodingTakesTimeFromBothWorkers) {
  // The first worker codes while it waits; the second decodes before it computes, and the first
  // before its backward pass.
  EXPECT_EQ(step_over({.from = StageId{0},
                       .to = StageId{1},
                       .bytes = 100,
                       .coding_ns = 7,
                       .coding_back_ns = 4}),
            10 + 100 + 7 + 1 + 2 + 100 + 4 + 20);
}

TEST(Network, TransferTimesRoundUpAndSaturate) {
  EXPECT_EQ(detail::transfer_ns(1, kPerNs), 1);
  EXPECT_EQ(detail::transfer_ns(1, 3 * kPerNs), 1);
  EXPECT_EQ(detail::transfer_ns(1000, 0), 0);
  EXPECT_EQ(detail::transfer_ns(INT64_MAX, 1), INT64_MAX);
}

TEST(Network, AMessageGoesThroughTheLevelThatItsWorkersShare) {
  EXPECT_THAT(arrivals(forward_only({1, 1}, 1), two_stages(two_levels(2, 2), 1000)),
              ElementsAre(10 + 100 + 5));
  Costs apart = two_stages(two_levels(2, 2), 1000);
  apart.stages[0].first_worker = 1;
  apart.stages[1].first_worker = 2;
  EXPECT_THAT(arrivals(forward_only({1, 1}, 1), apart), ElementsAre(10 + 1000 + 25));
}

TEST(Network, WorkersOfOneServerShareItsLinkUpInTheOrderOfTheirSends) {
  // Both send 1000 bytes at 10: the link serves the second when the first has left the server.
  EXPECT_THAT(arrivals(forward_only({2, 2}, 2), two_stages(two_levels(2, 2), 1000)),
              ElementsAre(10 + 1000 + 25, 10 + 2000 + 25));
  const schedule::Schedule late = schedule::parse_schedule(
      "# penstock schedule 1\n# kind: custom\n# replicas: 2 2\n# micro-batches: 3  accumulate: 3  "
      "weights: flush\n"
      "0F0@0,0F2@0,0SEND_F0,0SEND_F2\n0F1@0,0SEND_F1\n1RECV_F0,1F0@0,1RECV_F2,1F2@0\n1RECV_F1,1F1@"
      "0\n",
      "test");
  // Worker 1 sends at 10, worker 0 at 20.
  EXPECT_THAT(arrivals(late, two_stages(two_levels(2, 2), 1000)),
              ElementsAre(2010 + 25, 1010 + 25, 3010 + 25));
}

TEST(Network, ServersThatSendToOneServerShareItsLinkDown) {
  // Stage 0 on servers 0 and 1, stage 1 on server 2. Message 1 leaves its server at 1010 and comes
  // after message 2, which has waited for the link down since 10.
  Costs costs = two_stages(two_levels(2, 3), 1000);
  EXPECT_THAT(arrivals(forward_only({4, 2}, 4), costs), ElementsAre(1035, 3035, 2035, 4035));
  // Two receiving servers: each pair has its own links.
  costs.cluster = two_levels(2, 4);
  EXPECT_THAT(arrivals(forward_only({4, 4}, 4), costs), ElementsAre(1035, 2035, 1035, 2035));
}

TEST(Network, AMessageThatWaitsForALinkDoesNotBlockTheLinksBeforeIt) {
  // Worker 1 fills the link of worker 2 from 10 to 1010. Worker 0's first message waits for it,
  // meanwhile its second one goes to worker 3.
  const schedule::Schedule schedule = schedule::parse_schedule(
      "# penstock schedule 1\n# kind: custom\n# replicas: 1 1 2\n# micro-batches: 2  accumulate: 2 "
      " weights: flush\n"
      "0F0@0,0SEND_F0>2,0SEND_F1>2\n1F0@0,1SEND_F0\n2RECV_F0,2RECV_F0<0\n2RECV_F1<0\n",
      "test");
  Costs costs;
  costs.stages = {{.forward_ns = 20}, {.forward_ns = 10}, {}};
  costs.links = {{StageId{0}, StageId{2}, 1000}, {StageId{1}, StageId{2}, 1000}};
  costs.bandwidth_bytes_per_s = kPerNs;
  const Result result = simulate(schedule, costs);
  EXPECT_EQ(result.timeline.workers[2][0].end_ns, 1010);
  EXPECT_EQ(result.timeline.workers[2][1].end_ns, 2010);
  EXPECT_EQ(result.timeline.workers[3][0].end_ns, 2020);
}

/// When the forward passes of each worker end, with messages of 10 bytes at one byte per ns.
std::vector<std::vector<int64_t>> passes(const cluster::Level& level, int64_t first_ns,
                                         int64_t second_ns) {
  Costs costs = two_stages({.levels = {level}, .device = {}}, 10);
  costs.stages = {{.forward_ns = first_ns}, {.forward_ns = second_ns}};
  const Result result = simulate(forward_only({1, 1}, 3), costs);
  std::vector<std::vector<int64_t>> ends;
  for (const auto& events : result.timeline.workers) {
    ends.emplace_back();
    for (const auto& event : events) {
      if (event.action.op == Op::Forward) ends.back().push_back(event.end_ns);
    }
  }
  return ends;
}

TEST(Network, MessagesTakeProcessorTimeFromBothEndsThatWaitingPays) {
  cluster::Level level{.name = "hosts",
                       .count = 2,
                       .bandwidth_bytes_per_s = kPerNs,
                       .processor_ns_per_gb = 400'000'000};  // 2 ns for each end of 10 bytes
  // The sender pays for each message with the next pass. The receiver waits for all of them.
  EXPECT_THAT(passes(level, 10, 1), ElementsAre(ElementsAre(10, 22, 34), ElementsAre(21, 33, 45)));
  // The receiver waits for the first one, and pays for the others.
  EXPECT_THAT(passes(level, 10, 30),
              ElementsAre(ElementsAre(10, 22, 34), ElementsAre(50, 82, 114)));
  // It waits from 31 to 32 for the second one, which pays for half of it.
  EXPECT_THAT(passes(level, 10, 11)[1], ElementsAre(31, 32 + 11 + 1, 44 + 11 + 2));
  // 1 ns for each end of 10 bytes, and as much for each end of any message.
  level.processor_ns_per_gb = 200'000'000;
  level.processor_ns_per_message = 2;
  EXPECT_THAT(passes(level, 10, 30),
              ElementsAre(ElementsAre(10, 22, 34), ElementsAre(50, 82, 114)));
  level.by_reference = true;
  EXPECT_THAT(passes(level, 10, 30),
              ElementsAre(ElementsAre(10, 20, 30), ElementsAre(40, 70, 100)));
}

TEST(Network, BothDirectionsOfALinkAreIndependent) {
  Costs costs = two_stages(two_levels(1, 2), 1000);
  costs.stages[0].backward_ns = 1;
  costs.stages[1].backward_ns = 1;
  const schedule::Schedule crossing = schedule::parse_schedule(
      "# penstock schedule 1\n# kind: custom\n# replicas: 1 1\n# micro-batches: 2  accumulate: 2  "
      "weights: flush\n"
      "0F0@0,0SEND_F0,0F1@0,0SEND_F1,0RECV_B0,0B0@0,0RECV_B1,0B1@0\n1RECV_F0,1F0@0,1B0@0,1SEND_B0,"
      "1RECV_F1,1F1@0,1B1@0,1SEND_B1\n",
      "test");
  // F1 leaves after F0 at 1010 and arrives at 2030; B0 leaves at 1032 in the other direction and
  // arrives at 2052; B1 leaves at 2032, directly after B0.
  EXPECT_EQ(simulate(crossing, costs).makespan_ns, 2032 + 1000 + 20 + 1);
}

TEST(Network, ByReferenceMessagesCostOnlyLatency) {
  cluster::Cluster cluster = two_levels(2, 2);
  cluster.levels[0].by_reference = true;
  Costs costs = two_stages(cluster, 1000);
  EXPECT_THAT(arrivals(forward_only({1, 1}, 2), costs), ElementsAre(15, 25));
  // Between servers they move, but share nothing inside a server.
  costs.stages[1].first_worker = 2;
  EXPECT_THAT(arrivals(forward_only({1, 1}, 2), costs), ElementsAre(1035, 2035));
}

TEST(Network, LevelsOfOneUnitJoinNothing) {
  cluster::Cluster cluster = two_levels(2, 1);
  EXPECT_THAT(arrivals(forward_only({1, 1}, 1), two_stages(cluster, 1000)), ElementsAre(115));
  cluster.levels.insert(
      cluster.levels.begin(),
      {.name = "socket", .count = 1, .bandwidth_bytes_per_s = 1, .latency_ns = 1'000'000});
  EXPECT_THAT(arrivals(forward_only({1, 1}, 1), two_stages(cluster, 1000)), ElementsAre(115));
}

TEST(Network, RefusesPlacesOutsideTheClusterOrUsedTwice) {
  Costs costs = two_stages(two_levels(2, 1), 1);
  EXPECT_THAT(network_failure(costs, {1, 2}),
              HasSubstr("stage 1 is placed on workers 1 to 2, the cluster has 2 workers"));
  costs.stages[0].first_worker = 1;
  EXPECT_THAT(network_failure(costs, {1, 1}), HasSubstr("stage 1 is placed on workers 2 to 2"));
  costs.stages[1].first_worker = 1;
  EXPECT_THAT(network_failure(costs, {1, 1}), HasSubstr("two stages are placed on worker 1"));
  costs.stages[1].first_worker = 0;
  EXPECT_EQ(network_failure(costs, {1, 1}), "");
}

// One message at a time never waits: its time is that of the path, for any hierarchy.
TEST(Network, WithoutContentionAMessageTakesThePathsTime) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Rng rng(seed);
    cluster::Cluster cluster;
    const auto levels = 1 + rng.below(4);
    for (uint64_t l = 0; l < levels; ++l) {
      cluster.levels.push_back(
          {.name = "level" + std::to_string(l),
           .count = static_cast<int>(1 + rng.below(4)),
           .bandwidth_bytes_per_s = static_cast<int64_t>(1 + rng.below(20)) * 100'000'000,
           .latency_ns = static_cast<int64_t>(rng.below(50)),
           .by_reference = rng.below(4) == 0});
    }
    const cluster::Topology topology(cluster);
    const int stages =
        static_cast<int>(1 + rng.below(static_cast<uint64_t>(std::min(topology.num_workers(), 8))));
    std::vector<int> places(static_cast<size_t>(topology.num_workers()));
    for (size_t i = 0; i < places.size(); ++i) places[i] = static_cast<int>(i);
    rng.shuffle(std::span<int>(places));
    Costs costs;
    costs.cluster = cluster;
    int64_t expected_ns = 0;
    for (int s = 0; s < stages; ++s) {
      costs.stages.push_back(
          {.forward_ns = 7, .backward_ns = 11, .first_worker = places[static_cast<size_t>(s)]});
      expected_ns += 18;
      if (s == 0) continue;
      const auto bytes = static_cast<int64_t>(rng.below(10'000));
      costs.links.push_back({StageId{s - 1}, StageId{s}, bytes});
      const cluster::Path& path = topology.path(topology.level_between(
          places[static_cast<size_t>(s - 1)], places[static_cast<size_t>(s)]));
      expected_ns +=
          2 * (path.latency_ns +
               (path.by_reference ? 0 : detail::transfer_ns(bytes, path.bandwidth_bytes_per_s)));
    }
    const schedule::ScheduleShape shape{
        .replicas = std::vector<int>(static_cast<size_t>(stages), 1),
        .micro_batches = 3,
        .accumulate = 1};
    const auto schedule =
        lower(generate(Strategy::ModelParallel, shape), schedule::chain_links(stages));
    ASSERT_EQ(simulate(schedule, costs).makespan_ns, 3 * expected_ns) << "seed " << seed;
  }
}

// No link carries more than its bandwidth: the last arrival through a server's link is no earlier
// than all of its bytes allow.
TEST(Network, NoLinkIsFasterThanItsBandwidth) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    Rng rng(seed);
    const auto workers = static_cast<int>(2 + rng.below(3));
    const auto bytes = static_cast<int64_t>(1 + rng.below(5000));
    const auto micro_batches = static_cast<int64_t>(1 + rng.below(40));
    Costs costs = two_stages(two_levels(workers, 2), bytes);
    costs.stages[1].forward_ns = 0;
    const auto ends = arrivals(forward_only({workers, workers}, micro_batches), costs);
    // Everything crosses the one link between the servers; it is never idle after the first forward
    // while anything waits.
    const int64_t last = *std::max_element(ends.begin(), ends.end());
    EXPECT_GE(last, 10 + micro_batches * bytes + 25) << "seed " << seed;
    EXPECT_LE(last, (micro_batches / workers + 1) * 10 + micro_batches * bytes + 25)
        << "seed " << seed;
  }
}

namespace {

/// Forward passes of pairs of stages on six workers of three servers; `forward_ns` and `workers` by
/// stage. Without sends, which are checked elsewhere, it would be no schedule that is sound.
Costs pairs_of_stages(std::vector<int64_t> forward_ns, std::vector<int> workers) {
  Costs costs;
  costs.cluster = two_levels(2, 3);
  for (size_t s = 0; s < forward_ns.size(); ++s)
    costs.stages.push_back({.forward_ns = forward_ns[s], .first_worker = workers[s]});
  return costs;
}

/// The end of worker `worker`'s receive of a message from stage `from`.
int64_t arrival(const Result& result, size_t worker, int from) {
  for (const auto& event : result.timeline.workers[worker]) {
    if (event.action.op == Op::RecvForward && event.action.peer.value == from) return event.end_ns;
  }
  return -1;
}

const std::string kPairsHeader =
    "# penstock schedule 1\n# kind: custom\n# replicas: 1 1 1 1\n# micro-batches: 1  accumulate: 1 "
    " "
    "weights: flush\n";

}  // namespace

// The bytes of the message from the other server have piled up before the receiver's own link while
// that served another message: then they need the time of that fast link, not that of the slow one.
TEST(Network, WaitingForAFastLastLinkCostsItsOwnTime) {
  Costs costs = pairs_of_stages({10, 9, 0, 0}, {0, 2, 3, 4});
  // Stage 1 sends 4900 bytes to stage 2 in its own server, 490 ns; stage 0 sends it 1000 bytes from
  // another server, which have come up to the last link at 10 to 1010.
  costs.links = {{StageId{0}, StageId{2}, 1000}, {StageId{1}, StageId{2}, 4900}};
  const auto schedule = schedule::parse_schedule(
      kPairsHeader + "0F0@0,0SEND_F0>2\n1F0@0,1SEND_F0\n2RECV_F0,2RECV_F0<0\n3F0@0\n", "test");
  EXPECT_EQ(arrival(simulate(schedule, costs), 2, 0), 1010 + 25);
  costs.links[1].bytes = 20'000;  // until 2009
  EXPECT_EQ(arrival(simulate(schedule, costs), 2, 0), 2009 + 100 + 25);
}

// Stage 1's and stage 2's messages leave one server, one after the other; stage 2's reaches the
// link down to the receivers' server at 1010, and so does that of stage 0, which is sent then.
TEST(Network, OfTwoThatReachALinkTogetherTheOneUnderWayGoesFirst) {
  Costs costs = pairs_of_stages({1010, 10, 10, 0}, {0, 2, 3, 4});
  for (const int from : {0, 1, 2}) costs.links.push_back({StageId{from}, StageId{3}, 1000});
  const auto schedule = schedule::parse_schedule(
      kPairsHeader +
          "0F0@0,0SEND_F0>3\n1F0@0,1SEND_F0>3\n2F0@0,2SEND_F0\n3RECV_F0<1,3RECV_F0,"
          "3RECV_F0<0\n",
      "test");
  const Result result = simulate(schedule, costs);
  EXPECT_EQ(arrival(result, 3, 1), 1010 + 25);
  EXPECT_EQ(arrival(result, 3, 2), 2010 + 25);
  EXPECT_EQ(arrival(result, 3, 0), 3010 + 25);
}

// Inside the process tensors move by reference; what leaves it is copied out of memory, one message
// after the other.
TEST(Network, ALevelByReferenceCarriesWhatGoesFurther) {
  Costs costs = pairs_of_stages({10, 10, 0, 0}, {0, 1, 2, 4});
  costs.cluster->levels[0].by_reference = true;
  costs.cluster->levels[0].bandwidth_bytes_per_s = kPerNs / 2;  // slower than the network
  costs.links = {{StageId{0}, StageId{2}, 1000}, {StageId{1}, StageId{2}, 1000}};
  const auto schedule = schedule::parse_schedule(
      kPairsHeader + "0F0@0,0SEND_F0>2\n1F0@0,1SEND_F0\n2RECV_F0<0,2RECV_F0\n3F0@0\n", "test");
  const Result result = simulate(schedule, costs);
  EXPECT_EQ(arrival(result, 2, 0), 2010 + 25);
  // Each worker has its own way out; the second waits 1000 ns for the network and 1000 ns more for
  // the receiver's.
  EXPECT_EQ(arrival(result, 2, 1), 4010 + 25);
  costs.stages[2].first_worker = 3;
  costs.stages[0].first_worker = 2;  // a neighbour: by reference, and in nobody's way
  EXPECT_EQ(arrival(simulate(schedule, costs), 2, 0), 10 + 5);
}

TEST(Network, CostsOfAPlanCarryItsStagesLinksAndPlaces) {
  plan::Plan plan;
  plan.cluster = two_levels(4, 2);
  plan.micro_batch_size = 32;
  plan.optimizer_state_per_weight = 2;
  plan.stages = {{.layers = {"a"},
                  .forward_ns = 1,
                  .backward_ns = 2,
                  .backward_weight_ns = 1,
                  .weight_bytes = 3,
                  .first_worker = 4},
                 {.layers = {"b"}, .stash_bytes = 4, .first_worker = 0, .recompute = true}};
  plan.links = {{StageId{0}, StageId{1}, 99, 33}};
  const Costs costs = costs_of(plan);
  ASSERT_EQ(costs.stages.size(), 2u);
  EXPECT_EQ(costs.stages[0].backward_ns, 2);
  EXPECT_EQ(costs.stages[0].first_worker, 4);
  EXPECT_EQ(costs.stages[1].stash_bytes, 4);
  EXPECT_EQ(costs.stages[0].backward_weight_ns, 1);
  EXPECT_EQ(costs.stages[1].input_bytes, 99);
  ASSERT_EQ(costs.links.size(), 1u);
  EXPECT_EQ(costs.links[0].bytes, 99);
  EXPECT_EQ(costs.links[0].bytes_back(), 33);
  EXPECT_EQ(costs.cluster, plan.cluster);
  EXPECT_EQ(costs.samples_per_micro_batch, 32);
  EXPECT_EQ(costs.optimizer_state_per_weight, 2);
  plan.links[0].to = StageId{2};
  EXPECT_THROW(costs_of(plan), ConfigError);
}

}  // namespace penstock::simulate

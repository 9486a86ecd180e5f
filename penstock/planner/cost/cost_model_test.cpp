#include "penstock/planner/cost/named_models.h"

#include <gtest/gtest.h>

#include <cmath>

#include "penstock/planner/testing/testing_graphs.h"
#include "penstock/util/error.h"

namespace penstock::planner {
namespace {

using testing_graphs::between;
using testing_graphs::flat_cluster;
using testing_graphs::random_cluster;

constexpr SegmentCost kSegment{.compute_ns = 600, .step_ns = 40, .weight_bytes = 200};

cluster::Cluster two_levels() {
  return {
      .levels = {
          {.name = "server", .count = 4, .bandwidth_bytes_per_s = 1'000'000'000, .latency_ns = 50},
          {.name = "rack", .count = 2, .bandwidth_bytes_per_s = 100'000'000, .latency_ns = 70}}};
}

TEST(CostModel, Sosp2019IsTheFormulaAsPrinted) {
  const auto model =
      make_cost_model("sosp2019", flat_cluster(4, 1'000'000'000, 50), GradientSync::Ring);
  EXPECT_DOUBLE_EQ(model->stage_ns(kSegment, 1, 0, 0), 600);
  EXPECT_DOUBLE_EQ(model->stage_ns(kSegment, 2, 1, 0), 300);  // max(600, 2 * 200) / 2
  // max(600, 2 * 3 * 200) / 4
  EXPECT_DOUBLE_EQ(model->stage_ns(kSegment, 4, 1, 0), 2 * 3 * 200 / 4.0);
  EXPECT_DOUBLE_EQ(model->cut_ns(70, 1), 140);
}

TEST(CostModel, ReleasedAddsComputationAndFourTransfersAndMovesActivationsForNothing) {
  const auto model =
      make_cost_model("released", flat_cluster(4, 1'000'000'000, 50), GradientSync::Ring);
  EXPECT_DOUBLE_EQ(model->stage_ns(kSegment, 1, 0, 0), 600);
  EXPECT_DOUBLE_EQ(model->stage_ns(kSegment, 4, 1, 0), (600 + 4 * 3 * 200 / 4.0) / 4);
  EXPECT_DOUBLE_EQ(model->cut_ns(1'000'000, 1), 0);
}

TEST(CostModel, Report2018TakesTheLargerOfComputationAndFourTransfers) {
  const auto model =
      make_cost_model("report2018", flat_cluster(4, 1'000'000'000, 50), GradientSync::Ring);
  EXPECT_DOUBLE_EQ(model->stage_ns(kSegment, 4, 1, 0), 600 / 4.0);  // 4 * 3 * 200 / 4 = 600
  EXPECT_DOUBLE_EQ(model->stage_ns({.compute_ns = 500, .weight_bytes = 200}, 4, 1, 0), 600 / 4.0);
  EXPECT_DOUBLE_EQ(model->cut_ns(70, 1), 140);
}

TEST(CostModel, PenstockAddsWhatAWorkerDoesInTurn) {
  const auto model =
      make_cost_model("penstock", flat_cluster(4, 1'000'000'000, 50), GradientSync::Ring);
  EXPECT_DOUBLE_EQ(model->stage_ns(kSegment, 1, 0, 0), 640);
  EXPECT_DOUBLE_EQ(model->stage_ns(kSegment, 1, 0, 4), 610);
  EXPECT_DOUBLE_EQ(model->stage_ns(kSegment, 2, 1, 0), (600 + 200 + 50 + 40) / 2.0);
  EXPECT_DOUBLE_EQ(model->stage_ns(kSegment, 2, 1, 4), (2 * 600 + 200 + 50 + 40) / 4.0);
  // uneven shares: the larger one counts
  EXPECT_DOUBLE_EQ(model->stage_ns(kSegment, 2, 1, 3), (2 * 600 + 200 + 50 + 40) / 3.0);
  EXPECT_DOUBLE_EQ(model->cut_ns(70, 1), 2 * 70 + 50);
}

// A replica adds the gradients of all its micro-batches of a step but the first.
TEST(CostModel, PenstockCountsTheAddingOfGradients) {
  const auto model =
      make_cost_model("penstock", flat_cluster(4, 1'000'000'000, 50), GradientSync::Ring);
  SegmentCost segment = kSegment;
  segment.accumulate_ns = 30;
  EXPECT_DOUBLE_EQ(model->stage_ns(segment, 1, 0, 0), 640);
  EXPECT_DOUBLE_EQ(model->stage_ns(segment, 1, 0, 1), 640);
  EXPECT_DOUBLE_EQ(model->stage_ns(segment, 1, 0, 4), (4 * 600 + 3 * 30 + 40) / 4.0);
  EXPECT_DOUBLE_EQ(model->stage_ns(segment, 2, 1, 4), (2 * 600 + 30 + 200 + 50 + 40) / 4.0);
  // A layer that does nothing but add, where messages cost nothing.
  const auto fast = make_cost_model("penstock", flat_cluster(4, 1'000'000'000), GradientSync::Ring);
  EXPECT_EQ(fast->fewest_replicas({.accumulate_ns = 30}, 0, 1, 4, 1, 2), 2);
}

TEST(CostModel, EachLevelHasItsLinks) {
  const auto model = make_cost_model("penstock", two_levels(), GradientSync::Ring);
  EXPECT_DOUBLE_EQ(model->stage_ns(kSegment, 2, 1, 0), (600 + 200 + 50 + 40) / 2.0);
  EXPECT_DOUBLE_EQ(model->stage_ns(kSegment, 2, 2, 0), (600 + 2000 + 120 + 40) / 2.0);
  EXPECT_DOUBLE_EQ(model->cut_ns(70, 2), 2 * 700 + 120);
  EXPECT_EQ(model->sync_ns(200, 2, 1), 250);
  EXPECT_EQ(model->sync_ns(200, 2, 2), 2120);
  EXPECT_EQ(model->sync_ns(200, 1, 0), 0);
}

TEST(CostModel, ByReferenceCutsCostLatencyAlone) {
  const auto model =
      make_cost_model("penstock", flat_cluster(2, 1'000'000'000, 50, true), GradientSync::Ring);
  EXPECT_DOUBLE_EQ(model->cut_ns(1'000'000, 1), 50);
  EXPECT_EQ(model->sync_ns(1000, 2, 1), 1050);
}

int64_t sync_of(GradientSync sync, int servers, int64_t server_bandwidth, int replicas) {
  cluster::Cluster cluster = flat_cluster(16, 1'000'000'000);
  cluster.cpu_machines = {.count = servers, .bandwidth_bytes_per_s = server_bandwidth};
  return make_cost_model("penstock", cluster, sync)->sync_ns(1'200'000, replicas, 1);
}

TEST(CostModel, ParameterServersAreAsSlowAsTheNarrowerSide) {
  constexpr int64_t kNic = 1'000'000'000;
  // colocated: 2 * 3/4 W/B
  EXPECT_EQ(sync_of(GradientSync::ParameterServer, 0, 0, 4), 1'800'000);
  EXPECT_EQ(sync_of(GradientSync::ParameterServer, 2, kNic, 4), 2'400'000);  // 4 W / (2 B)
  EXPECT_EQ(sync_of(GradientSync::ParameterServer, 2, 2 * kNic, 4), 1'200'000);
  EXPECT_EQ(sync_of(GradientSync::ParameterServer, 8, kNic, 4), 1'200'000);  // W / B
  EXPECT_EQ(sync_of(GradientSync::ParameterServer, 8, kNic, 1), 0);
}

TEST(CostModel, SummationSharesTheWorkOverAllNics) {
  constexpr int64_t kNic = 1'000'000'000;
  EXPECT_EQ(sync_of(GradientSync::Summation, 0, 0, 4), 1'800'000);  // all-reduce
  // 2n(n-1) / (n^2 + kn - 2k) = 24/20
  EXPECT_EQ(sync_of(GradientSync::Summation, 2, kNic, 4), 1'440'000);
  EXPECT_EQ(sync_of(GradientSync::Summation, 1, 2 * kNic, 4), 1'440'000);  // k r = 2
  EXPECT_EQ(sync_of(GradientSync::Summation, 9, kNic, 4), 1'200'000);      // k >= n
  // two replicas: servers bring nothing
  EXPECT_EQ(sync_of(GradientSync::Summation, 1, kNic, 2), 1'200'000);
  EXPECT_EQ(sync_of(GradientSync::Summation, 0, 0, 2), 1'200'000);
  EXPECT_EQ(sync_of(GradientSync::Summation, 9, kNic, 1), 0);
}

TEST(CostModel, SummationStaysInsideAServerWhereThatIsFaster) {
  cluster::Cluster cluster = two_levels();
  cluster.cpu_machines = {.count = 8, .bandwidth_bytes_per_s = 100'000'000};
  const auto model = make_cost_model("penstock", cluster, GradientSync::Summation);
  EXPECT_EQ(model->sync_ns(4000, 4, 1), 6'050);  // all-reduce at the server's speed
  // Four replicas of a server send all of it through their link, and would to each other, too.
  EXPECT_EQ(model->sync_ns(4000, 8, 2), 160'120);
}

TEST(CostModel, OrderedSendsMoreBetweenServersThanARing) {
  const auto ordered = make_cost_model("penstock", two_levels(), GradientSync::Ordered);
  const auto ring = make_cost_model("penstock", two_levels(), GradientSync::Ring);
  // Two servers of r replicas each: 2 r r/(2r) W through the rack, and 2(2r-1)/(2r) W.
  EXPECT_EQ(ordered->sync_ns(4000, 8, 2), 4 * 4000 * 10 + 120);
  EXPECT_EQ(ring->sync_ns(4000, 8, 2), 7000 * 10 + 120);
  EXPECT_EQ(ordered->sync_ns(3000, 3, 2), ring->sync_ns(3000, 3, 2));  // 2 and 1
  EXPECT_EQ(ordered->sync_ns(4000, 4, 1), ring->sync_ns(4000, 4, 1));
}

TEST(CostModel, ComputationHidesSumsBetweenRanks) {
  SegmentCost segment = kSegment;  // 600 of computation, a step of 40, a sum of 250
  segment.overlap_ns = 600 + 40;
  const auto model =
      make_cost_model("penstock", flat_cluster(4, 1'000'000'000, 50), GradientSync::Ring);
  EXPECT_DOUBLE_EQ(model->stage_ns(segment, 2, 1, 2), (600 + 40) / 2.0);
  EXPECT_DOUBLE_EQ(model->stage_ns(segment, 2, 1, 0), (600 + 40) / 2.0);
  segment.weight_bytes = 1000;
  EXPECT_DOUBLE_EQ(model->stage_ns(segment, 2, 1, 2), 1050 / 2.0);
  EXPECT_DOUBLE_EQ(model->stage_ns(segment, 2, 1, 4), (600 + 1050) / 4.0);
  EXPECT_DOUBLE_EQ(model->stage_ns(segment, 2, 1, 0), 1050 / 2.0);
  // A norm needs all of them at once, and threads of one process add them themselves.
  const auto waiting = make_cost_model("penstock", flat_cluster(4, 1'000'000'000, 50),
                                       GradientSync::Ring, SyncOverlap::Waits);
  EXPECT_DOUBLE_EQ(waiting->stage_ns(segment, 2, 1, 2), (600 + 1050 + 40) / 2.0);
  const auto threads =
      make_cost_model("penstock", flat_cluster(4, 1'000'000'000, 50, true), GradientSync::Ring);
  EXPECT_DOUBLE_EQ(threads->stage_ns(segment, 2, 1, 2), (600 + 1050 + 40) / 2.0);
}

TEST(CostModel, ProcessorTimeOfSumsIsNotHidden) {
  cluster::Cluster cluster = flat_cluster(4, 1'000'000'000, 50);
  cluster.levels[0].processor_ns_per_gb = 300'000'000;
  const auto model = make_cost_model("penstock", cluster, GradientSync::Ring);
  // Of 1000 bytes 300 ns, where 600 of 1050 are hidden.
  SegmentCost segment{.compute_ns = 600, .step_ns = 40, .weight_bytes = 1000, .overlap_ns = 640};
  EXPECT_DOUBLE_EQ(model->stage_ns(segment, 2, 1, 2), (600 + 40 + 410) / 2.0);
  EXPECT_DOUBLE_EQ(model->stage_ns(segment, 2, 1, 0), (600 + 40 + 410) / 2.0);
  segment.weight_bytes = 500;  // nothing is left of the sum
  EXPECT_DOUBLE_EQ(model->stage_ns(segment, 2, 1, 2), (600 + 40 + 150) / 2.0);
  EXPECT_DOUBLE_EQ(model->stage_ns(segment, 2, 1, 0), (600 + 40 + 150) / 2.0);
  EXPECT_DOUBLE_EQ(model->stage_ns(segment, 1, 0, 2), 640 - 40 / 2.0);
  EXPECT_EQ(model->processor_ns(500, 2, 1, false), 150);
  // Half of the bytes, half of the time.
  const auto half = make_cost_model("penstock", cluster, GradientSync::Ring, SyncOverlap::Hidden,
                                    FloatType::BFloat16);
  EXPECT_EQ(half->processor_ns(500, 2, 1, false), 75);
  // Where SYNC waits, the longer one of both counts.
  const auto waiting = make_cost_model("penstock", cluster, GradientSync::Ring, SyncOverlap::Waits);
  EXPECT_DOUBLE_EQ(waiting->stage_ns(segment, 2, 1, 2), (600 + 40 + 550) / 2.0);
  cluster.levels[0].processor_ns_per_gb = 3'000'000'000;
  const auto slow = make_cost_model("penstock", cluster, GradientSync::Ring, SyncOverlap::Waits);
  EXPECT_DOUBLE_EQ(slow->stage_ns(segment, 2, 1, 2), (600 + 40 + 1500) / 2.0);
  // The published models know nothing of it.
  EXPECT_DOUBLE_EQ(
      make_cost_model("sosp2019", cluster, GradientSync::Ring)->stage_ns(kSegment, 2, 1, 0), 300);
}

TEST(CostModel, GradientsIn16BitsTakeHalfOfTheTimeBetweenRanks) {
  const auto model_of = [](cluster::Cluster cluster, GradientSync sync, FloatType precision,
                           const char* name = "penstock") {
    cluster.cpu_machines = {.count = 2, .bandwidth_bytes_per_s = 100'000'000};
    return make_cost_model(name, cluster, sync, SyncOverlap::Waits, precision);
  };
  for (const GradientSync sync : {GradientSync::Ordered, GradientSync::Ring,
                                  GradientSync::ParameterServer, GradientSync::Summation}) {
    const auto wide = model_of(two_levels(), sync, FloatType::Float32);
    for (const FloatType precision : {FloatType::BFloat16, FloatType::Float16}) {
      const auto half = model_of(two_levels(), sync, precision);
      const auto bytes_ns = [](const CostModel& model, int level) {
        return model.sync_ns(80'000, 4, level) -
               model.sync_latency_ns(level, model.uses_servers(80'000, 4, level));
      };
      for (const int level : {1, 2}) EXPECT_EQ(2 * bytes_ns(*half, level), bytes_ns(*wide, level));
      EXPECT_EQ(half->wire_bytes(80'000, 2), 40'000);
      // Activations stay what they are.
      EXPECT_EQ(half->cut_ns(1000, 2), wide->cut_ns(1000, 2));
    }
  }
  // Threads add float32 in shared memory.
  const cluster::Cluster threads = flat_cluster(4, 1'000'000'000, 50, true);
  EXPECT_EQ(model_of(threads, GradientSync::Ordered, FloatType::BFloat16)->sync_ns(1000, 2, 1),
            model_of(threads, GradientSync::Ordered, FloatType::Float32)->sync_ns(1000, 2, 1));
  for (const char* name : {"sosp2019", "released", "report2018"}) {
    const SegmentCost segment{.weight_bytes = 1'000'000};
    EXPECT_DOUBLE_EQ(2 * model_of(two_levels(), GradientSync::Ring, FloatType::Float16, name)
                             ->stage_ns(segment, 2, 1, 0),
                     model_of(two_levels(), GradientSync::Ring, FloatType::Float32, name)
                         ->stage_ns(segment, 2, 1, 0));
  }
}

TEST(CostModel, ALevelThatJoinsNothingIsNoProcess) {
  cluster::Cluster cluster = flat_cluster(4, 1'000'000'000, 50);
  const auto served = [&] {
    cluster.cpu_machines = {.count = 1, .bandwidth_bytes_per_s = 1'000'000'000};
    return make_cost_model("penstock", cluster, GradientSync::ParameterServer);
  };
  const SegmentCost segment{.compute_ns = 600, .weight_bytes = 1000, .overlap_ns = 600};
  const double expected = served()->least_sum_ns(segment, 4, 1);
  cluster.levels.insert(cluster.levels.begin(), {.name = "alone", .count = 1});
  EXPECT_DOUBLE_EQ(served()->least_sum_ns(segment, 4, 2), expected);
}

TEST(CostModel, UnknownNamesAreRefused) {
  EXPECT_THROW(make_cost_model("sosp", flat_cluster(1, 1), GradientSync::Ring), ConfigError);
  for (const std::string& name : cost_model_names())
    EXPECT_EQ(make_cost_model(name, flat_cluster(1, 1), GradientSync::Ring)->name(), name);
}

struct Drawn {
  std::unique_ptr<CostModel> model;
  SegmentCost segment;
  int64_t micro_batches = 0;
};

Drawn draw(Rng& rng) {
  cluster::Cluster cluster = random_cluster(rng, 1'000'000);
  testing_graphs::add_machines(rng, cluster);
  const GradientSync syncs[] = {GradientSync::Ring,         GradientSync::ParameterServer,
                                GradientSync::Summation,    GradientSync::Ordered,
                                GradientSync::Hierarchical, GradientSync::Hierarchical};
  if (rng.below(2) == 0) {
    cluster.cpu_machines = {.count = static_cast<int>(between(rng, 1, 6)),
                            .bandwidth_bytes_per_s = between(rng, 1, 20) * 100'000'000};
  }
  SegmentCost segment{between(rng, 0, 200), between(rng, 0, 20), between(rng, 0, 100),
                      rng.below(2) == 0 ? 0 : between(rng, 0, 50)};
  segment.overlap_ns =
      rng.below(3) == 0 ? 0 : between(rng, 0, segment.compute_ns + segment.step_ns);
  return {make_cost_model(cost_model_names()[rng.below(4)], cluster, syncs[rng.below(6)],
                          SyncOverlap::Hidden, plan::kSyncPrecisions[rng.below(3)]),
          segment, rng.below(2) == 0 ? 0 : between(rng, 1, 20)};
}

TEST(CostModel, FewestReplicasIsTheFirstCountThatFits) {
  for (uint64_t seed = 0; seed < 20'000; ++seed) {
    Rng rng(seed);
    const Drawn drawn = draw(rng);
    const auto level = static_cast<int>(between(rng, 0, drawn.model->topology().num_levels()));
    const auto least = static_cast<int>(between(rng, 1, 3));
    const auto most = static_cast<int>(between(rng, 1, 40));
    // Half of the limits are times that some count really takes.
    const double limit_ns =
        rng.below(2) == 0
            ? static_cast<double>(between(rng, 0, 150))
            : drawn.model->stage_ns(drawn.segment, static_cast<int>(between(rng, 1, 40)), level,
                                    drawn.micro_batches);
    int expected = 0;
    for (int r = most; r >= least; --r) {
      if (drawn.model->stage_ns(drawn.segment, r, level, drawn.micro_batches) <= limit_ns)
        expected = r;
    }
    ASSERT_EQ(drawn.model->fewest_replicas(drawn.segment, limit_ns, least, most, level,
                                           drawn.micro_batches),
              expected)
        << "seed " << seed << " " << drawn.model->name();
  }
}

TEST(CostModel, NeverFallsWhenTheLevelRisesNorBelowTheShareOfTheComputation) {
  for (uint64_t seed = 0; seed < 3'000; ++seed) {
    Rng rng(seed);
    const Drawn drawn = draw(rng);
    const auto replicas = static_cast<int>(between(rng, 1, 40));
    const int64_t bytes = between(rng, 0, 1000);
    for (int level = 1; level <= drawn.model->topology().num_levels(); ++level) {
      const double ns = drawn.model->stage_ns(drawn.segment, replicas, level, drawn.micro_batches);
      EXPECT_GE(ns * (1 + 1e-12), static_cast<double>(drawn.segment.compute_ns) / replicas)
          << "seed " << seed;
      if (level == 1) continue;
      EXPECT_GE(ns, drawn.model->stage_ns(drawn.segment, replicas, level - 1, drawn.micro_batches))
          << "seed " << seed;
      EXPECT_GE(drawn.model->cut_ns(bytes, level), drawn.model->cut_ns(bytes, level - 1))
          << "seed " << seed;
      EXPECT_GE(drawn.model->sync_ns(bytes, replicas, level),
                drawn.model->sync_ns(bytes, replicas, level - 1))
          << "seed " << seed;
    }
  }
}

TEST(CostModel, LeastWorkerTimeIsALowerBound) {
  for (uint64_t seed = 0; seed < 5'000; ++seed) {
    Rng rng(seed);
    const Drawn drawn = draw(rng);
    const auto replicas = static_cast<int>(between(rng, 1, 40));
    const auto level =
        static_cast<int>(between(rng, replicas == 1 ? 0 : 1, drawn.model->topology().num_levels()));
    // Several replicas are never in a unit of one worker.
    if (replicas > 1 && drawn.model->topology().unit_size(level) == 1) continue;
    const auto fewer = static_cast<int>(between(rng, 1, replicas));
    const auto below = static_cast<int>(between(rng, fewer == 1 ? 0 : 1, level));
    const SegmentBound bound = drawn.model->least_worker_ns(fewer, below, drawn.micro_batches);
    const double least_ns =
        bound.per_compute_ns * static_cast<double>(drawn.segment.compute_ns) +
        bound.per_step_ns * static_cast<double>(drawn.segment.step_ns) +
        bound.per_weight_byte * static_cast<double>(drawn.segment.weight_bytes) + bound.fixed_ns;
    const double ns =
        replicas * drawn.model->stage_ns(drawn.segment, replicas, level, drawn.micro_batches);
    EXPECT_LE(least_ns * (1 - 1e-12), ns) << "seed " << seed << " " << drawn.model->name();
  }
}

TEST(CostModel, AbsurdSizesStayFinite) {
  cluster::Cluster cluster = flat_cluster(10'000'000, 1, INT64_MAX);
  const SegmentCost segment{.compute_ns = int64_t{1} << 62,
                            .step_ns = int64_t{1} << 62,
                            .weight_bytes = 1'000'000'000'000'000'000};
  for (const int servers : {0, 1, 10'000'000}) {
    cluster.cpu_machines = {.count = servers,
                            .bandwidth_bytes_per_s = servers == 1 ? 1 : INT64_MAX};
    for (const GradientSync sync : {GradientSync::Ring, GradientSync::ParameterServer,
                                    GradientSync::Summation, GradientSync::Hierarchical}) {
      for (const std::string& name : cost_model_names()) {
        const auto model = make_cost_model(name, cluster, sync);
        for (const int64_t micro_batches : {int64_t{0}, int64_t{1}, INT64_MAX}) {
          EXPECT_TRUE(std::isfinite(model->stage_ns(segment, 10'000'000, 1, micro_batches)))
              << name;
          for (const double limit_ns : {0.0, 1e-300, 1.0, 1e18, 1e300, double{INFINITY}}) {
            const int fewest =
                model->fewest_replicas(segment, limit_ns, 1, 10'000'000, 1, micro_batches);
            EXPECT_GE(fewest, 0) << name;
            EXPECT_LE(fewest, 10'000'000) << name;
          }
        }
        EXPECT_TRUE(std::isfinite(model->cut_ns(1'000'000'000'000'000'000, 1))) << name;
        EXPECT_EQ(model->sync_ns(1'000'000'000'000'000'000, 10'000'000, 1), INT64_MAX) << name;
      }
    }
  }
}

TEST(CostModel, SlowerDevicesTakeLonger) {
  const SegmentCost slow = on_device(kSegment, 0.5);
  EXPECT_EQ(slow.compute_ns, 1200);
  EXPECT_EQ(slow.step_ns, 80);
  EXPECT_EQ(slow.weight_bytes, 200);
  EXPECT_EQ(on_device_ns(10, 3), 4);
  EXPECT_EQ(on_device_ns(INT64_MAX, 1e-9), INT64_MAX);
}

}  // namespace
}  // namespace penstock::planner

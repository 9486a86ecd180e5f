#include "penstock/planner/cost_model.h"

#include <gtest/gtest.h>

#include "penstock/planner/testing_graphs.h"
#include "penstock/util/error.h"

namespace penstock::planner {
namespace {

using testing_graphs::flat_cluster;

TEST(CostModel, Sosp2019IsTheFormulaAsPrinted) {
  const auto model = make_cost_model("sosp2019", flat_cluster(4, 1'000'000'000, 50));
  const SegmentCost segment{.compute_ns = 600, .step_ns = 1000, .weight_bytes = 200};
  EXPECT_DOUBLE_EQ(model->stage_ns(segment, 1, 0), 600);
  EXPECT_DOUBLE_EQ(model->stage_ns(segment, 2, 0), 300);                // max(600, 2 * 200) / 2
  EXPECT_DOUBLE_EQ(model->stage_ns(segment, 4, 0), 2 * 3 * 200 / 4.0);  // max(600, 2 * 3 * 200) / 4
  EXPECT_DOUBLE_EQ(model->cut_ns(70), 140);
}

TEST(CostModel, PenstockAddsWhatAWorkerDoesInTurn) {
  const auto model = make_cost_model("penstock", flat_cluster(4, 1'000'000'000, 50));
  const SegmentCost segment{.compute_ns = 600, .step_ns = 40, .weight_bytes = 200};
  EXPECT_DOUBLE_EQ(model->stage_ns(segment, 1, 0), 640);
  EXPECT_DOUBLE_EQ(model->stage_ns(segment, 1, 4), 610);
  EXPECT_DOUBLE_EQ(model->stage_ns(segment, 2, 0), (600 + 200 + 50 + 40) / 2.0);
  EXPECT_DOUBLE_EQ(model->stage_ns(segment, 2, 4), (2 * 600 + 200 + 50 + 40) / 4.0);
  EXPECT_DOUBLE_EQ(model->stage_ns(segment, 2, 3), (2 * 600 + 200 + 50 + 40) / 3.0);  // uneven shares: the larger one counts
  EXPECT_DOUBLE_EQ(model->cut_ns(70), 2 * 70 + 50);
}

TEST(CostModel, ByReferenceCutsCostLatencyAlone) {
  const auto model = make_cost_model("penstock", flat_cluster(2, 1'000'000'000, 50, true));
  EXPECT_DOUBLE_EQ(model->cut_ns(1'000'000), 50);
  EXPECT_EQ(model->sync_ns(1000, 2), 1050);
}

TEST(CostModel, UnknownNameIsRefused) { EXPECT_THROW(make_cost_model("sosp", flat_cluster(1, 1)), ConfigError); }

TEST(CostModel, FewestReplicasIsTheFirstCountThatFits) {
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    Rng rng(seed);
    const auto model =
        make_cost_model(rng.below(2) == 0 ? "sosp2019" : "penstock",
                        flat_cluster(2, testing_graphs::between(rng, 1, 20) * 100'000'000, testing_graphs::between(rng, 0, 20)));
    const SegmentCost segment{testing_graphs::between(rng, 0, 200), testing_graphs::between(rng, 0, 20),
                              testing_graphs::between(rng, 0, 100)};
    const int64_t micro_batches = rng.below(2) == 0 ? 0 : testing_graphs::between(rng, 1, 20);
    const auto limit_ns = static_cast<double>(testing_graphs::between(rng, 0, 150));
    const auto least = static_cast<int>(testing_graphs::between(rng, 1, 3));
    const auto most = static_cast<int>(testing_graphs::between(rng, 1, 20));
    int expected = 0;
    for (int r = most; r >= least; --r) {
      if (model->stage_ns(segment, r, micro_batches) <= limit_ns) expected = r;
    }
    EXPECT_EQ(model->fewest_replicas(segment, limit_ns, least, most, micro_batches), expected) << "seed " << seed;
  }
}

}  // namespace
}  // namespace penstock::planner

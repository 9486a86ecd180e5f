// Several ranks train one model together: every rank makes the same calls and holds its own workers
// only, and the result is that of one rank, bit for bit. The ranks are threads here that share
// memory, or are joined by sockets; what carries the messages is the conformance suite's subject.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <mutex>
#include <utility>

#include "penstock/runtime/fabric/faulty/testing_faulty_world.h"
#include "penstock/runtime/fabric/forwarding.h"
#include "penstock/runtime/fabric/testing_ranks.h"
#include "penstock/runtime/test_support.h"
#include "penstock/schedule/generate.h"
#include "penstock/util/error.h"

namespace penstock::runtime::testing {
namespace {

using plan::Strategy;
using schedule::WeightPolicy;
using ::testing::HasSubstr;

/// Puts together what the ranks have.
Trained joined(const std::vector<Trained>& parts) {
  Trained all = parts.front();
  for (const Trained& part : parts) {
    EXPECT_EQ(part.losses, all.losses);
    for (size_t l = 0; l < part.layers.size(); ++l) {
      if (!part.layers[l].here) {
        EXPECT_TRUE(part.layers[l].weights.empty());
        continue;
      }
      EXPECT_TRUE(&part == &parts.front() || !all.layers[l].here) << "layer " << l << " twice";
      all.layers[l] = part.layers[l];
    }
  }
  for (const LayerSnapshot& layer : all.layers) EXPECT_TRUE(layer.here);
  return all;
}

struct RankCase {
  Case setup;
  std::vector<std::vector<int>> placements;
};

std::vector<RankCase> rank_cases() {
  const std::vector<std::vector<int>> four = {{0, 1, 2, 3}, {0, 0, 1, 1}, {1, 0, 0, 1}};
  return {
      {{.kind = Strategy::OneFOneB,
        .replicas = {2, 1, 1},
        .policy = WeightPolicy::Stash,
        .parts = 2},
       four},
      {{.kind = Strategy::OneFOneB, .replicas = {1, 1}, .policy = WeightPolicy::VerticalSync},
       {{0, 1}, {1, 0}}},
      {{.kind = Strategy::TwoBuffered,
        .replicas = {1, 1, 1},
        .policy = WeightPolicy::TwoBuffered,
        .parts = 4},
       {{0, 1, 2}, {0, 1, 0}}},
      {{.kind = Strategy::DataParallel, .replicas = {4}, .parts = 4}, four},
      {{.kind = Strategy::GPipe,
        .replicas = {2, 2},
        .parts = 4,
        .norm = true,
        .max_grad_norm = 0.5},
       four},
      {{.kind = Strategy::ZbH1,
        .replicas = {1, 1, 1, 1},
        .parts = 4,
        .recompute = {true, false, true, false}},
       four},
      {{.kind = Strategy::ZbV, .replicas = {1, 1, 1, 1}, .parts = 4, .norm = true}, {{0, 1}}},
      {{.kind = Strategy::Chimera, .replicas = {2, 2, 2, 2}, .parts = 4}, four},
  };
}

class RanksTest : public ::testing::TestWithParam<RankRig> {};
INSTANTIATE_TEST_SUITE_P(Fabrics, RanksTest, ::testing::ValuesIn(rank_rigs()),
                         [](const auto& rig) { return rig.param.name; });

TEST_P(RanksTest, TrainAsOneRankBitForBit) {
  const model::Model model = skip_model(0.1);
  for (const RankCase& test : rank_cases()) {
    const Trained expected = train(model, test.setup);
    for (const std::vector<int>& ranks : test.placements) {
      SCOPED_TRACE(
          fmt::format("{} on ranks {}", plan::to_string(test.setup.kind), fmt::join(ranks, " ")));
      std::vector<Trained> parts(Site{.rank_of_worker = ranks}.num_ranks());
      const auto failures = on_ranks(GetParam(), ranks, [&](World& world, size_t rank) {
        parts[rank] = train(model, test.setup, &world);
      });
      ASSERT_THAT(failures, ::testing::Each(""));
      for (size_t w = 0; w < ranks.size(); ++w) {
        for (size_t r = 0; r < parts.size(); ++r) {
          const bool here = static_cast<size_t>(ranks[w]) == r;
          EXPECT_EQ(parts[r].run.timeline.workers[w].empty(), !here);
          EXPECT_EQ(parts[r].run.peak_versions[w] > 0, here);
        }
      }
      expect_same_bits(joined(parts), expected);
    }
  }
}

/// Ranks in which replicas meet by sockets, share memory, or both: gradients travel in 16 bits, or
/// are rounded as if they did.
TEST_P(RanksTest, RoundGradientsAsOneRankDoes) {
  const model::Model model = skip_model(0.1);
  for (const FloatType precision : {FloatType::BFloat16, FloatType::Float16}) {
    for (const RankCase& test : rank_cases()) {
      const auto& replicas = test.setup.replicas;
      if (std::all_of(replicas.begin(), replicas.end(), [](int r) { return r == 1; })) continue;
      Case setup = test.setup;
      const Trained wide = train(model, setup);
      setup.gradient_precision = precision;
      const Trained expected = train(model, setup);
      EXPECT_NE(expected.losses, wide.losses);
      std::vector<std::vector<int>> placements = test.placements;
      if (setup.kind == Strategy::DataParallel) placements.push_back({0, 1, 2, 2});
      for (const std::vector<int>& ranks : placements) {
        SCOPED_TRACE(fmt::format("{} {} on ranks {}", to_string(precision),
                                 plan::to_string(setup.kind), fmt::join(ranks, " ")));
        std::vector<Trained> parts(Site{.rank_of_worker = ranks}.num_ranks());
        const auto failures = on_ranks(GetParam(), ranks, [&](World& world, size_t rank) {
          parts[rank] = train(model, setup, &world);
        });
        ASSERT_THAT(failures, ::testing::Each(""));
        expect_same_bits(joined(parts), expected);
      }
    }
  }
}

/// Coded messages travel in every way, and their decoded numbers are those of one rank.
TEST_P(RanksTest, CodeBoundariesAsOneRankDoes) {
  const model::Model model = skip_model(0.1);
  Case setup{.kind = Strategy::OneFOneBFlush, .replicas = {2, 1, 1}, .parts = 4, .samples = 48};
  const std::vector<int> ranks = {0, 1, 1, 2};
  const auto bytes_sent = [&](std::vector<Trained>& parts) {
    int64_t bytes = 0;
    std::mutex mutex;
    const auto failures = on_ranks(GetParam(), ranks, [&](World& world, size_t rank) {
      parts[rank] = train(model, setup, &world);
      const std::lock_guard lock(mutex);
      bytes += world.wire().sent_bytes;
    });
    EXPECT_THAT(failures, ::testing::Each(""));
    return bytes;
  };
  std::vector<Trained> exact(3);
  const int64_t exact_bytes = bytes_sent(exact);
  for (const char* name : {"bfloat16", "int8", "subspace:5"}) {
    SCOPED_TRACE(name);
    setup.boundaries.clear();
    for (const auto& [from, to] : {std::pair(0, 1), {0, 2}, {1, 2}})
      setup.boundaries.push_back({StageId{from}, StageId{to}, plan::parse_boundary(name)});
    const Trained expected = train(model, setup);
    EXPECT_NE(expected.losses, exact.front().losses);
    std::vector<Trained> parts(3);
    const int64_t bytes = bytes_sent(parts);
    expect_same_bits(joined(parts), expected);
    if (exact_bytes > 0) EXPECT_LT(bytes, exact_bytes);
  }
}

TEST_P(RanksTest, RefuseDifferentCodings) {
  const model::Model model = skip_model();
  const auto failures = on_ranks(GetParam(), {0, 1}, [&](World& world, size_t rank) {
    Case setup{.kind = Strategy::GPipe, .replicas = {1, 1}, .samples = 12};
    setup.boundaries = {
        {StageId{0}, StageId{1}, plan::parse_boundary(rank == 0 ? "bfloat16" : "float16")}};
    train(model, setup, &world);
  });
  if (GetParam().name != "local")
    EXPECT_THAT(failures, ::testing::Each(AllOf(HasSubstr("bfloat16 from stage 0 to 1"),
                                                HasSubstr(" float16 from stage 0 to 1"))));
}

/// Batch norm, whose statistics differ between replicas, and a weight that two stages share.
model::Model tied_norm_model() {
  model::ModelBuilder net("tied_norm");
  model::Value x = net.input({8, 1, 1});
  x = net.batch_norm2d(net.conv2d(x, {.channels = 8, .kernel = 1, .name = "first"}));
  x = net.flatten(net.relu(x));
  x = net.tanh(net.linear(x, {.features = 8, .name = "embed"}));
  x = net.tanh(net.linear(x, {.features = 8, .name = "middle"}));
  net.tie("middle", "weight", "embed", "weight");
  return net.build(net.linear(x, {.features = 4, .name = "last"}));
}

TEST_P(RanksTest, AverageRunningStatisticsAndHoldOnlyTheirOwnReplicas) {
  const model::Model model = tied_norm_model();
  const Case setup{.kind = Strategy::GPipe,
                   .replicas = {3, 1},
                   .parts = 6,
                   .samples = 12 * 5,
                   .norm = true,
                   .sample = {8, 1, 1}};
  const Trained expected = train(model, setup);
  const std::vector<int> ranks = {0, 1, 2, 1};
  std::vector<Trained> parts(3);
  const auto failures = on_ranks(GetParam(), ranks, [&](World& world, size_t rank) {
    parts[rank] = train(model, setup, &world);
  });
  ASSERT_THAT(failures, ::testing::Each(""));
  const Trained all = joined(parts);
  expect_same_bits(all, expected);
  for (size_t l = 0; l < all.layers.size(); ++l) {
    for (size_t b = 0; b < all.layers[l].buffers.size(); ++b)
      EXPECT_TRUE(all.layers[l].buffers[b].equal(expected.layers[l].buffers[b])) << l;
  }
  // The second stage is on rank 1 alone; replica 0 of the first, which snapshots it, on rank 0.
  EXPECT_FALSE(parts[2].layers.front().here);
  EXPECT_FALSE(parts[0].layers.back().here);
}

TEST_P(RanksTest, AFailureOnOneRankEndsAllWithTheSameMessage) {
  const Case setup{
      .kind = Strategy::OneFOneB, .replicas = {1, 1, 1}, .policy = WeightPolicy::Stash};
  const auto failures = on_ranks(GetParam(), {0, 1, 2}, [&](World& world, size_t) {
    // A world that kills its own worker; the others' faults concern nobody.
    const auto faulty = make_faulty_world(std::make_unique<ForwardingWorld>(world),
                                          {.kill = Faults::Kill{.worker = WorkerId{2}, .call = 5}});
    train(skip_model(), setup, faulty.get());
  });
  for (const std::string& failure : failures)
    EXPECT_THAT(failure, HasSubstr("worker 2 (stage 2) failed in"));
}

TEST(Ranks, APipelineForOtherWorkersIsRefused) {
  const auto world = make_local_world(3);
  EXPECT_THROW(train(skip_model(), {.kind = Strategy::GPipe, .replicas = {1, 1}}, world.get()),
               ConfigError);
}

/// Checks every message against the layout that receivers are told beforehand.
class LayoutFabric : public ForwardingFabric {
 public:
  LayoutFabric(std::unique_ptr<Fabric> inner, MessageLayout layout, std::atomic<int64_t>& messages)
      : ForwardingFabric(std::move(inner)), layout_(std::move(layout)), messages_(messages) {}
  WaitResult send(const Message& message, model::Tensors tensors, Wait& wait) override {
    const std::vector<TensorLayout> layout = layout_(message);
    EXPECT_EQ(layout.size(), tensors.size());
    for (size_t i = 0; i < std::min(layout.size(), tensors.size()); ++i) {
      if (!tensors[i].defined()) continue;
      EXPECT_EQ(layout[i].sizes, tensors[i].sizes().vec());
      EXPECT_EQ(layout[i].type, tensors[i].scalar_type());
    }
    ++messages_;
    return ForwardingFabric::send(message, std::move(tensors), wait);
  }

 private:
  MessageLayout layout_;
  std::atomic<int64_t>& messages_;
};

class LayoutWorld : public ForwardingWorld {
 public:
  explicit LayoutWorld(int workers) : ForwardingWorld(make_local_world(workers)) {}
  std::unique_ptr<Fabric> open(const RunSetup& setup, Wait& wait) override {
    return std::make_unique<LayoutFabric>(ForwardingWorld::open(setup, wait), setup.layout,
                                          messages);
  }
  std::atomic<int64_t> messages = 0;
};

TEST(MessageLayoutTest, IsKnownBeforeAnythingIsSent) {
  for (const RankCase& test : rank_cases()) {
    LayoutWorld world(shape_of(test.setup, 1).num_workers());
    train(skip_model(0.1), test.setup, &world);
    EXPECT_EQ(world.messages > 0, test.setup.kind != Strategy::DataParallel);
  }
}

}  // namespace
}  // namespace penstock::runtime::testing

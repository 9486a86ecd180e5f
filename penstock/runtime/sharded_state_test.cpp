// Replicas that share out the optimiser's state (PipelineOptions::shard_optimizer) train as those
// that each have all of it, bit for bit: losses, weights and the state itself.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <numeric>

#include "penstock/runtime/fabric/forwarding.h"
#include "penstock/runtime/fabric/testing_ranks.h"
#include "penstock/runtime/test_support.h"
#include "penstock/runtime/weight_store.h"
#include "penstock/util/error.h"

namespace penstock::runtime::testing {
namespace {

using plan::Strategy;
using schedule::WeightPolicy;
using ::testing::HasSubstr;

std::vector<model::OptimizerSpec> specs() {
  return {
      momentum_sgd(),
      {.kind = model::OptimizerKind::Sgd, .momentum = 0},
      {.kind = model::OptimizerKind::Sgd, .momentum = 0.8, .nesterov = true, .weight_decay = 0.01},
      {.kind = model::OptimizerKind::Adam, .epsilon = 1e-3},
      {.kind = model::OptimizerKind::AdamW, .weight_decay = 0.1, .epsilon = 1e-3},
      {.kind = model::OptimizerKind::Adam, .epsilon = 1e-3, .amsgrad = true},
      {.kind = model::OptimizerKind::NAdam, .epsilon = 1e-3},
      {.kind = model::OptimizerKind::RmsProp, .momentum = 0.5, .epsilon = 0.1, .centered = true},
      {.kind = model::OptimizerKind::Adagrad, .initial_accumulator = 0.5},
      {.kind = model::OptimizerKind::Asgd, .lambda = 0.1, .average_from = 1}};
}

std::vector<Case> cases() {
  return {
      {.kind = Strategy::DataParallel, .replicas = {2}, .parts = 2},
      {.kind = Strategy::DataParallel, .replicas = {3}, .parts = 3},
      // So many that some own no part of the only bucket.
      {.kind = Strategy::DataParallel, .replicas = {4}, .parts = 4},
      {.kind = Strategy::GPipe, .replicas = {2, 2}, .parts = 4, .recompute = {true, false}},
      {.kind = Strategy::GPipe, .replicas = {2, 2}, .parts = 4, .norm = true, .max_grad_norm = 0.5},
      {.kind = Strategy::OneFOneBFlush, .replicas = {3, 1}, .parts = 6},
      {.kind = Strategy::OneFOneB,
       .replicas = {2, 1, 1},
       .policy = WeightPolicy::Stash,
       .parts = 2},
      {.kind = Strategy::OneFOneB,
       .replicas = {2, 1},
       .policy = WeightPolicy::VerticalSync,
       .parts = 2},
      {.kind = Strategy::TwoBuffered,
       .replicas = {2, 1},
       .policy = WeightPolicy::TwoBuffered,
       .parts = 4},
      {.kind = Strategy::OneFOneB, .replicas = {2, 1}, .policy = WeightPolicy::Latest, .parts = 2}};
}

std::string name_of(const Case& setup) {
  return fmt::format("{} [{}] {} {}{}", plan::to_string(setup.kind), fmt::join(setup.replicas, "-"),
                     plan::to_string(setup.policy), to_string(setup.optimizer.kind),
                     setup.norm ? " with a norm" : "");
}

Case sharded(Case setup) {
  setup.shard_optimizer.assign(setup.replicas.size(), true);
  return setup;
}

void expect_same_state(const std::vector<LayerSnapshot>& a, const std::vector<LayerSnapshot>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t l = 0; l < a.size(); ++l) {
    ASSERT_EQ(a[l].optimizer_state.size(), b[l].optimizer_state.size()) << l;
    for (size_t s = 0; s < a[l].optimizer_state.size(); ++s) {
      ASSERT_EQ(a[l].optimizer_state[s].size(), b[l].optimizer_state[s].size());
      for (size_t w = 0; w < a[l].optimizer_state[s].size(); ++w)
        EXPECT_TRUE(a[l].optimizer_state[s][w].equal(b[l].optimizer_state[s][w]))
            << "layer " << l << " state " << s << " weight " << w;
    }
  }
}

TEST(ShardedState, TrainsAsWithAllOfItBitForBit) {
  const model::Model model = skip_model(0.1);
  for (Case setup : cases()) {
    for (const model::OptimizerSpec& spec : specs()) {
      setup.optimizer = spec;
      SCOPED_TRACE(name_of(setup));
      const Trained expected = train(model, setup);
      const Trained found = train(model, sharded(setup));
      expect_same_bits(found, expected);
      expect_same_state(found.layers, expected.layers);
    }
  }
}

class ShardedStateOnRanks : public ::testing::TestWithParam<RankRig> {};
INSTANTIATE_TEST_SUITE_P(Fabrics, ShardedStateOnRanks, ::testing::ValuesIn(rank_rigs()),
                         [](const auto& rig) { return rig.param.name; });

/// Every worker on a rank of its own, then two on one.
std::vector<std::vector<int>> placements(int workers) {
  std::vector<int> apart, paired;
  for (int w = 0; w < workers; ++w) {
    apart.push_back(w);
    paired.push_back(w / 2);
  }
  if (workers == 2) return {apart};
  return {apart, paired};
}

TEST_P(ShardedStateOnRanks, TrainsAsOneRankBitForBit) {
  const model::Model model = skip_model(0.1);
  for (const Case& setup : cases()) {
    const Trained expected = train(model, setup);
    const int workers = std::accumulate(setup.replicas.begin(), setup.replicas.end(), 0);
    for (const std::vector<int>& ranks : placements(workers)) {
      SCOPED_TRACE(fmt::format("{} on ranks {}", name_of(setup), fmt::join(ranks, " ")));
      std::vector<Trained> parts(Site{.rank_of_worker = ranks}.num_ranks());
      const auto failures = on_ranks(GetParam(), ranks, [&](World& world, size_t rank) {
        parts[rank] = train(model, sharded(setup), &world);
      });
      ASSERT_THAT(failures, ::testing::Each(""));
      Trained all = parts.front();
      for (const Trained& part : parts) {
        EXPECT_EQ(part.losses, all.losses);
        for (size_t l = 0; l < part.layers.size(); ++l) {
          if (part.layers[l].here) all.layers[l] = part.layers[l];
        }
      }
      expect_same_bits(all, expected);
      expect_same_state(all.layers, expected.layers);
    }
  }
}

/// Weights that layers of one stage share, and of several.
TEST_P(ShardedStateOnRanks, TiedWeightsStayEqual) {
  model::ModelBuilder net("tied");
  model::Value x = net.tanh(net.linear(net.input({8}), {.features = 16, .name = "a"}));
  for (const char* name : {"b", "c", "d"})
    x = net.tanh(net.linear(x, {.features = 16, .name = name}));
  net.tie("c", "weight", "b", "weight");
  net.tie("d", "weight", "b", "weight");
  const model::Model model = net.build(net.linear(x, {.features = 4}));
  for (const auto& [replicas, norm] :
       {std::pair{std::vector{2}, false}, std::pair{std::vector{2, 1}, true}}) {
    Case setup{.kind = replicas.size() == 1 ? Strategy::DataParallel : Strategy::GPipe,
               .replicas = replicas,
               .parts = 2,
               .norm = norm};
    const Trained expected = train(model, setup);
    std::vector<int> ranks;
    for (int w = 0; w < std::accumulate(replicas.begin(), replicas.end(), 0); ++w)
      ranks.push_back(w);
    std::vector<Trained> parts(ranks.size());
    const auto failures = on_ranks(GetParam(), ranks, [&](World& world, size_t rank) {
      parts[rank] = train(model, sharded(setup), &world);
    });
    ASSERT_THAT(failures, ::testing::Each(""));
    for (const Trained& part : parts) {
      for (size_t l = 0; l < part.layers.size(); ++l) {
        for (size_t w = 0; w < part.layers[l].weights.size(); ++w)
          EXPECT_TRUE(part.layers[l].weights[w].equal(expected.layers[l].weights[w])) << l;
      }
    }
  }
}

/// One half of a training with one pipeline, the other with another that goes on from its snapshot.
std::vector<LayerSnapshot> in_two_halves(const model::Model& model, const Case& first,
                                         const Case& second) {
  std::vector<LayerSnapshot> state;
  int64_t steps = 0;
  for (const Case& setup : {first, second}) {
    const auto optimizer = model::make_optimizer(setup.optimizer);
    const RandomBatches batches(setup.samples, setup.mini_batch, setup.parts, 8, 4);
    Pipeline pipeline(model, cut(model, static_cast<int>(setup.replicas.size())), setup.replicas,
                      *optimizer,
                      {.seed = 3, .gradient_groups = 6, .shard_optimizer = setup.shard_optimizer});
    if (!state.empty()) pipeline.load(state, steps);
    pipeline.run(make_schedule(setup, batches, pipeline), batches,
                 {.learning_rate = [](int64_t) { return 0.05; }});
    state = pipeline.snapshot();
    steps = pipeline.steps();
  }
  return state;
}

TEST(ShardedState, GoesOnWithOtherReplicasAndWithAllOfIt) {
  const model::Model model = skip_model();
  const auto with = [](int replicas) {
    return Case{.kind = Strategy::DataParallel,
                .replicas = {replicas},
                .parts = 6,
                .optimizer = gentle_adam()};
  };
  const auto expected = in_two_halves(model, with(1), with(1));
  for (const auto& [first, second] :
       {std::pair{sharded(with(2)), sharded(with(3))}, std::pair{sharded(with(3)), with(2)},
        std::pair{with(1), sharded(with(2))}, std::pair{with(2), sharded(with(6))}}) {
    const auto found = in_two_halves(model, first, second);
    expect_same_state(found, expected);
    EXPECT_EQ(weight_difference(found, expected), 0);
  }
}

TEST(ShardedState, EachReplicaKeepsItsShareOfIt) {
  const model::Shape shape{900, 200};
  const auto optimizer = model::make_optimizer(gentle_adam());
  const auto bytes_with = [&](WeightShare share) {
    return WeightStore({at::zeros(shape)}, *optimizer, {}, std::move(share)).bytes();
  };
  constexpr int64_t kWeight = 4 * 900 * 200;
  EXPECT_EQ(bytes_with({}), 3 * kWeight);
  for (const int replicas : {2, 3, 5}) {
    int64_t all = 0;
    for (const WeightShare& share : weight_shares({shape}, {1}, replicas)) {
      EXPECT_NEAR(static_cast<double>(bytes_with(share)), kWeight * (1 + 2.0 / replicas), 16);
      all += bytes_with(share) - kWeight;
    }
    EXPECT_EQ(all, 2 * kWeight);
  }
}

TEST(ShardedState, AWeightWithoutAGradientIsKept) {
  const auto optimizer = model::make_optimizer(momentum_sgd());
  for (const bool in_place : {true, false}) {
    WeightStore store({at::ones({6}), at::ones({6})}, *optimizer, {}, {{2, 3}, {0, 2}});
    if (in_place) store.release(WeightVersion{0});
    store.begin_step({.learning_rate = 0.5});
    store.step_weights(0, model::Tensors{at::Tensor(), at::ones({6})});
    const model::Tensors places = store.places(0, 2);
    EXPECT_TRUE(places[0].narrow(0, 2, 3).equal(at::ones({3})));
    EXPECT_FALSE(places[1].narrow(0, 0, 2).equal(at::ones({2})));
    if (in_place) continue;
    EXPECT_TRUE(store.at(WeightVersion{0})[1].equal(at::ones({6})));
  }
}

/// Whatever the layers and replicas: each number has exactly one owner.
RC_GTEST_PROP(WeightShares, ShareOutEveryNumberOnce, ()) {
  const auto layers = *rc::gen::inRange(1, 6);
  std::vector<model::Shape> shapes;
  std::vector<size_t> layer_ends;
  for (int l = 0; l < layers; ++l) {
    for (int w = *rc::gen::inRange(0, 3); w > 0; --w)
      shapes.push_back({*rc::gen::inRange(0, 400), *rc::gen::inRange(1, 500)});
    layer_ends.push_back(shapes.size());
  }
  const auto replicas = *rc::gen::inRange(2, 9);
  const auto shares = weight_shares(shapes, layer_ends, replicas);
  RC_ASSERT(shares.size() == static_cast<size_t>(replicas));
  for (size_t w = 0; w < shapes.size(); ++w) {
    std::vector<std::pair<int64_t, int64_t>> ranges;
    for (const WeightShare& share : shares) {
      if (share[w].length > 0) ranges.push_back({share[w].begin, share[w].length});
    }
    std::sort(ranges.begin(), ranges.end());
    int64_t end = 0;
    for (const auto& [begin, length] : ranges) {
      RC_ASSERT(begin == end);
      end += length;
    }
    RC_ASSERT(end == shapes[w][0] * shapes[w][1]);
  }
}

TEST(ShardedState, SaysWhatDoesNotFit) {
  const model::Model model = skip_model();
  const auto refusal = [&](const PipelineOptions& options,
                           const model::OptimizerSpec& spec = momentum_sgd()) -> std::string {
    const auto optimizer = model::make_optimizer(spec);
    try {
      Pipeline(model, cut(model, 1), {2}, *optimizer, options);
      return "";
    } catch (const ConfigError& error) {
      return error.what();
    }
  };
  EXPECT_THAT(
      refusal({.sync = plan::GradientSync::Asynchronous, .shard_optimizer = {true}}),
      HasSubstr("cannot be shared out over replicas under the synchronisation asynchronous"));
  EXPECT_THAT(refusal({.shard_optimizer = {true, true}}),
              HasSubstr("has 2 entries, expected one for each of the 1 stages"));
  EXPECT_THAT(refusal({.shard_optimizer = {true}}, {.kind = model::OptimizerKind::Lamb}),
              HasSubstr("lamb needs whole weights"));
  EXPECT_THAT(refusal({.shard_optimizer = {true}}, {.kind = model::OptimizerKind::Soap}),
              HasSubstr("soap needs whole weights"));
  EXPECT_THAT(refusal({.shard_optimizer = {true}}, {.averages = true}),
              HasSubstr("evaluations need whole means"));
  EXPECT_THAT(refusal({.sync = plan::GradientSync::Asynchronous}, {.averages = true}),
              HasSubstr("would differ from replica to replica"));
  EXPECT_EQ(refusal({.shard_optimizer = {true}}), "");
}

}  // namespace
}  // namespace penstock::runtime::testing

// Training in 16 bits: float32 weights behind versions of 16 bits, messages of half the bytes,
// steps that float16 leaves out, and in flush mode the same bits for every cut.
#include <gtest/gtest.h>

#include <cmath>

#include "penstock/runtime/loss_scale.h"
#include "penstock/runtime/test_support.h"
#include "penstock/runtime/weight_store.h"
#include "penstock/util/error.h"

namespace penstock::runtime::testing {
namespace {

using plan::Strategy;
using schedule::WeightPolicy;

constexpr std::array kShort = {Precision::BFloat16, Precision::Float16};

/// Convolution, normalisation, dropout, a skip connection, and two readers of a value.
model::Model normed_model() {
  model::ModelBuilder net("normed");
  model::Value x = net.input({2, 2, 2});
  x = net.conv2d(x, {.channels = 4, .kernel = 3, .padding = 1, .name = "stem"});
  x = net.relu(net.batch_norm2d(x, {.name = "norm1"}));
  const model::Value y = net.conv2d(x, {.channels = 4, .kernel = 3, .padding = 1, .name = "conv"});
  x = net.relu(net.add(net.batch_norm2d(y, {.name = "norm2"}), x));
  x = net.dropout(net.max_pool2d(x, {.kernel = 2}), 0.1);
  x = net.relu(net.linear(net.flatten(x), {.features = 16, .name = "fc1"}));
  return net.build(net.linear(x, {.features = 4, .name = "fc2"}));
}

Case base_case(Precision precision) {
  Case setup;
  setup.samples = 12 * 4;
  setup.sample = {2, 2, 2};
  setup.precision = precision;
  setup.norm = scales_loss(precision);
  return setup;
}

std::string to_text(Precision precision) { return std::string(to_string(precision)); }

class ShortPrecision : public ::testing::TestWithParam<Precision> {};

TEST_P(ShortPrecision, EveryCutHasTheBitsOfOneWorker) {
  const model::Model model = normed_model();
  Case serial = base_case(GetParam());
  serial.parts = 3;
  serial.norm = true;
  const Trained reference = train(model, serial);
  for (const Strategy kind : {Strategy::GPipe, Strategy::OneFOneBFlush, Strategy::ZbH1}) {
    for (const bool recompute : {false, true}) {
      SCOPED_TRACE(std::string(to_string(kind)) + (recompute ? " with recomputation" : ""));
      Case setup = serial;
      setup.kind = kind;
      setup.replicas = {1, 1, 1};
      setup.recompute = std::vector<bool>(3, recompute);
      expect_same_bits(reference, train(model, setup));
    }
  }
}

TEST_P(ShortPrecision, ReplicasHaveTheBitsOfOneWorkerWithTheSameGroups) {
  const model::Model model = skip_model();
  Case serial = base_case(GetParam());
  serial.sample = {8};
  serial.parts = 6;
  serial.groups = 6;
  serial.norm = true;
  const Trained reference = train(model, serial);
  Case setup = serial;
  setup.kind = Strategy::OneFOneBFlush;
  setup.replicas = {2, 3, 1};
  expect_same_bits(reference, train(model, setup));
  setup.kind = Strategy::DataParallel;
  setup.replicas = {2};
  expect_same_bits(reference, train(model, setup));
}

TEST_P(ShortPrecision, DiffersFromFloat32ByRounding) {
  const model::Model model = normed_model();
  Case setup = base_case(GetParam());
  setup.samples = 12 * 10;
  const Trained in_16_bits = train(model, setup);
  setup.precision = Precision::Float32;
  const Trained wide = train(model, setup);
  EXPECT_NE(in_16_bits.losses, wide.losses);
  EXPECT_LT(loss_difference(wide.losses, in_16_bits.losses), 0.05);
}

TEST_P(ShortPrecision, StoredWeightsAndStateAreFloat32AndMoveByLessThanARoundingStep) {
  const model::Model model = skip_model();
  Case setup = base_case(GetParam());
  setup.sample = {8};
  setup.samples = 12;
  setup.optimizer = {.kind = model::OptimizerKind::Sgd};
  setup.learning_rate = 1e-6;  // far below what 16 bits resolve
  const Trained trained = train(model, setup);
  double moved = 0;
  for (int l = 0; l < model.graph().num_layers(); ++l) {
    const LayerSnapshot& layer = trained.layers[static_cast<size_t>(l)];
    const model::Tensors before = model.initial_weights(LayerId{l}, 3);
    for (size_t w = 0; w < before.size(); ++w) {
      EXPECT_EQ(layer.weights[w].scalar_type(), at::kFloat);
      moved = std::max(moved, (layer.weights[w] - before[w]).abs().max().item<double>());
    }
  }
  EXPECT_GT(moved, 0);
  EXPECT_LT(moved, 1e-4);
}

TEST_P(ShortPrecision, PoliciesThatDelayWeightsTrain) {
  const model::Model model = skip_model();
  for (const WeightPolicy policy :
       {WeightPolicy::Stash, WeightPolicy::VerticalSync, WeightPolicy::Latest}) {
    Case setup = base_case(GetParam());
    setup.kind = Strategy::OneFOneB;
    setup.policy = policy;
    setup.replicas = {1, 1, 1};
    setup.sample = {8};
    setup.samples = 12 * 40;
    const Trained trained = train(model, setup);
    EXPECT_LT(trained.losses.back(), 0.9 * trained.losses.front()) << to_string(policy);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, ShortPrecision, ::testing::ValuesIn(kShort),
                         [](const auto& info) { return to_text(info.param); });

TEST(Float16, StepsWithInfiniteGradientsAreLeftOutByAllStagesAlike) {
  const model::Model model = skip_model();
  Case serial = base_case(Precision::Float16);
  serial.sample = {8};
  serial.samples = 12 * 12;
  serial.parts = 2;
  serial.groups = 2;
  // So large that the first gradients are infinite, until halving has made it small enough.
  serial.loss_scale = {.scale = 1 << 23, .good_steps = 0, .skipped = 5};
  const Trained reference = train(model, serial);
  EXPECT_GT(reference.run.skipped_steps, 0);
  EXPECT_LT(reference.run.skipped_steps, 12);
  EXPECT_EQ(reference.loss_scale.skipped, 5 + reference.run.skipped_steps);
  EXPECT_EQ(reference.loss_scale.scale, (1 << 23) / std::pow(2, reference.run.skipped_steps));
  for (const model::OptimizerSpec& optimizer : {momentum_sgd(), gentle_adam()}) {
    serial.optimizer = optimizer;
    const Trained one = train(model, serial);
    for (const std::vector<int>& replicas : {std::vector<int>{1, 1, 1}, std::vector<int>{2, 1}}) {
      Case setup = serial;
      setup.kind = Strategy::OneFOneBFlush;
      setup.replicas = replicas;
      const Trained many = train(model, setup);
      EXPECT_EQ(one.losses, many.losses);
      EXPECT_EQ(one.loss_scale, many.loss_scale);
      EXPECT_EQ(one.run.skipped_steps, many.run.skipped_steps);
      for (size_t l = 0; l < one.layers.size(); ++l) {
        for (size_t w = 0; w < one.layers[l].weights.size(); ++w)
          EXPECT_TRUE(one.layers[l].weights[w].equal(many.layers[l].weights[w]));
      }
    }
  }
}

TEST(Float16, UnderStashEveryStageLeavesOutTheSameSteps) {
  const model::Model model = skip_model();
  Case setup = base_case(Precision::Float16);
  setup.kind = Strategy::OneFOneB;
  setup.policy = WeightPolicy::Stash;
  setup.replicas = {1, 1, 1};
  setup.sample = {8};
  setup.samples = 12 * 30;
  setup.loss_scale = {.scale = 1 << 23, .good_steps = 0, .skipped = 0};
  const Trained trained = train(model, setup);
  EXPECT_GT(trained.run.skipped_steps, 0);
  int64_t infinite = 0;
  for (const auto& stats : trained.run.mini_batches)
    infinite += std::isfinite(stats.gradient_norm) ? 0 : 1;
  EXPECT_EQ(infinite, trained.run.skipped_steps);
  for (const LayerSnapshot& layer : trained.layers) {
    for (const at::Tensor& weight : layer.weights)
      EXPECT_TRUE(weight.isfinite().all().item<bool>());
  }
  EXPECT_LT(trained.losses.back(), trained.losses.front());
}

TEST(Float16, NeedsAScheduleWithNorm) {
  Case setup = base_case(Precision::Float16);
  setup.norm = false;
  EXPECT_THROW(train(normed_model(), setup), ConfigError);
}

TEST(Tf32, IsRefusedOnCpus) {
  EXPECT_THROW(train(normed_model(), base_case(Precision::Tf32)), ConfigError);
}

TEST(LossScale, FollowsFromTheNorms) {
  LossScale scale({.scale = 4, .good_steps = LossScale::kGrowthSteps - 1, .skipped = 7});
  EXPECT_EQ(scale.at(0), 4);
  EXPECT_TRUE(scale.take(1.5));
  EXPECT_EQ(scale.at(1), 8);
  EXPECT_FALSE(scale.take(INFINITY));
  EXPECT_FALSE(scale.take(NAN));
  EXPECT_EQ(scale.at(3), 2);
  EXPECT_EQ(scale.at(1), 8);  // what is under way keeps its scale
  EXPECT_EQ(scale.state(), (LossScaleState{.scale = 2, .good_steps = 0, .skipped = 9}));
  EXPECT_FALSE(scale.take(INFINITY));
  EXPECT_THROW(scale.take(INFINITY), RuntimeError);
}

TEST(WeightStore, VersionsOf16BitsHaveOneFloat32WeightBehindThem) {
  const auto sgd = model::make_optimizer({.kind = model::OptimizerKind::Sgd});
  const at::Tensor initial = at::full({1000}, 1.0);
  WeightStore store({initial.clone()}, *sgd, {}, {}, {at::kBFloat16});
  const int64_t state = static_cast<int64_t>(store.state().size()) * 4000;
  EXPECT_EQ(store.bytes(), 4000 + 2000 + state);
  EXPECT_EQ(store.at(WeightVersion{0})[0].scalar_type(), at::kBFloat16);
  store.step(model::Tensors{at::full({1000}, 1.0)}, {.learning_rate = 1e-3, .step = 1});
  EXPECT_EQ(store.bytes(), 4000 + 2 * 2000 + state);
  // 0.999 is rounded in the version, and kept in the weight.
  EXPECT_FLOAT_EQ(store.newest()[0][0].item<float>(), 0.999F);
  EXPECT_EQ(store.at(WeightVersion{1})[0][0].item<float>(), 1.0F);
  EXPECT_TRUE(store.at(WeightVersion{1})[0].requires_grad());
  for (int64_t step = 2; step < 12; ++step)
    store.step(model::Tensors{at::full({1000}, 1.0)}, {.learning_rate = 1e-3, .step = step});
  EXPECT_LT(store.at(WeightVersion{11})[0][0].item<float>(), 1.0F);
}

}  // namespace
}  // namespace penstock::runtime::testing

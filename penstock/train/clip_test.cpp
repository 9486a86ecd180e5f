// Clipping by the global norm, compared with libtorch's own, in one thread on the whole model.
#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/nn/utils/clip_grad.h>

#include <cmath>

#include "penstock/train/data/epoch_batches.h"
#include "penstock/train/test_training.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/rng.h"

namespace penstock::train {
namespace {

constexpr double kMaxNorm = 0.25;
constexpr double kRate = 0.1;
constexpr int64_t kBatch = 24;
constexpr uint64_t kSeed = 5;

/// 6 -> 12 -> 12 -> 3 with tanh between; the third layer, like a decoder, uses the second one's
/// weight.
model::Model chain_model() {
  model::ModelBuilder net("chain");
  model::Value x = net.tanh(net.linear(net.input({6}), {.features = 12, .name = "fc1"}));
  x = net.tanh(net.linear(x, {.features = 12, .name = "fc2"}));
  x = net.tanh(net.linear(x, {.features = 12, .name = "fc3", .transposed = true}));
  net.tie("fc3", "weight", "fc2", "weight");
  return net.build(net.linear(x, {.features = 3, .name = "fc4"}));
}

struct Expected {
  std::vector<double> losses;
  std::vector<double> norms;
};

/// Plain libtorch: its functions, autograd and clip_grad_norm_, and SGD with momentum by hand.
Expected train_with_torch(const model::Model& model, const Dataset& data, int64_t steps) {
  std::vector<at::Tensor> w;  // fc1, fc2, fc3's bias, fc4
  for (const char* name : {"fc1", "fc2", "fc3", "fc4"}) {
    const LayerId id = model.graph().find(name);
    model::Tensors weights = model.initial_weights(id, kSeed);
    if (std::string(name) == "fc3") weights.erase(weights.begin());
    for (const at::Tensor& weight : weights) w.push_back(weight.clone().requires_grad_(true));
  }
  std::vector<at::Tensor> momentum;
  for (const at::Tensor& weight : w) momentum.push_back(at::zeros_like(weight));
  const std::vector<int64_t> order = epoch_order(data.size(), kSeed, 0, true);
  Expected expected;
  for (int64_t t = 0; t < steps; ++t) {
    const std::vector<int64_t> rows(order.begin() + t * kBatch,
                                    order.begin() + std::min(data.size(), (t + 1) * kBatch));
    at::Tensor x = at::tanh(at::linear(data.inputs(rows).front(), w[0], w[1]));
    x = at::tanh(at::linear(x, w[2], w[3]));
    x = at::tanh(at::linear(x, w[2].t(), w[4]));
    const at::Tensor loss = at::cross_entropy_loss(at::linear(x, w[5], w[6]), data.targets(rows));
    for (at::Tensor& weight : w) weight.mutable_grad() = at::Tensor();
    loss.backward();
    expected.norms.push_back(torch::nn::utils::clip_grad_norm_(w, kMaxNorm));
    expected.losses.push_back(loss.item<double>());
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < w.size(); ++i) {
      momentum[i].mul_(0.9).add_(w[i].grad());
      w[i].sub_(momentum[i], kRate);
    }
  }
  return expected;
}

TEST(ClipNorm, EqualsTorchUnderEverySchedule) {
  const model::Model model = chain_model();
  const DataSplit data = feature_data();  // the ninth mini-batch has 8 samples
  const Expected expected = train_with_torch(model, *data.train, 9);
  EXPECT_GT(expected.norms.front(), kMaxNorm) << "nothing is clipped";
  struct Case {
    const char* strategy;
    std::vector<int> replicas;
    int chunks = 1;
  };
  for (const Case& c :
       {Case{"serial", {1}}, Case{"dp", {2}}, Case{"gpipe", {1, 2}}, Case{"1f1b-flush", {1, 1, 1}},
        Case{"zb-h1", {1, 1}}, Case{"interleaved", {1, 1, 1, 1}, 2}, Case{"zb-v", {1, 1, 1, 1}, 2},
        Case{"chimera", {2, 2}}}) {
    SCOPED_TRACE(c.strategy);
    TrainOptions options;
    options.plan = plan_for(model, c.strategy, c.replicas, 4, c.chunks);
    options.mini_batch_size = kBatch;
    options.learning_rate.base = kRate;
    options.seed = kSeed;
    options.max_grad_norm = kMaxNorm;
    options.evaluate = false;
    const TrainResult result = train(model, data, options);
    ASSERT_EQ(result.losses.size(), expected.losses.size());
    ASSERT_EQ(result.grad_norms.size(), expected.norms.size());
    EXPECT_EQ(result.learning_rates, std::vector<double>(9, kRate));
    for (size_t t = 0; t < expected.losses.size(); ++t) {
      EXPECT_NEAR(result.losses[t], expected.losses[t], 2e-5) << t;
      EXPECT_NEAR(result.grad_norms[t], expected.norms[t], 2e-5) << t;
    }
  }
}

TEST(ClipNorm, WithInfinityTheNormIsOnlyRecorded) {
  const model::Model model = branching_model(0);
  TrainOptions options;
  options.plan = plan_for(model, "1f1b", {1, 1}, 1);
  options.mini_batch_size = kBatch;
  options.evaluate = false;
  const TrainResult without = train(model, feature_data(), options);
  EXPECT_TRUE(without.grad_norms.empty());
  EXPECT_FALSE(without.epochs.front().grad_norm.has_value());
  options.plan = plan_for(model, "1f1b-flush", {1, 1}, 1);
  const TrainResult plain = train(model, feature_data(), options);
  options.max_grad_norm = HUGE_VAL;
  const TrainResult recorded = train(model, feature_data(), options);
  EXPECT_EQ(recorded.losses, plain.losses);
  ASSERT_EQ(recorded.grad_norms.size(), recorded.losses.size());
  for (const double norm : recorded.grad_norms) EXPECT_GT(norm, 0);
  EXPECT_GT(recorded.epochs.front().grad_norm.value_or(0), 0);
}

TEST(ClipNorm, RefusesInvalidNorms) {
  TrainOptions options;
  for (const double norm : {-1.0, -HUGE_VAL, std::nan("")}) {
    options.max_grad_norm = norm;
    EXPECT_THROW(validate(options), ConfigError);
  }
}

}  // namespace
}  // namespace penstock::train

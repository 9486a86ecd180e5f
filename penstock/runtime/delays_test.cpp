// Asynchronous strategies equal a single-threaded reference that replays the same weight delays.
// The reference does not use schedules, stages or stores: it keeps every version of every weight
// and finds the versions by closed formulas.
#include <torch/csrc/autograd/autograd.h>

#include "penstock/model/loss.h"
#include "penstock/runtime/stage_module.h"
#include "penstock/runtime/test_support.h"

namespace penstock::runtime::testing {
namespace {

using plan::Strategy;
using schedule::WeightPolicy;

/// Version of stage s's weights in forward / backward of mini-batch t, for n stages of one worker
/// each, one micro-batch per mini-batch.
struct Delays {
  std::function<int64_t(int64_t t, int64_t s, int64_t n)> forward;
  std::function<int64_t(int64_t t, int64_t s, int64_t n)> backward;
};

int64_t stashed(int64_t t, int64_t s, int64_t n) { return std::max<int64_t>(0, t - (n - 1 - s)); }
int64_t vertical(int64_t t, int64_t, int64_t n) { return std::max<int64_t>(0, t - (n - 1)); }
int64_t double_buffered(int64_t t, int64_t, int64_t) { return std::max<int64_t>(0, t - 1); }
int64_t newest(int64_t t, int64_t, int64_t) { return t; }

Trained reference(const model::Model& model, const Case& setup, const Delays& delays) {
  const auto stages = static_cast<int64_t>(setup.replicas.size());
  const std::vector<StageId> stage_of_layer = cut(model, static_cast<int>(stages));
  const StageModule whole(model, std::vector<StageId>(stage_of_layer.size(), StageId{0}),
                          StageId{0});
  const auto optimizer = model::make_optimizer(setup.optimizer);
  const RandomBatches batches(setup.samples, setup.mini_batch, setup.parts, 8, 4);

  std::vector<int64_t> stage_of_weight;
  std::vector<model::Tensors> versions(1);
  for (const LayerId id : whole.layers()) {
    for (const at::Tensor& weight : model.initial_weights(id, 3)) {
      versions[0].push_back(weight);
      stage_of_weight.push_back(stage_of_layer[id.index()].value);
    }
  }
  std::vector<model::Tensors> state(optimizer->state_names().size());
  for (auto& tensors : state) {
    for (const at::Tensor& weight : versions[0]) tensors.push_back(at::zeros_like(weight));
  }

  Trained result;
  const int64_t mini_batches = (setup.samples + setup.mini_batch - 1) / setup.mini_batch;
  for (int64_t t = 0; t < mini_batches; ++t) {
    model::Tensors sums(stage_of_weight.size());
    double loss_sum = 0;
    for (int64_t b = t * setup.parts;
         b < std::min((t + 1) * setup.parts, batches.num_micro_batches()); ++b) {
      model::Tensors leaves;
      for (size_t w = 0; w < stage_of_weight.size(); ++w) {
        const auto v = static_cast<size_t>(delays.forward(t, stage_of_weight[w], stages));
        leaves.push_back(versions[v][w].clone().requires_grad_(true));
      }
      model::Tensors buffers;
      const model::Tensors inputs = batches.inputs(MicroBatchId{b});
      const at::Tensor logits =
          whole
              .forward(leaves, buffers, inputs,
                       {.training = true, .seed = batches.seed(MicroBatchId{b})})
              .front();
      const auto loss = model::cross_entropy(logits, batches.targets(MicroBatchId{b}),
                                             batches.size_of(MiniBatchId{t}));
      loss_sum += loss.loss_sum;
      for (size_t w = 0; w < leaves.size(); ++w) {
        const auto v = static_cast<size_t>(delays.backward(t, stage_of_weight[w], stages));
        leaves[w].variable_data().copy_(versions[v][w]);
      }
      const auto grads = torch::autograd::grad({loss.scaled_loss}, leaves);
      for (size_t w = 0; w < grads.size(); ++w)
        sums[w] = sums[w].defined() ? sums[w] + grads[w] : grads[w];
    }
    result.losses.push_back(loss_sum /
                            static_cast<double>(batches.mini_batch_samples(MiniBatchId{t})));
    const at::NoGradGuard no_grad;
    model::Tensors next;
    for (size_t w = 0; w < sums.size(); ++w) {
      at::Tensor weight = at::empty_like(versions.back()[w]);
      model::Tensors own;
      for (auto& tensors : state) own.push_back(tensors[w]);
      optimizer->step(versions.back()[w], sums[w], weight, own,
                      {.learning_rate = setup.learning_rate, .step = t + 1});
      next.push_back(weight);
    }
    versions.push_back(std::move(next));
  }
  result.layers.resize(stage_of_layer.size());
  for (size_t i = 0; i < whole.layers().size(); ++i) {
    for (size_t w = whole.weight_offsets()[i]; w < whole.weight_offsets()[i + 1]; ++w)
      result.layers[whole.layers()[i].index()].weights.push_back(versions.back()[w]);
  }
  return result;
}

void expect_equals_reference(const Case& setup, const Delays& delays) {
  const model::Model model = skip_model();
  const Trained expected = reference(model, setup, delays);
  const Trained actual = train(model, setup);
  EXPECT_LT(loss_difference(expected.losses, actual.losses), kTolerance);
  EXPECT_LT(weight_difference(expected.layers, actual.layers), kTolerance);
}

TEST(Delays, ReferenceWithoutDelayIsSerialTraining) {
  expect_equals_reference({.kind = Strategy::Serial, .replicas = {1}}, {newest, newest});
}

TEST(Delays, StashEqualsSerialReplay) {
  for (const int stages : {1, 2, 3, 4}) {
    SCOPED_TRACE(stages);
    expect_equals_reference({.kind = Strategy::OneFOneB,
                             .replicas = std::vector<int>(static_cast<size_t>(stages), 1),
                             .policy = WeightPolicy::Stash},
                            {stashed, stashed});
  }
}

TEST(Delays, StashWithAdamEqualsSerialReplay) {
  expect_equals_reference({.kind = Strategy::OneFOneB,
                           .replicas = {1, 1, 1},
                           .policy = WeightPolicy::Stash,
                           .optimizer = gentle_adam(),
                           .learning_rate = 0.01},
                          {stashed, stashed});
}

TEST(Delays, VerticalSyncEqualsSerialReplay) {
  expect_equals_reference(
      {.kind = Strategy::OneFOneB, .replicas = {1, 1, 1}, .policy = WeightPolicy::VerticalSync},
      {vertical, vertical});
  expect_equals_reference(
      {.kind = Strategy::OneFOneB, .replicas = {1, 1, 1, 1}, .policy = WeightPolicy::VerticalSync},
      {vertical, vertical});
}

TEST(Delays, TwoBufferedEqualsSerialReplay) {
  expect_equals_reference({.kind = Strategy::TwoBuffered,
                           .replicas = {1, 1, 1},
                           .policy = WeightPolicy::TwoBuffered,
                           .parts = 3},
                          {double_buffered, double_buffered});
  expect_equals_reference({.kind = Strategy::TwoBuffered,
                           .replicas = {1, 1},
                           .policy = WeightPolicy::TwoBuffered,
                           .parts = 4,
                           .samples = 12 * 9 + 5},
                          {double_buffered, double_buffered});
}

TEST(Delays, LatestEqualsSerialReplay) {
  expect_equals_reference(
      {.kind = Strategy::OneFOneB, .replicas = {1, 1, 1}, .policy = WeightPolicy::Latest},
      {stashed, newest});
}

TEST(Delays, LatestDiffersFromStash) {
  // If it did not, the test above would prove nothing.
  Case setup{.kind = Strategy::OneFOneB, .replicas = {1, 1, 1}, .policy = WeightPolicy::Latest};
  const Trained latest = train(skip_model(), setup);
  setup.policy = WeightPolicy::Stash;
  const Trained stash = train(skip_model(), setup);
  setup.policy = WeightPolicy::VerticalSync;
  const Trained vertical_sync = train(skip_model(), setup);
  EXPECT_GT(weight_difference(latest.layers, stash.layers), 10 * kTolerance);
  EXPECT_GT(weight_difference(vertical_sync.layers, stash.layers), 10 * kTolerance);
}

TEST(Delays, RecomputationUsesTheStashedVersion) {
  Case setup{.kind = Strategy::OneFOneB, .replicas = {1, 1, 1}, .policy = WeightPolicy::Stash};
  const Trained kept = train(skip_model(0.3), setup);
  setup.recompute = {true, true, true};
  const Trained again = train(skip_model(0.3), setup);
  EXPECT_EQ(kept.losses, again.losses);
  EXPECT_EQ(weight_difference(kept.layers, again.layers), 0.0);
}

TEST(Delays, VersionsKeptMatchThePolicy) {
  Case setup{.kind = Strategy::OneFOneB, .replicas = {1, 1, 1}, .policy = WeightPolicy::Stash};
  EXPECT_EQ(train(skip_model(), setup).run.peak_versions, (std::vector<int64_t>{3, 2, 1}));
  setup.policy = WeightPolicy::VerticalSync;
  EXPECT_EQ(train(skip_model(), setup).run.peak_versions, (std::vector<int64_t>{3, 3, 3}));
  setup.policy = WeightPolicy::Latest;
  EXPECT_EQ(train(skip_model(), setup).run.peak_versions, (std::vector<int64_t>{1, 1, 1}));
  setup = {.kind = Strategy::TwoBuffered,
           .replicas = {1, 1, 1},
           .policy = WeightPolicy::TwoBuffered,
           .parts = 3};
  EXPECT_EQ(train(skip_model(), setup).run.peak_versions, (std::vector<int64_t>{2, 2, 2}));
}

TEST(Delays, RoundRobinOverUnequalReplicasLearnsAndRepeats) {
  const Case setup{.kind = Strategy::OneFOneB,
                   .replicas = {3, 2, 1},
                   .policy = WeightPolicy::Stash,
                   .mini_batch = 12,
                   .parts = 6,
                   .samples = 12 * 30 + 5};
  const Trained first = train(skip_model(), setup);
  const Trained second = train(skip_model(), setup);
  EXPECT_EQ(first.losses, second.losses);
  EXPECT_LT(first.losses.back(), first.losses.front());
}

}  // namespace
}  // namespace penstock::runtime::testing

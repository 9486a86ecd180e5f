// Small models, data and runs shared by the runtime's tests.
#pragma once

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "penstock/model/builder.h"
#include "penstock/runtime/pipeline.h"
#include "penstock/schedule/generate.h"
#include "penstock/schedule/teams.h"
#include "penstock/util/numbers/rng.h"
#include "penstock/verify/verify.h"

namespace penstock::runtime::testing {

/// Random samples in memory, cut into mini-batches of `mini_batch` samples, each into `parts`
/// micro-batches of nearly equal size.
class RandomBatches : public BatchSource {
 public:
  RandomBatches(int64_t samples, int64_t mini_batch, int64_t parts, int64_t features,
                int64_t classes, model::Shape sample = {}, uint64_t seed = 7)
      : mini_batch_(mini_batch), parts_(parts), samples_(samples) {
    Rng rng(seed);
    inputs_ = at::zeros({samples, features});
    targets_ = at::zeros({samples}, at::kLong);
    for (int64_t i = 0; i < inputs_.numel(); ++i)
      inputs_.data_ptr<float>()[i] = static_cast<float>(rng.uniform() * 2 - 1);
    targets_.copy_(inputs_.slice(1, 0, classes).argmax(1));  // something to learn
    if (!sample.empty()) {
      sample.insert(sample.begin(), samples);
      inputs_ = inputs_.reshape(sample);
    }
  }
  int64_t num_micro_batches() const {
    const int64_t rest = samples_ % mini_batch_;
    return samples_ / mini_batch_ * parts_ + std::min(rest, parts_);
  }
  model::Tensors inputs(MicroBatchId b) const override {
    return {inputs_.slice(0, begin(b), end(b))};
  }
  at::Tensor targets(MicroBatchId b) const override { return targets_.slice(0, begin(b), end(b)); }
  int64_t samples(MicroBatchId b) const override { return end(b) - begin(b); }
  int64_t mini_batch_samples(MiniBatchId t) const override {
    return std::min(mini_batch_, samples_ - t.value * mini_batch_);
  }
  uint64_t seed(MicroBatchId b) const override { return derive_seed(99, begin(b)); }

 private:
  int64_t begin(MicroBatchId b) const { return edge(b, 0); }
  int64_t end(MicroBatchId b) const { return edge(b, 1); }
  int64_t edge(MicroBatchId b, int64_t offset) const {
    const int64_t t = b.value / parts_;
    const int64_t n = mini_batch_samples(MiniBatchId{t});
    return t * mini_batch_ + n * (b.value % parts_ + offset) / std::min(n, parts_);
  }
  int64_t mini_batch_;
  int64_t parts_;
  int64_t samples_;
  at::Tensor inputs_;
  at::Tensor targets_;
};

/// 8 features, 4 classes, six weighted layers, a skip connection over several layers and a layer
/// with two outputs.
inline model::Model skip_model(double dropout = 0) {
  model::ModelBuilder net("skip");
  model::Value x = net.input({8});
  x = net.tanh(net.linear(x, {.features = 16, .name = "fc1"}));
  const model::Value skip = x;
  x = net.tanh(net.linear(x, {.features = 16, .name = "fc2"}));
  if (dropout > 0) x = net.dropout(x, dropout);
  const auto halves = net.split(x, 2);
  const model::Value left = net.linear(halves[0], {.features = 8, .name = "fc3"});
  x = net.concat({left, halves[1]});
  x = net.tanh(net.linear(x, {.features = 16, .name = "fc4"}));
  x = net.add(x, skip);
  x = net.relu(net.linear(x, {.features = 12, .name = "fc5"}));
  return net.build(net.linear(x, {.features = 4, .name = "fc6"}));
}

/// Cuts the layers, in topological order, into `stages` ranges of nearly equal length.
inline std::vector<StageId> cut(const model::Model& model, int stages) {
  std::vector<StageId> result;
  const int n = model.graph().num_layers();
  for (int l = 0; l < n; ++l) result.push_back(StageId{l * stages / n});
  return result;
}

struct Trained {
  std::vector<double> losses;
  std::vector<LayerSnapshot> layers;
  RunResult run;
  LossScaleState loss_scale;
  std::vector<std::string> graph_obstacles;
};

inline model::OptimizerSpec momentum_sgd() {
  return {.kind = model::OptimizerKind::Sgd, .momentum = 0.9, .weight_decay = 1e-3};
}
inline model::OptimizerSpec gentle_adam() {
  return {.kind = model::OptimizerKind::Adam, .epsilon = 1e-3};
}

struct Case {
  plan::Strategy kind = plan::Strategy::Serial;
  std::vector<int> replicas = {1};
  schedule::WeightPolicy policy = schedule::WeightPolicy::Flush;
  int64_t mini_batch = 12;
  int64_t parts = 1;
  int64_t samples = 12 * 20;
  model::OptimizerSpec optimizer = momentum_sgd();
  double learning_rate = 0.05;
  std::vector<bool> recompute = {};
  std::vector<bool> offload = {};
  int chunks = 0;  ///< stages per worker where the kind puts several on one; 0: the kind's default
  int64_t slack = 0;   ///< eager-1f1b
  int64_t groups = 0;  ///< PipelineOptions::gradient_groups
  FloatType gradient_precision = FloatType::Float32;
  Precision precision = Precision::Float32;
  LossScaleState loss_scale = {};              ///< before the run
  std::vector<bool> rounded_layers = {};       ///< PipelineOptions
  std::vector<CodedBoundary> boundaries = {};  ///< PipelineOptions
  bool norm = false;
  double max_grad_norm = 0;
  std::vector<bool> shard_optimizer = {};  ///< PipelineOptions
  bool flushes = false;                    ///< PipelineOptions
  schedule::Compensation compensation = schedule::Compensation::None;
  int64_t fade_steps = 0;  ///< RunOptions
  /// Of the layers; empty: cut().
  std::vector<StageId> stage_of_layer = {};
  model::Shape sample = {8};
  std::vector<at::Device> device_of_worker = {};  ///< PipelineOptions, here and below
  model::Devices* devices = nullptr;
  bool device_graphs = false;
  std::vector<int> teams = {};  ///< members of each stage's team; empty: none
};

inline schedule::ScheduleShape shape_of(const Case& setup, int64_t micro_batches) {
  schedule::ScheduleShape shape{.replicas = setup.replicas,
                                .micro_batches = micro_batches,
                                .accumulate = setup.parts,
                                .policy = setup.policy,
                                .compensation = setup.compensation,
                                .slack = setup.slack,
                                .recompute = setup.recompute,
                                .offload = setup.offload,
                                .global_norm = setup.norm};
  return schedule::with_placement(setup.kind, shape,
                                  setup.chunks == 0 ? traits(setup.kind).chunks : setup.chunks);
}

/// With a stage for each member of a team.
inline schedule::ScheduleShape shape_with_teams(const Case& setup, int64_t micro_batches) {
  const schedule::ScheduleShape shape = shape_of(setup, micro_batches);
  return setup.teams.empty() ? shape : schedule::with_teams(shape, setup.teams);
}

inline schedule::Schedule make_schedule(const Case& setup, const RandomBatches& batches,
                                        const Pipeline& pipeline) {
  const schedule::Schedule compute =
      generate(setup.kind, shape_of(setup, batches.num_micro_batches()));
  const schedule::Schedule full = lower(
      setup.teams.empty() ? compute : schedule::with_teams(compute, setup.teams), pipeline.links());
  const int64_t credits = std::max<int64_t>(4, verify::min_credits(full));
  const auto violations = verify::verify(full, {.credits = credits});
  EXPECT_TRUE(violations.empty()) << violations.front().message;
  return full;
}

/// `world`: null for this process alone.
inline Trained train(const model::Model& model, const Case& setup, World* world = nullptr,
                     std::chrono::milliseconds deadline = std::chrono::seconds(30)) {
  const auto optimizer = model::make_optimizer(setup.optimizer);
  const RandomBatches batches(setup.samples, setup.mini_batch, setup.parts, 8, 4, setup.sample);
  const auto stages = setup.stage_of_layer.empty()
                          ? cut(model, static_cast<int>(setup.replicas.size()))
                          : setup.stage_of_layer;
  const schedule::ScheduleShape shape = shape_with_teams(setup, 1);
  Pipeline pipeline(model, stages, shape.replicas, *optimizer,
                    {.seed = 3,
                     .deadline = deadline,
                     .worker_of_replica = shape.worker_of_replica,
                     .gradient_groups = setup.groups,
                     .gradient_precision = setup.gradient_precision,
                     .precision = setup.precision,
                     .rounded_layers = setup.rounded_layers,
                     .boundaries = setup.boundaries,
                     .shard_optimizer = setup.shard_optimizer,
                     .flushes = setup.flushes,
                     .world = world,
                     .device_of_worker = setup.device_of_worker,
                     .devices = setup.devices,
                     .device_graphs = setup.device_graphs});
  pipeline.set_loss_scale(setup.loss_scale);
  Trained trained;
  const schedule::Schedule schedule = make_schedule(setup, batches, pipeline);
  trained.run = pipeline.run(schedule, batches,
                             {.learning_rate = [&](int64_t) { return setup.learning_rate; },
                              .fade_steps = setup.fade_steps,
                              .max_grad_norm = setup.max_grad_norm,
                              .credits = std::max<int64_t>(4, verify::min_credits(schedule))});
  for (const auto& stats : trained.run.mini_batches) trained.losses.push_back(stats.mean_loss());
  trained.layers = pipeline.snapshot();
  trained.loss_scale = pipeline.loss_scale();
  trained.graph_obstacles = pipeline.graph_obstacles();
  return trained;
}

/// With buffers, which every F changes. Case::sample is {2, 2, 2}.
inline model::Model model_with_norms() {
  model::ModelBuilder net("norms");
  model::Value x = net.input({2, 2, 2});
  x = net.relu(net.batch_norm2d(net.conv2d(x, {.channels = 3, .kernel = 3, .padding = 1})));
  x = net.relu(net.batch_norm2d(net.conv2d(x, {.channels = 4, .kernel = 3, .padding = 1})));
  return net.build(net.linear(net.flatten(x), {.features = 4}));
}

/// Losses, norms and weights, bit for bit.
inline void expect_same_bits(const Trained& a, const Trained& b) {
  EXPECT_EQ(a.losses, b.losses);
  ASSERT_EQ(a.run.mini_batches.size(), b.run.mini_batches.size());
  for (size_t t = 0; t < a.run.mini_batches.size(); ++t)
    EXPECT_EQ(a.run.mini_batches[t].gradient_norm, b.run.mini_batches[t].gradient_norm) << t;
  ASSERT_EQ(a.layers.size(), b.layers.size());
  for (size_t l = 0; l < a.layers.size(); ++l) {
    ASSERT_EQ(a.layers[l].weights.size(), b.layers[l].weights.size());
    for (size_t w = 0; w < a.layers[l].weights.size(); ++w)
      EXPECT_TRUE(a.layers[l].weights[w].equal(b.layers[l].weights[w]))
          << "layer " << l << " weight " << w;
  }
}

/// Largest difference relative to the largest magnitude, over all weights.
inline double weight_difference(const std::vector<LayerSnapshot>& a,
                                const std::vector<LayerSnapshot>& b) {
  double worst = 0;
  for (size_t l = 0; l < a.size(); ++l) {
    for (size_t w = 0; w < a[l].weights.size(); ++w) {
      const double scale = a[l].weights[w].abs().max().item<double>();
      worst = std::max(worst, (a[l].weights[w] - b[l].weights[w]).abs().max().item<double>() /
                                  std::max(scale, 1e-6));
    }
  }
  return worst;
}

/// Of losses and weights whose sums are taken in another order.
inline constexpr double kTolerance = 1e-5;

inline double loss_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double worst = a.size() == b.size() ? 0 : 1e9;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    worst = std::max(worst, std::abs(a[i] - b[i]) / std::abs(a[i]));
  return worst;
}

}  // namespace penstock::runtime::testing

// Small models, data and plans shared by the tests of training.
#pragma once

#include <numeric>
#include <string>
#include <vector>

#include "penstock/model/builder.h"
#include "penstock/schedule/generate.h"
#include "penstock/schedule/plan_shape.h"
#include "penstock/train/data/load_data.h"
#include "penstock/train/session.h"
#include "penstock/train/trainer.h"

namespace penstock::train {

/// 6 features, 3 classes; eight layers with weights, a skip connection over several of them, a
/// layer with two outputs, dropout, and, if `tied`, later layers that use weights of the first
/// ones.
inline model::Model branching_model(double dropout = 0.2, bool tied = false) {
  model::ModelBuilder net("branching");
  model::Value x = net.input({6});
  x = net.tanh(net.linear(x, {.features = 12, .name = "fc1"}));
  const model::Value skip = x;
  x = net.tanh(net.linear(x, {.features = 12, .name = "fc2"}));
  if (dropout > 0) x = net.dropout(x, dropout);
  const auto halves = net.split(x, 2);
  x = net.concat({net.linear(halves[0], {.features = 6, .name = "fc3"}), halves[1]});
  x = net.tanh(net.linear(x, {.features = 12, .name = "fc4"}));
  x = net.add(x, skip);
  x = net.tanh(net.linear(x, {.features = 6, .name = "fc5", .transposed = tied}));
  x = net.tanh(net.linear(x, {.features = 12, .name = "fc6"}));
  x = net.add(net.tanh(net.linear(x, {.features = 12, .name = "fc7"})), skip);
  if (tied) {
    net.tie("fc5", "weight", "fc1", "weight");
    net.tie("fc7", "weight", "fc2", "weight");
    net.tie("fc7", "bias", "fc2", "bias");
  }
  return net.build(net.linear(x, {.features = 3, .name = "fc8"}));
}

inline DataSplit feature_data(int64_t samples = 200) {
  DataSpec spec;
  spec.name = "synthetic";
  spec.sample = labelled({6}, 3);
  spec.train_samples = samples;
  spec.test_samples = 40;
  return load_data(spec);
}

inline Batch batch_of(const Dataset& data, int64_t first, int64_t count) {
  std::vector<int64_t> indices(static_cast<size_t>(count));
  std::iota(indices.begin(), indices.end(), first);
  return {data.inputs(indices), data.targets(indices)};
}

/// The layers cut into ranges of nearly equal length, one per entry of `replicas`; with the
/// placement that the kind expects where workers hold several stages.
inline plan::Plan plan_for(const model::Model& model, const std::string& strategy,
                           std::vector<int> replicas, int64_t micro_batches, int chunks = 1) {
  const plan::Strategy kind = plan::parse_scheduled_strategy(strategy);
  plan::Plan plan;
  plan.strategy = kind;
  plan.weights = plan::default_policy(kind);
  plan.micro_batches = micro_batches;
  plan.stages.resize(replicas.size());
  const int layers = model.graph().num_layers();
  for (int l = 0; l < layers; ++l) {
    plan.stages[static_cast<size_t>(l) * replicas.size() / static_cast<size_t>(layers)]
        .layers.push_back(model.graph().layer(LayerId{l}).name);
  }
  for (size_t s = 0; s < replicas.size(); ++s) plan.stages[s].replicas = replicas[s];
  plan.worker_of_replica =
      schedule::with_placement(kind, schedule::shape_of(plan, 1), chunks).worker_of_replica;
  return plan;
}

struct ScheduleCase {
  std::string strategy;
  std::vector<int> replicas;
  int64_t micro_batches = 4;
  int chunks = 1;
  std::string weights = {};  ///< the policy; empty: the strategy's own
};

/// Every kind that flushes, with fewer micro-batches than stages, the same number, and more.
inline const std::vector<ScheduleCase>& flush_cases() {
  static const std::vector<ScheduleCase> cases = {
      {"serial", {1}},
      {"dp", {2}},
      {"dp", {3}, 6},
      {"mp", {1, 1, 1}, 1},
      {"gpipe", {1, 1, 1}},
      {"gpipe", {2, 1, 2}, 5},
      {"1f1b-flush", {1, 1, 1, 1}, 2},
      {"1f1b-flush", {2, 1}},
      {"1f1b-flush", {3, 2, 1}, 7},
      {"eager-1f1b", {1, 1, 1}, 6},
      {"interleaved", {1, 1, 1, 1}, 4, 2},
      {"interleaved", {1, 1, 1, 1, 1, 1}, 5, 3},
      {"zb-h1", {1, 1}, 8},
      {"zb-h1", {1, 1, 1}, 2},
      {"zb-h2", {1, 1, 1}, 6},
      {"zb-v", {1, 1, 1, 1}, 6, 2},
      {"v-half", {1, 1, 1, 1, 1, 1}, 7, 2},
      {"v-min", {1, 1, 1, 1}, 6, 2},
      {"dualpipe-v", {1, 1, 1, 1}, 6, 2},
      {"dualpipe", {2, 2, 2, 2}, 8},
      {"chimera", {2, 2}, 4},
      {"chimera", {2, 2, 2, 2}, 8},
  };
  return cases;
}

inline plan::Plan plan_for(const model::Model& model, const ScheduleCase& c) {
  plan::Plan plan = plan_for(model, c.strategy, c.replicas, c.micro_batches, c.chunks);
  if (!c.weights.empty()) plan.weights = plan::parse_weight_policy(c.weights);
  return plan;
}

}  // namespace penstock::train

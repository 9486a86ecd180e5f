// A small network with its plans and options, for the tests of whole runs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "penstock/model/builder.h"
#include "penstock/plan/strategy.h"
#include "penstock/train/trainer.h"

namespace penstock::train {

inline model::Model small_model() {
  model::ModelBuilder net("small");
  model::Value x = net.input({6});
  x = net.tanh(net.linear(x, {.features = 16, .name = "fc1"}));
  x = net.tanh(net.linear(x, {.features = 16, .name = "fc2"}));
  return net.build(net.linear(x, {.features = 3, .name = "fc3"}));
}

/// fc1 .. tanh on the first stage, the rest on the second.
inline plan::Plan two_stages(const std::string& strategy, int64_t micro_batches = 1) {
  const model::Model model = small_model();
  plan::Plan plan;
  plan.strategy = plan::parse_scheduled_strategy(strategy);
  plan.weights = default_policy(plan.strategy);
  plan.micro_batches = micro_batches;
  plan.stages.resize(strategy == "serial" ? 1 : 2);
  for (const auto& layer : model.graph().layers())
    plan.stages[plan.stages.size() > 1 && plan.stages[0].layers.size() >= 2 ? 1 : 0]
        .layers.push_back(layer.name);
  return plan;
}

inline TrainOptions options_for(const std::string& strategy, int64_t epochs,
                                const std::filesystem::path& checkpoint = {}) {
  TrainOptions options;
  options.plan = two_stages(strategy, strategy == "gpipe" ? 4 : 1);
  options.mini_batch_size = 16;
  options.epochs = epochs;
  options.checkpoint = checkpoint;
  return options;
}

}  // namespace penstock::train

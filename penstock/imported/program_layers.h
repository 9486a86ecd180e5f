// The layers of a program: its groups of steps, each with its weights. Internal to imported.
#pragma once

#include <memory>
#include <vector>

#include "penstock/graph/model_graph.h"
#include "penstock/imported/trainable_program.h"
#include "penstock/model/layer.h"

namespace penstock::imported {

struct ProgramLayers {
  std::vector<graph::LayerNode> nodes;
  std::vector<std::shared_ptr<const model::Layer>> layers;
  std::vector<model::Shape> input_shapes;
  graph::ValueRef output;
};

/// Throws ConfigError listing the reasons why it cannot be trained.
ProgramLayers make_layers(const TrainableProgram& program);

}  // namespace penstock::imported

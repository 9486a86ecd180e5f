// Whether a piece is faster than its layers one by one. Internal to compiled.
#pragma once

#include <cstdint>

#include "penstock/imported/piece_steps.h"
#include "penstock/model/model.h"

namespace penstock::compiled {

/// Seconds of a forward and a backward pass, added to gradients that are there: the fastest of a
/// few, in turns.
struct PassSeconds {
  double layers = 0;
  double piece = 0;
};

/// Layers `first` to `last` of a model, which are a piece with these inputs, on this thread with so
/// many intra-op threads. Inputs are random, whole numbers zero, weights the model's first ones.
/// Takes the memory of the layers' weights, gradients, activations and constants meanwhile. Blocks
/// for twelve passes. Throws RuntimeError or c10::Error when an operator fails.
PassSeconds measure_passes(const model::Model& model, LayerId first, LayerId last,
                           const std::vector<imported::PieceSteps::Input>& inputs, int threads);

/// Whether the piece is worth it: it has other rounding than the layers, and its times have some
/// noise.
bool is_worth_it(const PassSeconds& seconds);

}  // namespace penstock::compiled

// Layers of a program as steps for a compiler: what they compute of tensors of fixed sizes, as JSON
// that compiled/compile_piece.py reads.
//
//   const PieceSteps steps = steps_of_piece(model, {.first = LayerId{0}, .last = LayerId{4},
//       .inputs = module.inputs(), ...}, /*samples=*/32);
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "penstock/model/model.h"
#include "penstock/util/files/json.h"

namespace penstock::imported {

/// Some layers of a model, and the values that cross their border.
struct PieceBorder {
  LayerId first;
  LayerId last;
  std::vector<graph::ValueRef> inputs;
  std::vector<bool> input_gradients;  ///< whether the input's gradient is wanted
  std::vector<graph::ValueRef> outputs;
};

struct PieceSteps {
  struct Input {
    model::Shape sizes;  ///< with the batch
    at::ScalarType type = at::kFloat;
  };
  /// "arguments" (weights, buffers, inputs, constants, masks, in this order: name, role, type,
  /// sizes, gradient), "steps", "outputs", "shares_output", "samples". Values have numbers as
  /// names: equal layers make equal text.
  Json text;
  std::vector<Input> inputs;  ///< as the border's
  /// The constants on a device; they live as long as the model's layers.
  std::function<model::Tensors(at::Device)> constants;
  /// What dropouts multiply by, drawn as the layers themselves draw it. `seed`: of the micro-batch.
  std::function<model::Tensors(uint64_t seed)> masks;
};

/// Why there can be no steps of this layer; empty: nothing is known against it.
std::string why_no_steps(const model::Layer& layer);

/// For micro-batches of so many samples, of the sizes that the program was exported with. Throws
/// ConfigError saying why there are no such steps: a layer that is no program's, takes other
/// random numbers than dropout, or has an argument that cannot be written.
PieceSteps steps_of_piece(const model::Model& model, const PieceBorder& border, int64_t samples);

}  // namespace penstock::imported

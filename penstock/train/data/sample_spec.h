// What one sample of a data set is: the inputs of a model, and what its loss compares the output
// with.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "penstock/model/counts_targets.h"
#include "penstock/model/input_spec.h"
#include "penstock/model/loss.h"
#include "penstock/model/model.h"

namespace penstock::train {

struct SampleSpec {
  std::vector<model::InputSpec> inputs;
  model::TargetSpec targets = {};
  /// Of a model that makes its loss of targets among its inputs; otherwise empty.
  model::TargetCount count_targets = {};
};

/// One float32 input of this shape, and a class.
SampleSpec labelled(model::Shape shape, int64_t classes);
/// What the model and the loss take. Throws ConfigError as model::loss_for().
SampleSpec samples_for(const model::Model& model, const model::LossSpec& loss);

/// Of one sample of each input and, last, of the targets.
std::vector<model::Shape> sizes_of(const SampleSpec& sample);

/// Whether it is what image data sets hold: one float32 input, and a class.
bool is_labelled(const SampleSpec& sample);
/// "input_ids (int64, 64), mask (bool, 64); targets (int64, 64)".
std::string describe(const SampleSpec& sample);
/// "float32", as NumPy says it.
std::string type_name(at::ScalarType type);
/// "float32, 3x8x8"; "int64, one number".
std::string describe(at::ScalarType type, const model::Shape& shape);

}  // namespace penstock::train

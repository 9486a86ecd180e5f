// What the operators of a layer keep from the forward to the backward pass, from the formulas of
// their gradients: a product keeps the factor that the other one's gradient needs, a ReLU what it
// made, an addition nothing. For analytic profiles; measured ones look at what is kept
// (profile/saved_values.h). Internal to imported.
//
//   set_saved(parts.work, {parts.inputs, parts.outputs, parts.parameters}, /*batch=*/8, work);
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "penstock/imported/step_work.h"
#include "penstock/profile/operation.h"

namespace penstock::imported {

/// The names of a layer's values.
struct LayerValues {
  const std::vector<std::string>& inputs;
  const std::vector<std::string>& outputs;
  const std::vector<std::string>& parameters;  ///< trained
  const std::vector<std::string>& constants;   ///< frozen weights among them
};

/// Sets what `work` says of kept values, outputs included as there. A value counts once, with those
/// that share its memory; what needs no gradient (frozen weights, constants, whole numbers) is
/// taken to keep nothing for it. Operators that are not known keep what they read and make.
void set_saved(const std::vector<StepWork>& steps, const LayerValues& values, int64_t batch,
               profile::LayerWork& work);

}  // namespace penstock::imported

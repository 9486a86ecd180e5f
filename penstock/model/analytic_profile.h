// A profile without running the model: every layer's operations are counted and priced on a
// device's data sheet, also one that one does not have. How far off this is: docs/profiles.md.
//
//   profile::Profile p = analytic_profile(make_model({.name = "vgg16"}),
//       profile::find_device("v100"), {.batch_size = 128});
#pragma once

#include <cstdint>

#include "penstock/model/model.h"
#include "penstock/model/optimizer.h"
#include "penstock/profile/device_spec.h"
#include "penstock/profile/profile.h"

namespace penstock::model {

struct AnalyticOptions {
  int64_t batch_size = 64;  ///< samples per micro-batch
  OptimizerSpec optimizer = {};
};

/// Same conventions as measure_profile: the loss belongs to the last layer, gradients that meet are
/// added by the layer that made the value, a layer whose inputs need no gradient does not compute
/// one. Output, weight and stash bytes are those that would be measured. Allocates no tensors;
/// O(layers). Pure; thread-safe. Throws ConfigError: no layers, a batch size below 1 or so large
/// that sizes leave the range of 2^60 bytes or times that of 2^60 ns, an unusable device or
/// optimiser.
profile::Profile analytic_profile(const Model& model, const profile::DeviceSpec& device,
                                  const AnalyticOptions& options);

}  // namespace penstock::model

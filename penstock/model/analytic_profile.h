// A profile without running the model: the operations of every layer are counted, and their times
// computed from the data sheet of a device, which one need not have. docs/profiles.md states the
// error.
//
//   profile::Profile p = analytic_profile(make_model({.name = "vgg16"}),
//       profile::find_device("v100"), {.batch_size = 128});
#pragma once

#include <cstdint>

#include "penstock/model/model.h"
#include "penstock/model/optimizer_spec.h"
#include "penstock/profile/device_spec.h"
#include "penstock/profile/profile.h"

namespace penstock::model {

struct AnalyticOptions {
  int64_t batch_size = 64;  ///< samples per micro-batch
  OptimizerSpec optimizer = {};
};

/// Same conventions as measure_profile(): the loss belongs to the last layer, the layer that made a
/// value sums its gradients, a layer whose inputs need no gradient does not compute one. Output,
/// weight and stash bytes equal the measured ones. Allocates no tensors; O(layers). Pure;
/// thread-safe. Throws ConfigError: no layers, a batch size below 1 or so large that sizes exceed
/// 2^60 bytes or times 2^60 ns, an unusable device or optimiser.
profile::Profile analytic_profile(const Model& model, const profile::DeviceSpec& device,
                                  const AnalyticOptions& options);

}  // namespace penstock::model

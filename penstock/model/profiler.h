// Measures a Profile: every layer separately, forward, backward and optimiser step, on random
// inputs.
#pragma once

#include "penstock/model/model.h"
#include "penstock/model/profiler_options.h"
#include "penstock/profile/profile.h"

namespace penstock::model {

/// The model's profile on this machine. The last layer's times include the loss. A first layer
/// whose inputs need no gradient is measured without it; the time of the loss's gradient counts as
/// gradient of the inputs. Blocks for (warmup + 1.5 samples) passes of the whole model, or 1.5
/// least_time if that is longer. Throws ConfigError for a batch size, sample or thread count below
/// 1 and other options out of range, RuntimeError when a layer fails (names it).
profile::Profile measure_profile(const Model& model, const ProfilerOptions& options);

}  // namespace penstock::model

// Measures a Profile: every layer separately, forward, backward and optimiser step, on random
// inputs.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "penstock/model/loss.h"
#include "penstock/model/model.h"
#include "penstock/model/profiler_options.h"
#include "penstock/model/profiling/profiled_loss.h"
#include "penstock/profile/profile.h"
#include "penstock/profile/share.h"

namespace penstock::model {

/// The model's profile on this machine; options.layers is nothing. Layers that do the same work are
/// measured once if options.repeats says so: the first and the last of three or more. If those two
/// differ (profiling/repeats.h), everything is measured again, with each layer of that class. The
/// loss belongs to the layer that makes the first output: its times include it, and
/// LayerCost::loss_ns says how much it is. Without `loss` it is options.loss of random targets, and
/// none (a gradient of ones) for a model with several outputs. `loss` is called by `concurrency`
/// threads at the same time. A first layer whose inputs need no gradient is measured without it;
/// the time of the loss's gradient counts as gradient of the inputs. Blocks for (warmup + 1.5
/// samples) passes of the whole model, or 1.5 least_time if that is longer, or less with
/// `most_time`. Throws ConfigError for a batch size, sample or thread count below 1 and other
/// options out of range, RuntimeError when a layer fails (names it) and when options.stop ends it.
profile::Profile measure_profile(const Model& model, const ProfilerOptions& options,
                                 const std::optional<ProfiledLoss>& loss = {});

/// The same of options.layers. Where their inputs come from other layers, these are random numbers
/// of the same shape and type; gradients from other layers are ones. Throws ConfigError for layers
/// that the model has not, and as measure_profile().
profile::Share measure_share(const Model& model, const ProfilerOptions& options,
                             const std::optional<ProfiledLoss>& loss = {});

/// What measuring each layer takes at least, in bytes, for one worker: its weights with what
/// belongs to them, and its outputs. Saturates.
std::vector<int64_t> bytes_to_measure(const Model& model, const ProfilerOptions& options);

}  // namespace penstock::model

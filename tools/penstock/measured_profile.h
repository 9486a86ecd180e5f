// Measures a model with a progress bar.
#pragma once

#include <optional>

#include "penstock/model/model.h"
#include "penstock/model/profiler.h"
#include "penstock/profile/profile.h"

namespace penstock::tool {

/// model::measure_profile() after a look at the memory that its threads need; the bar is on
/// standard error. Throws as both.
profile::Profile measured_with_progress(const model::Model& model, model::ProfilerOptions options,
                                        const std::optional<model::ProfiledLoss>& loss = {});
/// The same without a bar.
profile::Profile measured_quietly(const model::Model& model, const model::ProfilerOptions& options,
                                  const std::optional<model::ProfiledLoss>& loss = {});

}  // namespace penstock::tool

// Measures a model with a progress bar.
#pragma once

#include "penstock/model/model.h"
#include "penstock/model/profiler_options.h"
#include "penstock/profile/profile.h"

namespace penstock::tool {

/// model::measure_profile() after a look at the memory that its threads need; the bar is on
/// standard error. Throws as both.
profile::Profile measured_with_progress(const model::Model& model, model::ProfilerOptions options);
/// The same without a bar.
profile::Profile measured_quietly(const model::Model& model, const model::ProfilerOptions& options);

}  // namespace penstock::tool

// Measures a model with a progress bar.
#pragma once

#include <optional>
#include <string>

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

/// A line that says so where a profile in a file was measured with CUDA graphs and the run goes
/// without, or the other way round; otherwise nothing.
std::string other_graphs_text(const profile::Profile& profile, const std::string& path,
                              bool has_graphs);

}  // namespace penstock::tool

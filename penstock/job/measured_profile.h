// Measures a model after a look at the memory that its threads need.
#pragma once

#include <optional>
#include <string>

#include "penstock/job/listener.h"
#include "penstock/model/model.h"
#include "penstock/model/profiler.h"
#include "penstock/profile/profile.h"
#include "penstock/profile/share.h"

namespace penstock::job {

/// model::measure_profile(), which tells the listener how far it is. Throws as it and as
/// require_memory_for_threads().
profile::Profile measured_profile(const model::Model& model, model::ProfilerOptions options,
                                  const Listener& listener,
                                  const std::optional<model::ProfiledLoss>& loss = {});

/// The same of options.layers, as model::measure_share().
profile::Share measured_share(const model::Model& model, model::ProfilerOptions options,
                              const Listener& listener,
                              const std::optional<model::ProfiledLoss>& loss = {});

/// A line that says so where a profile in a file was measured with CUDA graphs and the run goes
/// without, or the other way round; otherwise nothing.
std::string other_graphs_text(const profile::Profile& profile, const std::string& path,
                              bool has_graphs);

}  // namespace penstock::job

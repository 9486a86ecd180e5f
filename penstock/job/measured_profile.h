// Measures a model after a look at the memory that its threads need.
#pragma once

#include <optional>
#include <string>

#include "penstock/job/listener.h"
#include "penstock/job/profile_cache.h"
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

/// What the cache has for these options and this model; otherwise nothing.
std::optional<CachedProfile> kept_share(const model::Model& model,
                                        const model::ProfilerOptions& options,
                                        const ProfileCache& cache);
/// A line that says that it was taken.
std::string kept_text(std::chrono::system_clock::time_point measured, const ProfileCache& cache);

/// measured_share(), which the cache keeps, unless other programs slowed it down: they used more
/// than half of the cores that are free and 15 % of the job's own. It says so then. `others`: cores
/// that ranks of the job use meanwhile on this machine.
profile::Share measured_to_keep(const model::Model& model, const model::ProfilerOptions& options,
                                const Listener& listener, const ProfileCache& cache,
                                double others = 0);

/// A line that says so where a profile in a file was measured with CUDA graphs and the run goes
/// without, or the other way round; otherwise nothing.
std::string other_graphs_text(const profile::Profile& profile, const std::string& path,
                              bool has_graphs);

}  // namespace penstock::job

#include "penstock/job/measured_profile.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "penstock/job/thread_memory.h"
#include "penstock/model/device/tensor_memory.h"
#include "penstock/util/numbers/arithmetic.h"
#include "penstock/util/process/busy_others.h"
#include "penstock/util/process/freed_memory.h"

namespace penstock::job {

profile::Profile measured_profile(const model::Model& model, model::ProfilerOptions options,
                                  const Listener& listener,
                                  const std::optional<model::ProfiledLoss>& loss) {
  options.layers.reset();
  return measured_share(model, std::move(options), listener, loss).profile;
}

profile::Share measured_share(const model::Model& model, model::ProfilerOptions options,
                              const Listener& listener,
                              const std::optional<model::ProfiledLoss>& loss) {
  const model::MemoryScope scope(MemoryKind::Profile);
  require_memory_for_threads(saturating_mul(options.concurrency, options.threads));
  std::string obstacle;
  options.on_no_graphs = [&obstacle](const std::string& why) { obstacle = why; };
  if (listener.progress) options.progress = listener.progress("profiling " + model.name());
  profile::Share share = model::measure_share(model, options, loss);
  // Otherwise a run on the same process stays as large as the whole model was.
  give_back_freed_memory();
  options.progress = {};
  if (!obstacle.empty())
    listener.tell(fmt::format("note: measured without CUDA graphs: {}\n", obstacle));
  return share;
}

std::optional<CachedProfile> kept_share(const model::Model& model,
                                        const model::ProfilerOptions& options,
                                        const ProfileCache& cache) {
  std::optional<CachedProfile> kept = cache.find(profile_key(model, options), options);
  if (!kept) return std::nullopt;
  // The key says so, too, but anybody can write the file.
  const profile::LayerRange layers = options.layers.value_or(profile::all_layers(model.graph()));
  if (!(kept->share.profile.graph == model.graph()) || !(kept->share.layers == layers))
    return std::nullopt;
  return kept;
}

std::string kept_text(std::chrono::system_clock::time_point measured, const ProfileCache& cache) {
  return fmt::format(
      "profile: measured {:%Y-%m-%d %H:%M} and kept in {}; --profile-cache new measures again\n",
      fmt::localtime(std::chrono::system_clock::to_time_t(measured)), cache.folder().string());
}

profile::Share measured_to_keep(const model::Model& model, const model::ProfilerOptions& options,
                                const Listener& listener, const ProfileCache& cache,
                                double others) {
  const BusyOthers busy;
  profile::Share share = measured_share(model, options, listener);
  // Cores that nobody of the job needs may be used, half of them: caches and memory are shared.
  const double own = others + static_cast<double>(options.concurrency) * options.threads;
  const double free = std::max(std::thread::hardware_concurrency() - own, 0.0);
  const double used = std::max(busy.cores() - others, 0.0);
  constexpr double kTolerated = 0.15;  // as wide as most intervals of predictions
  if (cache.folder().empty()) return share;
  if (used > kTolerated * own + free / 2) {
    listener.tell(fmt::format(
        "profile: not kept for later runs, since other programs used {:.1f} cores meanwhile: "
        "predictions are of a slower machine than it can be\n",
        used));
    return share;
  }
  const std::string key = profile_key(model, options);
  if (!cache.keep(key, options, share) && !key.empty()) {
    listener.tell(fmt::format(
        "profile: not kept for later runs, since {} cannot be written: expected a folder "
        "(--profile-cache off keeps none)\n",
        cache.folder().string()));
  }
  return share;
}

std::string other_graphs_text(const profile::Profile& profile, const std::string& path,
                              bool has_graphs) {
  if (profile.device_graphs == has_graphs || profile.source != "measured") return {};
  return fmt::format(
      "note: {} was measured {} CUDA graphs, and the run goes {}: expect other times than "
      "predicted\n",
      path, has_graphs ? "without" : "with", has_graphs ? "with" : "without");
}

}  // namespace penstock::job

#include "penstock/job/measured_profile.h"

#include <fmt/format.h>

#include <utility>

#include "penstock/job/thread_memory.h"
#include "penstock/util/numbers/arithmetic.h"

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
  require_memory_for_threads(saturating_mul(options.concurrency, options.threads));
  std::string obstacle;
  options.on_no_graphs = [&obstacle](const std::string& why) { obstacle = why; };
  if (listener.progress) options.progress = listener.progress("profiling " + model.name());
  profile::Share share = model::measure_share(model, options, loss);
  options.progress = {};
  if (!obstacle.empty())
    listener.tell(fmt::format("note: measured without CUDA graphs: {}\n", obstacle));
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

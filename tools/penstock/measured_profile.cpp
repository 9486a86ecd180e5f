#include "tools/penstock/measured_profile.h"

#include <fmt/format.h>

#include <iostream>
#include <string>

#include "penstock/util/arithmetic.h"
#include "tools/penstock/progress.h"
#include "tools/penstock/thread_memory.h"

namespace penstock::tool {

profile::Profile measured_with_progress(const model::Model& model, model::ProfilerOptions options,
                                        const std::optional<model::ProfiledLoss>& loss) {
  ProgressBar bar("profiling " + model.name());
  options.progress = [&bar](int done, int total) { bar.update(done, total); };
  std::string obstacle;
  options.on_no_graphs = [&obstacle](const std::string& why) { obstacle = why; };
  profile::Profile profile = measured_quietly(model, options, loss);
  bar.finish();
  if (!obstacle.empty())
    std::cerr << fmt::format("note: measured without CUDA graphs: {}\n", obstacle);
  return profile;
}

profile::Profile measured_quietly(const model::Model& model, const model::ProfilerOptions& options,
                                  const std::optional<model::ProfiledLoss>& loss) {
  require_memory_for_threads(saturating_mul(options.concurrency, options.threads));
  return model::measure_profile(model, options, loss);
}

std::string other_graphs_text(const profile::Profile& profile, const std::string& path,
                              bool has_graphs) {
  if (profile.device_graphs == has_graphs || profile.source != "measured") return {};
  return fmt::format(
      "note: {} was measured {} CUDA graphs, and the run goes {}: expect other times than "
      "predicted\n",
      path, has_graphs ? "without" : "with", has_graphs ? "with" : "without");
}

}  // namespace penstock::tool

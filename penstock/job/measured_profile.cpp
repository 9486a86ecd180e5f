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

std::vector<int64_t> bytes_to_measure(const model::Model& model,
                                      const model::ProfilerOptions& options) {
  constexpr auto kBytes = static_cast<int64_t>(sizeof(float));
  // Two versions, gradients and their sums, and the optimiser's state.
  const auto copies = 4 + static_cast<int64_t>(num_states(options.optimizer));
  std::vector<int64_t> bytes;
  for (int l = 0; l < model.graph().num_layers(); ++l) {
    int64_t numbers = saturating_mul(model.parameter_count(LayerId{l}), copies);
    for (const model::Shape& shape : model.output_shapes(LayerId{l})) {
      int64_t output = options.batch_size;
      for (const int64_t size : shape) output = saturating_mul(output, size);
      numbers = saturating_add(numbers, output);
    }
    bytes.push_back(saturating_mul(numbers, kBytes));
  }
  return bytes;
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

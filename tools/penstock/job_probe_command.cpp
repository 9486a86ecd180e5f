// penstock probe as a rank of a job: all ranks measure themselves at the same time, and the links
// between them; rank 0 writes the cluster file.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "penstock/probe/probe.h"
#include "penstock/util/error.h"
#include "tools/penstock/command.h"
#include "tools/penstock/job.h"
#include "tools/penstock/job_probe.h"
#include "tools/penstock/probe_arguments.h"
#include "tools/penstock/progress.h"

namespace penstock::tool {

namespace {

/// Of --seconds: the links of a host, those between hosts, and the workers.
constexpr int kParts = 3;

void check(const ProbeArguments& options, const CLI::App& app) {
  check_output("--output", options.output);
  for (const char* name : {"--transport", "--size"}) {
    if (app.get_option(name)->empty()) continue;
    throw ConfigError(std::string(name) +
                      ": expected nothing inside a job, where the links between its ranks are "
                      "measured as they are");
  }
  if (!(options.probe.seconds >= 0.3 && options.probe.seconds <= 600)) {
    throw ConfigError(fmt::format("--seconds: expected 0.3 to 600 inside a job, found {}",
                                  options.probe.seconds));
  }
  if (options.probe.workers < 0) throw ConfigError("--workers: expected at least 1");
}

JobProbe probe_job(Job& job, ProbeArguments& options) {
  const double seconds = options.probe.seconds / kParts;
  if (options.probe.workers == 0) options.probe.workers = 1;
  options.probe.seconds = std::max(seconds, 0.1);
  options.probe.with_processes = false;
  const auto bar = job.is_first() ? std::make_unique<ProgressBar>("probing") : nullptr;
  if (bar) {
    bar->update(0, kParts, "links");
    options.probe.progress = [&](int done, int total, const std::string& what) {
      bar->update((kParts - 1) * total + done, kParts * total, what);
    };
  }
  JobProbe result{
      .links = job.measure_links(std::chrono::milliseconds(static_cast<int64_t>(1000 * seconds)),
                                 options.probe.workers),
      .ranks = {},
      .workers_per_rank = options.probe.workers};
  const bool trains = job.rank() < result.links.ranks;
  const std::vector<std::string> texts = job.together(
      [&] { return trains ? encode(rank_probe(probe::probe(options.probe))) : std::string(); });
  for (int r = 0; r < result.links.ranks; ++r)
    result.ranks.push_back(decode(texts[static_cast<size_t>(r)]));
  if (bar) bar->finish();
  return result;
}

int run(ProbeArguments& options, const CLI::App& app) {
  check(options, app);
  const std::unique_ptr<Job> job = Job::join();
  if (!job) throw ConfigError("expected a job of several ranks: run `penstock probe`");
  check_same_options(*job, app);
  const JobProbe result = probe_job(*job, options);
  if (!job->is_first()) return kExitYes;
  write_probe(options, result);
  return kExitYes;
}

}  // namespace

Command probe_command(CLI::App& parent, char**) {
  auto arguments = std::make_shared<ProbeArguments>();
  CLI::App* app = add_probe(parent, *arguments);
  return {app, [arguments, app]() { return run(*arguments, *app); }};
}

}  // namespace penstock::tool

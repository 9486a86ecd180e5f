// penstock probe as the training part runs it. As a rank of a job: all ranks measure themselves at
// the same time, and the links between them; rank 0 writes the cluster file. And the GPUs of this
// machine.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "penstock/job/device_probe.h"
#include "penstock/job/job.h"
#include "penstock/job/worker_devices.h"
#include "penstock/launch/job_environment.h"
#include "penstock/model/device/devices.h"
#include "penstock/probe/job_probe.h"
#include "penstock/probe/probe.h"
#include "penstock/report/console/progress_bar.h"
#include "penstock/util/error.h"
#include "penstock/util/text/units.h"
#include "tools/penstock/command/command.h"
#include "tools/penstock/command/option_values.h"
#include "tools/penstock/probe_arguments.h"

namespace penstock::tool {

namespace {

/// Of --seconds: the links of a host, those between hosts, and the workers.
constexpr int kParts = 3;

void check(const ProbeArguments& options, const CLI::App& app) {
  check_output("--output", options.output);
  for (const char* name : {"--transport", "--size", "--device"}) {
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

probe::JobProbe probe_job(job::Job& job, ProbeArguments& options) {
  const double seconds = options.probe.seconds / kParts;
  if (options.probe.workers == 0) options.probe.workers = 1;
  options.probe.seconds = std::max(seconds, 0.1);
  options.probe.with_processes = false;
  const auto bar = job.is_first() ? std::make_unique<report::ProgressBar>("probing") : nullptr;
  if (bar) {
    bar->update(0, kParts, "links");
    options.probe.progress = [&](int done, int total, const std::string& what) {
      bar->update((kParts - 1) * total + done, kParts * total, what);
    };
  }
  probe::JobProbe result{
      .links = job.measure_links(std::chrono::milliseconds(static_cast<int64_t>(1000 * seconds)),
                                 options.probe.workers, /*stop=*/nullptr),
      .ranks = {},
      .workers_per_rank = options.probe.workers};
  const bool trains = job.rank() < result.links.ranks;
  const std::vector<std::string> texts = job.together([&] {
    return trains ? probe::encode(probe::rank_probe(probe::probe(options.probe))) : std::string();
  });
  for (int r = 0; r < result.links.ranks; ++r)
    result.ranks.push_back(probe::decode(texts[static_cast<size_t>(r)]));
  if (bar) bar->finish();
  return result;
}

std::vector<at::Device> gpus_of(const std::string& option) {
  std::vector<at::Device> gpus;
  for (const cluster::DeviceName& name :
       job::own_devices(option, /*local_rank=*/0, /*local_ranks=*/1)) {
    if (name.is_cpu())
      throw ConfigError(fmt::format("{}: expected GPUs alone, or cpu alone", option));
    const at::Device gpu = job::device_of(name);
    if (std::find(gpus.begin(), gpus.end(), gpu) != gpus.end())
      throw ConfigError(fmt::format("{}: {} is there twice", option, gpu.str()));
    gpus.push_back(gpu);
  }
  return gpus;
}

int run_on_devices(ProbeArguments& options, const CLI::App& app) {
  check_output("--output", options.output);
  for (const char* name : {"--transport", "--workers"}) {
    if (app.get_option(name)->empty()) continue;
    throw ConfigError(std::string(name) +
                      ": expected nothing beside --device, where each GPU is a worker");
  }
  options.probe.message_bytes = parse_option("--size", options.size, parse_bytes);
  const std::vector<at::Device> gpus = parse_option("--device", options.device, gpus_of);
  report::ProgressBar bar("probing");
  options.probe.progress = [&bar](int done, int total, const std::string& what) {
    bar.update(done, total, what);
  };
  const job::DeviceProbe result =
      job::probe_devices(model::installed_devices(), gpus, options.probe);
  bar.finish();
  write_probe(options, result);
  return kExitYes;
}

int run_training_probe(ProbeArguments& options, const CLI::App& app) {
  const auto own = launch::own_job();
  if (!own || own->ranks == 1) return run_on_devices(options, app);
  check(options, app);
  const std::unique_ptr<job::Job> job =
      job::Job::join({.command = "probe", .listener = job::console_listener()});
  check_same_options(*job, option_values(app));
  const probe::JobProbe result = probe_job(*job, options);
  if (!job->is_first()) return kExitYes;
  write_probe(options, result);
  return kExitYes;
}

}  // namespace

Command probe_command(CLI::App& parent, char**) {
  auto arguments = std::make_shared<ProbeArguments>();
  CLI::App* app = add_probe(parent, *arguments);
  return {app, [arguments, app]() { return run_training_probe(*arguments, *app); }};
}

}  // namespace penstock::tool

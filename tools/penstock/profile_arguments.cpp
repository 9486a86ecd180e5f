#include "tools/penstock/profile_arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "penstock/cluster/device_name.h"
#include "penstock/profile/device_spec.h"
#include "penstock/util/json.h"
#include "penstock/util/printable.h"
#include "penstock/util/units.h"
#include "tools/penstock/optimizer_option.h"
#include "tools/penstock/output_files.h"
#include "tools/penstock/precision_option.h"

namespace penstock::tool {

namespace {

constexpr int64_t kMostPasses = 1'000'000;
constexpr int64_t kMostThreads = 1024;

/// Instead of a profile: no model is needed.
void list_devices(bool as_json) {
  Json list = Json::array();
  std::string table =
      fmt::format("{:<10} {:>14} {:>12} {:>9}\n", "device", "single prec.", "bandwidth", "memory");
  for (const profile::DeviceSpec& device : profile::builtin_devices()) {
    list.push_back({{"name", device.name},
                    {"flops_per_s", device.flops_per_s},
                    {"bandwidth_bytes_per_s", device.bandwidth_bytes_per_s},
                    {"memory_bytes", device.memory_bytes}});
    table += fmt::format("{:<10} {:>7.1f} GFLOP/s {:>12} {:>9}\n", device.name,
                         static_cast<double>(device.flops_per_s) / 1e9,
                         format_bandwidth(device.bandwidth_bytes_per_s),
                         device.memory_bytes == 0 ? "-" : format_bytes(device.memory_bytes));
  }
  write_output("", as_json ? Json{{"devices", std::move(list)}}.dump() + "\n" : table);
}

void add_measuring_options(CLI::App& app, model::ProfilerOptions& profiler, CLI::Option& analytic) {
  profiler.concurrency = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 2u));
  profiler.least_time = std::chrono::milliseconds(1000);
  profiler.wanted_error = 0.02;
  app.add_option_function<int>(
         "--samples",
         [&profiler](int samples) {
           profiler.samples = samples;
           profiler.least_time = {};
           profiler.wanted_error = 0;
           profiler.most_time = {};
         },
         "Timed passes, of which the mean is reported (default: 10 or more, for at least a "
         "second, until the mean is known to 2 % or ten seconds have passed; fewer if they took "
         "longer than a minute)")
      ->check(whole_number(1, kMostPasses))
      ->excludes(&analytic);
  app.add_option(
         "--warmup", profiler.warmup,
         "Untimed passes before the timed ones, at least; without --samples more while times "
         "fall")
      ->check(whole_number(0, kMostPasses))
      ->capture_default_str()
      ->excludes(&analytic);
  app.add_option("--threads", profiler.threads, "Threads per worker")
      ->check(whole_number(1, kMostThreads))
      ->capture_default_str()
      ->excludes(&analytic);
  app.add_option("--concurrency", profiler.concurrency,
                 "Workers that measure at the same time, to include contention for memory "
                 "bandwidth as in a real run")
      ->check(whole_number(1, kMostThreads))
      ->capture_default_str()
      ->excludes(&analytic);
}

}  // namespace

CLI::App* add_profile(CLI::App& parent, ProfileArguments& options) {
  CLI::App* app = parent.add_subcommand(
      "profile", "Measure or estimate every layer of a model: forward, backward, bytes");
  add_model_options(*app, options.model);
  CLI::Option* const batch =
      app->add_option("--batch-size", options.profiler.batch_size, "Samples per micro-batch")
          ->check(whole_number(1))
          ->capture_default_str();
  add_optimizer(*app, options.profiler.optimizer.kind, ": the optimiser whose step is measured");
  add_loss_options(*app, options.profiler.loss);
  CLI::Option* const precision =
      add_precision(*app, options.precision, "Numbers in which the model computes");
  precision->capture_default_str();
  CLI::Option* const analytic = app->add_flag("--analytic", options.analytic,
                                              "Estimate the times on --device from the model's "
                                              "operations instead of measuring on this machine");
  app->add_option(
      "--device", options.device,
      "What is measured: cpu (default) or a GPU such as cuda:0. With --analytic: a name "
      "of --list-devices, or a TOML file (docs/profiles.md)");
  precision->excludes(analytic);
  app->add_flag("--cuda-graphs", options.profiler.device_graphs,
                "On a GPU: measure passes that are CUDA graphs, for train --cuda-graphs")
      ->excludes(analytic);
  add_measuring_options(*app, options.profiler, *analytic);
  app->add_option("--task", options.task,
                  "For penstock stream: single frames, and the model and the loss of this task "
                  "(reconstruct, predict, pixels or label)")
      ->excludes(batch)
      ->excludes(analytic)
      ->excludes(app->get_option("--loss"));
  app->add_option("-o,--output", options.output, "File to write the profile to (JSON)");
  add_common(*app, options);
  // After --json: options are handed over in the order of their definition, this one before --model
  // is missed.
  app->add_flag_callback(
      "--list-devices",
      [&options] {
        list_devices(options.json);
        throw CLI::Success();
      },
      "List the built-in devices and exit");
  return app;
}

void check(const ProfileArguments& arguments) {
  check_outputs({{"--output", arguments.output}},
                {{"--model", arguments.model.name}, {"--device", arguments.device}});
  if (arguments.analytic && arguments.device.empty())
    throw ConfigError("--analytic needs --device: a name of --list-devices, or a TOML file");
  if (arguments.analytic || arguments.device.empty()) return;
  try {
    if (cluster::parse_device_names(arguments.device).size() == 1) return;
  } catch (const ConfigError&) {
  }
  throw ConfigError(
      fmt::format("--device: expected cpu or a GPU such as cuda:0, found '{}'; what other devices "
                  "would take is estimated with --analytic",
                  printable(arguments.device)));
}

}  // namespace penstock::tool

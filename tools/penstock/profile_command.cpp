// penstock profile: what every layer of a model costs, measured on this machine or estimated for a
// device that is not at hand.
#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <thread>

#include "penstock/model/analytic_profile.h"
#include "penstock/model/profiler.h"
#include "penstock/profile/device_spec.h"
#include "penstock/report/report.h"
#include "penstock/util/error.h"
#include "penstock/util/json.h"
#include "penstock/util/units.h"
#include "tools/penstock/command.h"
#include "tools/penstock/model_options.h"
#include "tools/penstock/progress.h"

namespace penstock::tool {

namespace {

struct Options : CommonOptions {
  ModelOptions model;
  model::ProfilerOptions profiler;
  bool analytic = false;
  std::string device;
  std::string output;
};

profile::Profile measure(Options& options, const model::Model& model) {
  ProgressBar bar("profiling " + model.name());
  options.profiler.seed = options.seed;
  options.profiler.progress = [&bar](int done, int total) { bar.update(done, total); };
  profile::Profile profile = model::measure_profile(model, options.profiler);
  bar.finish();
  return profile;
}

profile::Profile estimate(const Options& options, const model::Model& model) {
  if (options.device.empty())
    throw ConfigError("--analytic needs --device: a name of --list-devices, or a TOML file");
  const profile::DeviceSpec device =
      parse_option("--device:", options.device,
                   [](const std::string& name) { return profile::find_device(name); });
  return model::analytic_profile(
      model, device,
      {.batch_size = options.profiler.batch_size, .optimizer = options.profiler.optimizer});
}

int run(Options& options) {
  refuse_standard_output("--output", options.output);
  const model::Model model = make_model(options.model);
  const profile::Profile profile =
      options.analytic ? estimate(options, model) : measure(options, model);
  const std::string document = profile::to_json(profile);
  if (!options.output.empty()) write_output(options.output, document);
  write_output("", options.json ? parse_json(document, "profile").dump() + "\n"
                                : report::profile_table(profile));
  return kExitYes;
}

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
  app.add_option_function<int>(
         "--samples",
         [&profiler](int samples) {
           profiler.samples = samples;
           profiler.least_time = {};
         },
         "Timed passes; their mean is reported (default: at least 10, and for a second)")
      ->excludes(&analytic);
  app.add_option("--warmup", profiler.warmup, "Untimed passes before them")
      ->capture_default_str()
      ->excludes(&analytic);
  app.add_option("--threads", profiler.threads, "Threads per worker")
      ->capture_default_str()
      ->excludes(&analytic);
  app.add_option("--concurrency", profiler.concurrency,
                 "Workers that measure at the same time, so that shared memory bandwidth is "
                 "charged as in a real run")
      ->capture_default_str()
      ->excludes(&analytic);
}

}  // namespace

Command profile_command(CLI::App& parent) {
  auto options = std::make_shared<Options>();
  CLI::App* app = parent.add_subcommand(
      "profile", "Measure or estimate every layer of a model: forward, backward, bytes");
  add_model_options(*app, options->model);
  app->add_option("--batch-size", options->profiler.batch_size, "Samples per micro-batch")
      ->capture_default_str();
  app->add_option("--optimizer", options->profiler.optimizer.name,
                  "sgd or adam: whose step is charged")
      ->capture_default_str();
  CLI::Option* const analytic = app->add_flag(
      "--analytic", options->analytic,
      "Estimate the times on --device from the model's operations instead of measuring here");
  app->add_option("--device", options->device,
                  "With --analytic: a name of --list-devices, or a TOML file (docs/profiles.md)")
      ->needs(analytic);
  add_measuring_options(*app, options->profiler, *analytic);
  app->add_option("-o,--output", options->output, "File to write the profile to (JSON)");
  add_common(*app, *options);
  // After --json: options are handed over in the order of their definition, this one before --model
  // is missed.
  app->add_flag_callback(
      "--list-devices",
      [options] {
        list_devices(options->json);
        throw CLI::Success();
      },
      "Print the devices that are built in, and nothing else");
  return {app, [options]() { return run(*options); }};
}

}  // namespace penstock::tool

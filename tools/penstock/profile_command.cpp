// penstock profile: measures what every layer of a model costs on this machine.
#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <thread>

#include "penstock/model/profiler.h"
#include "penstock/report/report.h"
#include "penstock/util/error.h"
#include "penstock/util/json.h"
#include "tools/penstock/command.h"
#include "tools/penstock/model_options.h"
#include "tools/penstock/progress.h"

namespace penstock::tool {

namespace {

struct Options : CommonOptions {
  ModelOptions model;
  model::ProfilerOptions profiler;
  std::string output;
};

int run(Options& options) {
  refuse_standard_output("--output", options.output);
  const model::Model model = make_model(options.model);
  ProgressBar bar("profiling " + model.name());
  options.profiler.seed = options.seed;
  options.profiler.progress = [&bar](int done, int total) { bar.update(done, total); };
  const profile::Profile profile = model::measure_profile(model, options.profiler);
  bar.finish();
  const std::string document = profile::to_json(profile);
  if (!options.output.empty()) write_output(options.output, document);
  write_output("", options.json ? parse_json(document, "profile").dump() + "\n" : report::profile_table(profile));
  return kExitYes;
}

}  // namespace

Command profile_command(CLI::App& parent) {
  auto options = std::make_shared<Options>();
  CLI::App* app = parent.add_subcommand("profile", "Measure every layer of a model: forward, backward, bytes");
  add_model_options(*app, options->model);
  app->add_option("--batch-size", options->profiler.batch_size, "Samples per micro-batch")->capture_default_str();
  app->add_option("--samples", options->profiler.samples, "Timed passes; medians are reported")->capture_default_str();
  app->add_option("--warmup", options->profiler.warmup, "Untimed passes before them")->capture_default_str();
  app->add_option("--threads", options->profiler.threads, "Threads per worker")->capture_default_str();
  options->profiler.concurrency = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 2u));
  app->add_option("--concurrency", options->profiler.concurrency,
                  "Workers that measure at the same time, so that shared memory bandwidth is charged as in a real run")
      ->capture_default_str();
  app->add_option("--optimizer", options->profiler.optimizer.name, "sgd or adam: whose step is measured")->capture_default_str();
  app->add_option("-o,--output", options->output, "File to write the profile to (JSON)");
  add_common(*app, *options);
  return {app, [options]() { return run(*options); }};
}

}  // namespace penstock::tool

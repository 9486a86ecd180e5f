// penstock profile: what every layer of a model costs, measured on this machine or estimated for a
// device that is not at hand.
#include <memory>

#include "penstock/model/analytic_profile.h"
#include "penstock/model/profiler.h"
#include "penstock/profile/device_spec.h"
#include "penstock/report/report.h"
#include "penstock/util/arithmetic.h"
#include "penstock/util/json.h"
#include "tools/penstock/chosen_model.h"
#include "tools/penstock/command.h"
#include "tools/penstock/profile_arguments.h"
#include "tools/penstock/progress.h"
#include "tools/penstock/thread_memory.h"

namespace penstock::tool {

namespace {

profile::Profile measure(ProfileArguments& options, const model::Model& model) {
  require_memory_for_threads(
      saturating_mul(options.profiler.concurrency, options.profiler.threads));
  ProgressBar bar("profiling " + model.name());
  options.profiler.seed = options.seed;
  options.profiler.progress = [&bar](int done, int total) { bar.update(done, total); };
  profile::Profile profile = model::measure_profile(model, options.profiler);
  bar.finish();
  return profile;
}

profile::Profile estimate(const ProfileArguments& options, const model::Model& model) {
  const profile::DeviceSpec device =
      parse_option("--device:", options.device,
                   [](const std::string& name) { return profile::find_device(name); });
  return model::analytic_profile(
      model, device,
      {.batch_size = options.profiler.batch_size, .optimizer = options.profiler.optimizer});
}

int run(ProfileArguments& options) {
  check(options);
  const model::Model model = chosen_model(options.model);
  const profile::Profile profile =
      options.analytic ? estimate(options, model) : measure(options, model);
  const std::string document = profile::to_json(profile);
  if (!options.output.empty()) write_output(options.output, document);
  write_output("", options.json ? parse_json(document, "profile").dump() + "\n"
                                : report::profile_table(profile));
  return kExitYes;
}

}  // namespace

Command profile_command(CLI::App& parent, char**) {
  auto arguments = std::make_shared<ProfileArguments>();
  return {add_profile(parent, *arguments), [arguments]() { return run(*arguments); }};
}

}  // namespace penstock::tool

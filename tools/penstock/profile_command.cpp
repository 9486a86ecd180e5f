// penstock profile: what every layer of a model costs, measured on this machine, on those of a job,
// or estimated for a device that is not at hand.
#include <fmt/format.h>

#include <iostream>
#include <memory>

#include "penstock/model/analytic_profile.h"
#include "penstock/profile/device_spec.h"
#include "penstock/report/report.h"
#include "penstock/util/json.h"
#include "tools/penstock/chosen_model.h"
#include "tools/penstock/command.h"
#include "tools/penstock/job.h"
#include "tools/penstock/job_profile.h"
#include "tools/penstock/measured_profile.h"
#include "tools/penstock/profile_arguments.h"

namespace penstock::tool {

namespace {

profile::Profile estimate(const ProfileArguments& options, const model::Model& model) {
  const profile::DeviceSpec device =
      parse_option("--device:", options.device,
                   [](const std::string& name) { return profile::find_device(name); });
  return model::analytic_profile(
      model, device,
      {.batch_size = options.profiler.batch_size, .optimizer = options.profiler.optimizer});
}

/// All ranks measure at the same time; their mean.
profile::Profile measure_as_job(Job& job, ProfileArguments& options, const model::Model& model,
                                const CLI::App& app) {
  check_same_options(job, app);
  // A rank is a worker unless the user knows better.
  if (app.get_option("--concurrency")->empty()) options.profiler.concurrency = 1;
  const int most = ranks_that_measure(options.profiler.concurrency, options.profiler.threads);
  const JobProfile measured = measure_together(job, most, [&] {
    return job.is_first() ? measured_with_progress(model, options.profiler)
                          : measured_quietly(model, options.profiler);
  });
  if (!job.is_first()) return measured.profile;
  const int training = job.ranks() - job.servers();
  if (measured.measured < training) {
    std::cerr << fmt::format("{} of {} ranks measured: the others would have shared their cores\n",
                             measured.measured, training);
  }
  if (const std::string text = speeds_text(measured); !text.empty()) std::cerr << text << '\n';
  return measured.profile;
}

int run(ProfileArguments& options, const CLI::App& app) {
  check(options);
  options.profiler.seed = options.seed;
  const std::unique_ptr<Job> job = options.analytic ? nullptr : Job::join();
  const model::Model model = chosen_model(options.model);
  const profile::Profile profile = options.analytic ? estimate(options, model)
                                   : job            ? measure_as_job(*job, options, model, app)
                                         : measured_with_progress(model, options.profiler);
  if (job && !job->is_first()) return kExitYes;
  const std::string document = profile::to_json(profile);
  if (!options.output.empty()) write_output(options.output, document);
  write_output("", options.json ? parse_json(document, "profile").dump() + "\n"
                                : report::profile_table(profile));
  return kExitYes;
}

}  // namespace

Command profile_command(CLI::App& parent, char**) {
  auto arguments = std::make_shared<ProfileArguments>();
  CLI::App* app = add_profile(parent, *arguments);
  return {app, [arguments, app]() { return run(*arguments, *app); }};
}

}  // namespace penstock::tool

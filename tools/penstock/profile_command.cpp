// penstock profile: what every layer of a model costs, measured on this machine, on those of a job,
// or estimated for a device that is not at hand.
#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>
#include <utility>

#include "penstock/job/chosen_model.h"
#include "penstock/job/job.h"
#include "penstock/job/measured_profile.h"
#include "penstock/job/profile_together.h"
#include "penstock/job/worker_devices.h"
#include "penstock/launch/job_environment.h"
#include "penstock/model/analytic_profile.h"
#include "penstock/profile/device_spec.h"
#include "penstock/report/report.h"
#include "penstock/stream/profiled_loss.h"
#include "penstock/util/json.h"
#include "tools/penstock/command.h"
#include "tools/penstock/option_values.h"
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

/// What is measured: a model, and its loss where it is not the usual one.
struct Subject {
  model::Model model;
  std::optional<model::ProfiledLoss> loss;
};

Subject subject_of(ProfileArguments& options) {
  if (options.task.empty()) {
    Subject subject{job::chosen_model(options.model), {}};
    options.profiler.loss = model::loss_for(subject.model, options.profiler.loss);
    return subject;
  }
  constexpr int kClasses = 4;  // of the generated scene
  constexpr int kMostClasses = 255;
  const stream::Task task = parse_option("--task", options.task, stream::parse_task);
  const model::Shape frame = job::chosen_input(options.model);
  const bool is_frame = frame.size() == 3 && std::ranges::all_of(frame, [](int64_t side) {
                          return side <= frames::kMaxFrameSide;
                        });
  if (!is_frame) {
    throw ConfigError(
        "--task: expected --input with channels, height and width of a frame, as in 3x120x160");
  }
  const frames::FrameSize size{.width = static_cast<int>(frame[2]),
                               .height = static_cast<int>(frame[1]),
                               .channels = static_cast<int>(frame[0])};
  frames::check_frame_size(size, "--input");
  if (options.model.classes > kMostClasses)
    throw ConfigError(fmt::format("--classes: at most {}", kMostClasses));
  const int classes = !needs_labels(task)         ? 0
                      : options.model.classes > 0 ? static_cast<int>(options.model.classes)
                                                  : kClasses;
  options.profiler.batch_size = 1;
  model::Model model = job::model_of_task(options.model, task, frame, classes);
  return {std::move(model),
          stream::profiled_loss(task, {.channels = size.channels, .classes = classes}, size,
                                options.seed)};
}

/// All ranks measure at the same time; their mean.
profile::Profile measure_as_job(job::Job& job, ProfileArguments& options, const Subject& subject,
                                const CLI::App& app) {
  check_same_options(job, option_values(app));
  // A rank is a worker unless the user knows better.
  if (app.get_option("--concurrency")->empty()) options.profiler.concurrency = 1;
  const int most = job::ranks_that_measure(options.profiler.concurrency, options.profiler.threads);
  const job::JobProfile measured = measure_together(job, most, [&] {
    const job::Listener listener = job.is_first() ? job::console_listener() : job::Listener{};
    return job::measured_profile(subject.model, options.profiler, listener, subject.loss);
  });
  if (!job.is_first()) return measured.profile;
  const int training = job.ranks() - job.servers();
  if (measured.measured < training) {
    std::cerr << fmt::format("{} of {} ranks measured: the others would have shared their cores\n",
                             measured.measured, training);
  }
  std::cerr << speeds_text(measured);
  return measured.profile;
}

int run_profile(ProfileArguments& options, const CLI::App& app) {
  check(options);
  options.profiler.seed = options.seed;
  if (!options.analytic && !options.device.empty()) {
    const auto own = launch::own_job();
    options.profiler.device = parse_option("--device", options.device, [&](const auto& text) {
      return job::device_to_profile(
          job::own_devices(text, own ? own->local_rank : 0, own ? own->local_ranks : 1));
    });
    if (!options.profiler.device.empty() && app.get_option("--concurrency")->empty())
      options.profiler.concurrency = 1;
  }
  if (options.profiler.device_graphs && options.profiler.device.empty())
    throw ConfigError(
        "--cuda-graphs: graphs are those of GPUs, and the CPU is measured (--device)");
  options.profiler.precision = parse_precision(options.precision);
  const std::unique_ptr<job::Job> job =
      options.analytic
          ? nullptr
          : job::Job::join({.command = "profile", .listener = job::console_listener()});
  const Subject subject = subject_of(options);
  const profile::Profile profile =
      options.analytic ? estimate(options, subject.model)
      : job            ? measure_as_job(*job, options, subject, app)
            : job::measured_profile(subject.model, options.profiler, job::console_listener(),
                                    subject.loss);
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
  return {app, [arguments, app]() { return run_profile(*arguments, *app); }};
}

}  // namespace penstock::tool

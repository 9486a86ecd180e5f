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
#include "penstock/job/run_data.h"
#include "penstock/job/worker_devices.h"
#include "penstock/launch/job_environment.h"
#include "penstock/model/analytic_profile.h"
#include "penstock/profile/device_spec.h"
#include "penstock/profile/share.h"
#include "penstock/shard/tensor_shares.h"
#include "penstock/stream/profiled_loss.h"
#include "tools/penstock/command/command.h"
#include "tools/penstock/command/option_values.h"
#include "tools/penstock/profile_arguments.h"

namespace penstock::tool {

namespace {

/// Whether the first input is a sequence of tokens, which an embedding looks up.
bool reads_tokens(const model::Model& model) {
  if (model.input_shapes().empty() || model.input_shapes().front().size() != 1) return false;
  const auto& layers = model.graph().layers();
  return std::any_of(layers.begin(), layers.end(), [](const graph::LayerNode& layer) {
    return layer.kind.find("embedding") != std::string::npos &&
           std::find(layer.inputs.begin(), layer.inputs.end(), graph::ValueRef::model_input(0)) !=
               layer.inputs.end();
  });
}

profile::Profile estimate(const options::ProfileRequest& request, const model::Model& model) {
  const profile::DeviceSpec device =
      parse_option("--device:", request.run.device,
                   [](const std::string& name) { return profile::find_device(name); });
  profile::Profile estimated = model::analytic_profile(
      model, device, {.batch_size = request.run.batch_size, .optimizer = request.optimizer});
  if (reads_tokens(model)) estimated.lengths = {{.share = 1, .input_shapes = model.input_shapes()}};
  return estimated;
}

/// What is measured, and how: a model, and its loss where it is not the usual one.
struct Subject {
  model::Model model;
  std::optional<model::ProfiledLoss> loss;
  model::ProfilerOptions profiler;
};

/// Of a stream's task, from its single frames.
Subject subject_of_task(const options::ProfileRequest& request, frames::Task task) {
  constexpr int kClasses = 4;  // of the generated scene
  constexpr int kMostClasses = 255;
  const model::Shape frame = job::chosen_input(request.model);
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
  if (request.model.classes > kMostClasses)
    throw ConfigError(fmt::format("--classes: at most {}", kMostClasses));
  const int classes = !needs_labels(task)         ? 0
                      : request.model.classes > 0 ? static_cast<int>(request.model.classes)
                                                  : kClasses;
  model::ProfilerOptions profiler = options::profiler_options_of(request);
  profiler.batch_size = 1;
  return {job::model_of_task(request.model, task, frame, classes),
          stream::profiled_loss(task, {.channels = size.channels, .classes = classes}, size,
                                request.run.seed),
          std::move(profiler)};
}

Subject subject_of(const options::ProfileRequest& request) {
  if (request.run.task) return subject_of_task(request, *request.run.task);
  model::ProfilerOptions profiler = options::profiler_options_of(request);
  const std::string& data = request.run.lengths_of;
  model::Model model =
      data.empty() ? job::chosen_model(request.model) : job::model_for_data(request.model, data);
  profiler.loss = model::loss_for(model, request.loss);
  if (!data.empty()) {
    options::TrainRequest reads{.model = request.model, .loss = profiler.loss};
    reads.data.name = data;
    profiler.lengths = job::lengths_for(model, *job::data_for(model, reads).train,
                                        {.seed = request.run.seed,
                                         .lengths = train::Lengths::Bucketed,
                                         .mini_batch_size = request.run.batch_size});
  }
  return {std::move(model), {}, std::move(profiler)};
}

/// All ranks measure at the same time, and share the layers; the mean of their hosts.
profile::Share measure_as_job(job::Job& job, const Subject& subject) {
  const model::ProfilerOptions& profiler = subject.profiler;
  const int most = job::ranks_that_measure(profiler.concurrency, profiler.threads);
  const job::JobProfile measured = measure_together(
      job, model::bytes_to_measure(subject.model, profiler), most,
      [&](const profile::LayerRange& layers) {
        const job::Listener listener = job.is_first() ? job::console_listener() : job::Listener{};
        model::ProfilerOptions own = profiler;
        own.layers = layers;
        return job::measured_share(subject.model, std::move(own), listener, subject.loss);
      });
  profile::Share share = profile::whole_share(measured.profile);
  share.measured = measured.measured_layers;
  if (!job.is_first()) return share;
  const int training = job.ranks() - job.servers();
  if (measured.measured < training) {
    std::cerr << fmt::format("{} of {} ranks measured: {}\n", measured.measured, training,
                             share.profile.graph.num_layers() < training
                                 ? "the model has fewer layers"
                                 : "the others would have shared their cores");
  }
  std::cerr << speeds_text(measured);
  return share;
}

/// The GPU that this process measures, as libtorch names it; empty: the CPU, or nothing at all.
/// Throws ConfigError where graphs are asked for and there is none.
std::string measured_device(const options::ProfileRequest& request) {
  std::string device;
  if (!request.run.analytic && !request.run.device.empty()) {
    const auto job = launch::own_job();
    device = parse_option("--device", request.run.device, [&](const auto& text) {
      return job::device_to_profile(
          job::own_devices(text, job ? job->local_rank : 0, job ? job->local_ranks : 1));
    });
  }
  if (request.run.device_graphs && device.empty())
    throw ConfigError(
        "--cuda-graphs: graphs are those of GPUs, and the CPU is measured (--device)");
  return device;
}

int run_profile(const options::ProfileRequest& request, const CLI::App& app) {
  check_profile(request);
  const std::string device = measured_device(request);
  const std::unique_ptr<job::Job> job =
      request.run.analytic
          ? nullptr
          : job::Job::join({.command = "profile", .listener = job::console_listener()});
  Subject subject = subject_of(request);
  subject.profiler.device = device;
  if (job) check_same_options(*job, option_values(app));
  // A GPU, or a rank, is a worker unless the user knows better.
  if (!request.run.concurrency && (job || !device.empty())) subject.profiler.concurrency = 1;
  if (!request.run.layers.empty()) {
    if (job)
      throw ConfigError("--layers: expected nothing inside a job, whose ranks share the layers");
    subject.profiler.layers =
        parse_option("--layers", request.run.layers, [&](const std::string& text) {
          return profile::parse_layers(text, subject.model.graph());
        });
  }
  profile::Share share = request.run.analytic
                             ? profile::whole_share(estimate(request, subject.model))
                         : job ? measure_as_job(*job, subject)
                               : job::measured_share(subject.model, subject.profiler,
                                                     job::console_listener(), subject.loss);
  if (job && !job->is_first()) return kExitYes;
  shard::add_tensor_shares(share.profile, subject.model);
  write_profile(share, request.output);
  return kExitYes;
}

}  // namespace

Command profile_command(CLI::App& parent, char**) {
  auto request = std::make_shared<options::ProfileRequest>();
  CLI::App* app = add_profile(parent, *request);
  return {app, [request, app]() { return run_profile(*request, *app); }};
}

}  // namespace penstock::tool

#include "penstock/job/stream/prepare_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>
#include <utility>

#include "penstock/job/chosen_model.h"
#include "penstock/job/measured_profile.h"
#include "penstock/job/stream/stream_checks.h"
#include "penstock/job/thread_memory.h"
#include "penstock/job/worker_devices.h"
#include "penstock/plan/boundaries.h"
#include "penstock/report/report.h"
#include "penstock/report/text/text.h"
#include "penstock/stream/profiled_loss.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/rounding.h"

namespace penstock::job {

namespace {

int num_stages(const plan::Plan& plan) { return static_cast<int>(plan.stages.size()); }

int own_cores() { return static_cast<int>(std::max(1U, std::thread::hardware_concurrency())); }

bool is_stopped(const PrepareOptions& options) { return options.stop != nullptr && *options.stop; }

void require_float32(const std::string& path, Precision precision) {
  if (precision == Precision::Float32) return;
  throw ConfigError(fmt::format("{} is of precision {}, and streams compute in float32", path,
                                to_string(precision)));
}

void require_uncoded(const std::string& path, const plan::Plan& plan) {
  const std::string codings = plan::boundaries_text(plan);
  if (codings.empty()) return;
  throw ConfigError(fmt::format(
      "{} has boundaries in {}, and a stream's messages travel as they are: expected a plan whose "
      "links are all float32 (penstock plan --boundary float32)",
      path, codings));
}

StreamPlanRequest search_of(const options::StreamRequest& request,
                            const std::vector<cluster::DeviceName>& devices) {
  StreamPlanRequest search{.strategy = request.plan.strategy,
                           .weights = request.plan.weights,
                           .fps = request.plan.fps,
                           .optimizer = request.optimizer,
                           .device = device_to_profile(devices),
                           .device_graphs = request.run.device_graphs};
  const bool on_cpu = search.device.empty();
  if (search.device_graphs && on_cpu) {
    throw ConfigError(fmt::format(
        "--cuda-graphs: graphs are those of GPUs, and all stages are on the CPU (--device {})",
        request.run.device));
  }
  search.workers = request.plan.workers ? static_cast<int>(*request.plan.workers)
                   : on_cpu             ? std::max(1, own_cores() / request.run.threads)
                                        : static_cast<int>(devices.size());
  require_memory_for_threads(int64_t{search.workers} * request.run.threads);
  return search;
}

profile::Profile loaded_profile(const options::StreamRequest& request, const StreamSubject& subject,
                                bool device_graphs, const Listener& listener) {
  const std::string& path = request.plan.profile;
  const model::Model& model = subject.model;
  profile::Profile profile = profile::load_profile(path);
  if (!(profile.graph == model.graph()) || profile.batch_size != 1) {
    throw ConfigError(fmt::format(
        "the profile {} is of '{}' with {} layers, measured on {} per pass; expected '{}' with "
        "{} layers, as it is for this --task, measured on single frames",
        path, profile.model, profile.graph.num_layers(),
        report::plural(profile.batch_size, "sample"), model.name(), model.graph().num_layers()));
  }
  require_float32(path, profile.precision);
  listener.tell(other_graphs_text(profile, path, device_graphs));
  return profile;
}

profile::Profile measured_stream(const options::StreamRequest& request,
                                 const StreamSubject& subject, const StreamPlanRequest& search,
                                 const PrepareOptions& options) {
  model::ProfilerOptions profiler{.batch_size = 1,
                                  .samples = 3,
                                  .least_time = std::chrono::milliseconds(1000),
                                  .threads = request.run.threads,
                                  .seed = request.run.seed,
                                  .optimizer = request.optimizer,
                                  .stop = options.stop};
  profiler.concurrency = std::clamp(own_cores() / profiler.threads, 1, std::max(search.workers, 1));
  if (!search.device.empty()) {
    profiler.device = search.device;
    profiler.device_graphs = search.device_graphs;
    profiler.concurrency = 1;
  }
  const auto loss = stream::profiled_loss(
      subject.task, {.channels = subject.size.channels, .classes = subject.classes}, subject.size,
      request.run.seed);
  options.listener.tell(fmt::format("measuring the {} of '{}' on a frame of {}\n",
                                    report::plural(subject.model.graph().num_layers(), "layer"),
                                    subject.model.name(), to_string(subject.size)));
  return measured_profile(subject.model, profiler, options.listener, loss);
}

/// Nothing: stopped.
std::optional<profile::Profile> stream_profile(const options::StreamRequest& request,
                                               const StreamSubject& subject,
                                               const StreamPlanRequest& search,
                                               const PrepareOptions& options) {
  std::optional<profile::Profile> profile;
  try {
    profile = request.plan.profile.empty()
                  ? measured_stream(request, subject, search, options)
                  : loaded_profile(request, subject, search.device_graphs, options.listener);
  } catch (const RuntimeError&) {
    if (!is_stopped(options)) throw;
  }
  if (is_stopped(options)) return std::nullopt;
  if (!request.plan.profile.empty())
    check_profile_size(*profile, subject.model, subject.task, subject.size, request.plan.profile);
  return profile;
}

plan::Plan given_plan(const std::string& path, const StreamSubject& subject,
                      const Listener& listener) {
  plan::Plan plan = plan::load_plan(path);
  require_float32(path, plan.precision);
  require_uncoded(path, plan);
  check_plan_layers(plan, subject.model, subject.task, path);
  listener.tell(plan_size_warning(plan, subject.model, subject.size, path));
  return plan;
}

/// The stages that share a GPU do not compute at the same time, as the plan takes it.
std::string shared_device_text(const std::vector<at::Device>& device_of_stage) {
  std::map<std::string, int> stages;
  for (const at::Device& device : device_of_stage) {
    if (!device.is_cpu()) ++stages[device.str()];
  }
  for (const auto& [device, count] : stages) {
    if (count > 1)
      return fmt::format("note: {} stages share {}: the rate is predicted for one GPU each\n",
                         count, device);
  }
  return {};
}

/// One tick for every stage and every frame that may wait.
int64_t deadline_of(const options::StreamRequest& request, const StreamSubject& subject,
                    const plan::Plan& plan) {
  if (request.run.deadline_ms > 0) return rounded_down(request.run.deadline_ms * 1e6);
  if (subject.frames_per_second <= 0) return 0;
  const auto frames = static_cast<double>(num_stages(plan) + request.source.queue);
  return rounded_down(frames * 1e9 / subject.frames_per_second);
}

}  // namespace

StreamSubject stream_subject(const options::StreamRequest& request,
                             const frames::FrameSource& source) {
  const frames::Task usual = source.num_classes() == 0 ? frames::Task::Reconstruct
                             : source.labels_frames()  ? frames::Task::Label
                                                       : frames::Task::Pixels;
  const frames::Task task = request.task.value_or(usual);
  if (task == frames::Task::Pixels && source.labels_frames()) {
    throw ConfigError(
        fmt::format("--task pixels learns from labels of pixels, and those of {} are "
                    "of whole frames: --task label",
                    source.describe()));
  }
  if (needs_labels(task) && source.num_classes() == 0) {
    throw ConfigError(fmt::format("--task {} learns from labels, and {} has none", to_string(task),
                                  source.describe()));
  }
  const frames::FrameSize size = source.size();
  // Nothing comes too late where nothing comes by itself: frames of a file come as fast as they are
  // taken.
  const bool is_paced = source.is_live() || request.source.fps > 0;
  StreamSubject subject{
      .task = task,
      .model = model_of_task(request.model, task, {size.channels, size.height, size.width},
                             source.num_classes()),
      .size = size,
      .classes = source.num_classes(),
      .frames_per_second = is_paced ? source.frames_per_second() : 0,
      .is_pipe = source.is_live() && !request.source.pixel.empty(),
      .waits = request.source.keep_all || !is_paced};
  check_norms(subject.model, size);
  return subject;
}

std::optional<PreparedStream> prepare_stream(const options::StreamRequest& request,
                                             const StreamSubject& subject,
                                             const PrepareOptions& options) {
  StreamPlanRequest search = search_of(request, options.devices);
  std::optional<profile::Profile> profile;
  plan::Plan plan;
  if (!request.plan.file.empty()) {
    plan = given_plan(request.plan.file, subject, options.listener);
  } else {
    profile = stream_profile(request, subject, search, options);
    if (!profile) return std::nullopt;
    search.size = subject.size;
    search.between_gpus = level_between(options.devices, search.workers);
    plan = stream_plan(*profile, search);
    options.listener.tell(frame_rate_text(plan, *profile, search));
  }
  const int64_t deadline_ns = deadline_of(request, subject, plan);
  return PreparedStream{options.devices, std::move(search), std::move(profile), std::move(plan),
                        deadline_ns};
}

std::string stream_notes(const options::StreamRequest& request, const PreparedStream& prepared) {
  const int stages = num_stages(prepared.plan);
  const int threads = request.run.threads;
  const bool on_cpu = prepared.search.device.empty();
  std::string text;
  if (on_cpu && stages > 1 && stages * threads > own_cores()) {
    text += fmt::format(
        "note: {} of {} on {}: they take turns, and the frame rate will be below the prediction\n",
        report::plural(stages, "stage"), report::plural(threads, "thread"),
        report::plural(own_cores(), "core"));
  }
  if (stages == 1 && request.plan.weights) {
    text += fmt::format("note: one stage learns without delay: --weights {} makes no difference\n",
                        to_string(*request.plan.weights));
  }
  const std::vector<at::Device> device_of_stage = dealt(prepared.devices, stages);
  text += shared_device_text(device_of_stage);
  if (!on_cpu && device_of_stage.empty()) {
    text += fmt::format("note: no stage is on a GPU: the plan has {}, and --device is {}\n",
                        report::plural(stages, "stage"), request.run.device);
  }
  return text;
}

}  // namespace penstock::job

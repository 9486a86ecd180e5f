// penstock stream: opens a source, plans the stages for its frame rate, learns until it ends.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "penstock/frames/frame_queue.h"
#include "penstock/job/chosen_model.h"
#include "penstock/job/measured_profile.h"
#include "penstock/job/thread_memory.h"
#include "penstock/job/worker_devices.h"
#include "penstock/live/listening_socket.h"
#include "penstock/live/live_server.h"
#include "penstock/model/optimizer.h"
#include "penstock/report/report.h"
#include "penstock/report/text/text.h"
#include "penstock/stream/online_loop.h"
#include "penstock/stream/profiled_loss.h"
#include "penstock/stream/recent_stages.h"
#include "penstock/util/error.h"
#include "penstock/util/freed_memory.h"
#include "penstock/util/rounding.h"
#include "tools/penstock/command.h"
#include "tools/penstock/command_line.h"
#include "tools/penstock/stream_arguments.h"
#include "tools/penstock/stream_checks.h"
#include "tools/penstock/stream_live.h"
#include "tools/penstock/stream_plan.h"
#include "tools/penstock/stream_view.h"
#include "tools/penstock/stream_weights.h"

namespace penstock::tool {

namespace {

std::atomic<bool> g_stop_stream_stream_stream{false};
std::atomic<bool> g_save{false};

extern "C" void on_stop_signal(int) {
  g_stop_stream_stream_stream.store(true);
  end_at_next_signal();
}

extern "C" void on_save_signal(int) { g_save.store(true); }

/// One that came while the program started has waited until now (training_part.cpp).
void take_save_signals() {
  std::signal(SIGUSR1, on_save_signal);
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGUSR1);
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
}

stream::Task task_of(const StreamArguments& options, const frames::FrameSource& source) {
  if (!options.task.empty()) return parse_option("--task:", options.task, stream::parse_task);
  return source.num_classes() > 0 ? stream::Task::Pixels : stream::Task::Reconstruct;
}

/// Made for the source's frames.
model::Model model_of(const StreamArguments& options, stream::Task task,
                      const frames::FrameSource& source) {
  if (needs_labels(task) && source.num_classes() == 0) {
    throw ConfigError(fmt::format("--task {} learns from labels, and {} has none", to_string(task),
                                  source.describe()));
  }
  const frames::FrameSize size = source.size();
  return job::model_of_task(options.model, task, {size.channels, size.height, size.width},
                            source.num_classes());
}

void require_float32(const std::string& path, Precision precision) {
  if (precision == Precision::Float32) return;
  throw ConfigError(fmt::format("{} is of precision {}, and streams compute in float32", path,
                                to_string(precision)));
}

profile::Profile profile_of(const StreamArguments& options, const model::Model& model,
                            const model::ProfiledLoss& loss, const StreamPlanRequest& request) {
  if (!options.profile_path.empty()) {
    profile::Profile profile = profile::load_profile(options.profile_path);
    if (!(profile.graph == model.graph()) || profile.batch_size != 1) {
      throw ConfigError(fmt::format(
          "the profile {} is of '{}' with {} layers, measured on {} per pass; expected '{}' with "
          "{} layers, as it is for this --task, measured on single frames",
          options.profile_path, profile.model, profile.graph.num_layers(),
          report::plural(profile.batch_size, "sample"), model.name(), model.graph().num_layers()));
    }
    require_float32(options.profile_path, profile.precision);
    std::cerr << job::other_graphs_text(profile, options.profile_path, request.device_graphs);
    return profile;
  }
  model::ProfilerOptions profiler{.batch_size = 1,
                                  .samples = 3,
                                  .least_time = std::chrono::milliseconds(1000),
                                  .threads = static_cast<int>(options.threads),
                                  .seed = options.seed,
                                  .optimizer = options.optimizer,
                                  .stop = &g_stop_stream_stream_stream};
  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  profiler.concurrency = std::clamp(cores / profiler.threads, 1, std::max(request.workers, 1));
  if (!request.device.empty()) {
    profiler.device = request.device;
    profiler.device_graphs = request.device_graphs;
    profiler.concurrency = 1;
  }
  return job::measured_profile(model, profiler, job::console_listener(), loss);
}

/// The latency that a frame should keep: one tick for every stage and every frame that may wait.
int64_t deadline_of(const StreamArguments& options, const frames::FrameSource& source,
                    const plan::Plan& plan) {
  if (options.deadline_ms > 0) return rounded_down(options.deadline_ms * 1e6);
  // Those of a file come as fast as they are taken.
  if (!source.is_live() && options.source_fps <= 0) return 0;
  const double rate = source.frames_per_second();
  if (rate <= 0) return 0;
  const auto frames = static_cast<double>(std::ssize(plan.stages) + options.queue);
  return rounded_down(frames * 1e9 / rate);
}

/// What looks at the stream now and then.
class Watcher {
 public:
  Watcher(const StreamArguments& options, int64_t deadline_ns)
      : options_(options), view_(deadline_ns > 0) {}

  /// `live`: null without a page.
  void look(const stream::StreamLook& now, stream::OnlineLoop& loop, StreamLive* live) {
    view_.show(now);
    if (live != nullptr) live->add(now);
    const auto at = std::chrono::steady_clock::now();
    const double since_save = std::chrono::duration<double>(at - saved_).count();
    const bool is_asked = g_save.exchange(false);
    if (is_asked && options_.checkpoint.empty())
      say("SIGUSR1: the weights are not saved: there is no --checkpoint folder");
    if (is_asked || (options_.save_every_s > 0 && since_save >= options_.save_every_s)) {
      saved_ = at;
      loop.save_soon();
    }
    const double elapsed = std::chrono::duration<double>(at - begun_).count();
    if (options_.seconds > 0 && elapsed >= options_.seconds) {
      timed_out_ = true;
      stop_ = true;
    }
    if (g_stop_stream_stream_stream) stop_ = true;
    stages_.add(now.stages);
  }

  /// Since the last plan.
  const stream::RecentStages& stages() const { return stages_; }
  void begin_anew() { stages_.clear(); }
  void say(const std::string& line) {
    view_.finish();
    std::cerr << line << std::endl;
  }
  const std::atomic<bool>* stop() const { return &stop_; }
  bool timed_out() const { return timed_out_; }
  void finish() { view_.finish(); }

 private:
  const StreamArguments& options_;
  StreamView view_;
  std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point saved_ = begun_;
  std::atomic<bool> stop_{false};
  bool timed_out_ = false;
  stream::RecentStages stages_;
};

std::string replan_text(const plan::Plan& before, const plan::Plan& after, double tick_ns) {
  return fmt::format(
      "planned again: {}; the slowest stage took {:.1f} ms, now {:.1f} predicted",
      before.stages.size() == after.stages.size()
          ? fmt::format("{} of other layers", report::plural(std::ssize(after.stages), "stage"))
          : fmt::format("{} instead of {}", report::plural(std::ssize(after.stages), "stage"),
                        before.stages.size()),
      tick_ns / 1e6, 1e3 / after.prediction.throughput_samples_per_s);
}

/// Often enough to end in time.
std::chrono::milliseconds between_looks(const StreamArguments& options) {
  const std::chrono::milliseconds usual = stream::StreamOptions{}.between_looks;
  if (options.seconds <= 0) return usual;
  const double most_ms = std::min(options.seconds * 1e3, static_cast<double>(usual.count()));
  return std::chrono::milliseconds(rounded_down(most_ms));
}

/// What a stage fails with ends the stream as a broken source does, without weights.
stream::StreamSummary run_to_the_end(stream::OnlineLoop& loop) {
  try {
    return loop.run();
  } catch (const InternalError&) {
    throw;
  } catch (const ConfigError&) {  // before the first frame
    throw;
  } catch (const Error& error) {
    return loop.summary_of_failure(error.what());
  }
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

int run_stream(const StreamArguments& options) {
  catch_end_signals(on_stop_signal);
  check(options);
  const auto devices = parse_option("--device", options.device, [](const std::string& text) {
    return job::own_devices(text, /*local_rank=*/0, /*local_ranks=*/1);
  });
  keep_freed_memory();
  std::unique_ptr<frames::FrameSource> source =
      frames::open_source(options.source, source_options(options));
  // Nothing comes too late where nothing comes by itself.
  const bool waits = options.keep_all || (!source->is_live() && options.source_fps <= 0);
  const bool is_pipe = source->is_live() && !options.pixel.empty();
  const stream::Task task = task_of(options, *source);
  const model::Model model = model_of(options, task, *source);
  const frames::FrameSize size = source->size();
  check_norms(model, size);
  StreamWeights weights(options, model);
  std::optional<stream::StreamState> state = weights.load();
  // What has been learned from already would look as if it were new.
  if (state && state->next_frame > 0 && options.source == "generated") {
    source->skip(state->next_frame);
    std::cerr << fmt::format("the scene goes on at frame {}\n", state->next_frame);
  }

  // Whether the page's port can be had is known before anything is measured.
  if (options.serve) live::ListeningSocket(live::LiveServerOptions{}.host, *options.serve);
  StreamPlanRequest request{
      .strategy = options.strategy,
      .weights = options.weights.empty()
                     ? std::nullopt
                     : std::optional(plan::parse_weight_policy(options.weights)),
      .fps = options.fps,
      .optimizer = options.optimizer,
      .device = job::device_to_profile(devices),
      .device_graphs = options.cuda_graphs};
  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  const bool on_cpu = request.device.empty();
  if (options.cuda_graphs && on_cpu) {
    throw ConfigError(fmt::format(
        "--cuda-graphs: graphs are those of GPUs, and all stages are on the CPU (--device {})",
        options.device));
  }
  request.workers = options.workers > 0 ? static_cast<int>(options.workers)
                    : on_cpu            ? std::max(1, cores / static_cast<int>(options.threads))
                                        : static_cast<int>(devices.size());
  job::require_memory_for_threads(request.workers * options.threads);
  std::optional<profile::Profile> profile;
  plan::Plan plan;
  if (options.plan_path.empty()) {
    const auto loss = stream::profiled_loss(
        task, {.channels = size.channels, .classes = source->num_classes()}, size, options.seed);
    if (options.profile_path.empty()) {
      std::cerr << fmt::format("measuring the {} of '{}' on a frame of {}\n",
                               report::plural(model.graph().num_layers(), "layer"), model.name(),
                               to_string(size));
    }
    try {
      profile = profile_of(options, model, loss, request);
    } catch (const RuntimeError&) {
      if (!g_stop_stream_stream_stream) throw;
    }
    if (g_stop_stream_stream_stream) {
      std::cerr << "stopped before the first frame: nothing was learned, and nothing is saved\n";
      return kExitYes;
    }
    if (!options.profile_path.empty())
      check_profile_size(*profile, model, task, size, options.profile_path);
    request.between_gpus = job::level_between(devices, request.workers);
    plan = stream_plan(*profile, request);
    std::cerr << frame_rate_text(plan, *profile, request);
  } else {
    plan = plan::load_plan(options.plan_path);
    require_float32(options.plan_path, plan.precision);
    check_plan_layers(plan, model, task, options.plan_path);
  }
  if (!options.plan_path.empty()) warn_of_plan_size(plan, model, size, options.plan_path);
  std::cerr << report::plan_table(plan) << '\n';
  const auto stages_of = [](const plan::Plan& some) {
    return static_cast<int>(some.stages.size());
  };
  if (on_cpu && stages_of(plan) > 1 && stages_of(plan) * options.threads > cores) {
    std::cerr << fmt::format(
        "note: {} of {} on {}: they take turns, and the frame rate will be below the prediction\n",
        report::plural(stages_of(plan), "stage"), report::plural(options.threads, "thread"),
        report::plural(cores, "core"));
  }
  if (stages_of(plan) == 1 && !options.weights.empty()) {
    std::cerr << fmt::format(
        "note: one stage learns without delay: --weights {} makes no difference\n",
        options.weights);
  }
  const std::vector<at::Device> device_of_stage = job::dealt(devices, stages_of(plan));
  std::cerr << shared_device_text(device_of_stage);
  if (!on_cpu && device_of_stage.empty()) {
    std::cerr << fmt::format("note: no stage is on a GPU: the plan has {}, and --device is {}\n",
                             report::plural(stages_of(plan), "stage"), options.device);
  }
  const double predicted_fps = plan.prediction.throughput_samples_per_s;
  const int64_t deadline_ns = deadline_of(options, *source, plan);
  frames::FrameQueue queue(std::move(source),
                           {.capacity = static_cast<int>(options.queue), .waits_when_full = waits});

  Watcher watcher(options, deadline_ns);
  stream::OnlineLoop* running = nullptr;
  std::unique_ptr<StreamLive> page;
  stream::StreamOptions stream_options{
      .task = task,
      .plan = plan,
      .optimizer = options.optimizer,
      .learning_rate = options.learning_rate,
      .threads_per_worker = static_cast<int>(options.threads),
      .device_of_stage = on_cpu ? std::function<std::vector<at::Device>(int)>()
                                : [&devices](int stages) { return job::dealt(devices, stages); },
      .device_graphs = options.cuda_graphs,
      .seed = options.seed,
      .max_frames = options.max_frames,
      .deadline_ns = deadline_ns,
      .longest_stall = std::chrono::milliseconds(rounded_down(options.stall_s * 1e3)),
      .state = std::move(state),
      .stop = watcher.stop(),
      .between_looks = between_looks(options),
      .on_look = [&](const stream::StreamLook& look) { watcher.look(look, *running, page.get()); },
      .on_state =
          [&](const stream::StreamState& saved) {
            const std::string line = weights.save(saved);
            if (!line.empty()) watcher.say(line);
          },
      .on_stuck = [](const std::string& failure) { _exit(complain(failure, kExitFailure)); }};
  if (profile && options.replan_margin > 0) {
    stream_options.replan = [&](const stream::StreamLook&,
                                const plan::Plan& now) -> std::optional<plan::Plan> {
      // So many that two which took long, as when the process is suspended, change no median.
      constexpr int64_t kLeastLooks = 5;
      if (watcher.stages().looks() < kLeastLooks) return std::nullopt;
      const std::vector<stream::StageTimes> measured = watcher.stages().medians();
      auto better = better_plan(*profile, now, measured, request, options.replan_margin);
      if (better) {
        double tick_ns = 0;
        for (const auto& stage : measured) tick_ns = std::max(tick_ns, stage.tick_ns());
        watcher.say(replan_text(now, *better, tick_ns));
        watcher.begin_anew();
      }
      return better;
    };
  }
  stream::OnlineLoop loop(model, queue, std::move(stream_options));
  running = &loop;
  std::optional<live::LiveServer> server;
  if (options.serve) {
    page = std::make_unique<StreamLive>(
        loop,
        StreamLiveTexts{.title = fmt::format("{} by {}", to_string(task), model.name()),
                        .source = queue.description(),
                        .task = task,
                        .classes = queue.num_classes(),
                        .wanted_fps = options.fps > 0 ? options.fps : queue.frames_per_second()});
    server.emplace(*page, live::LiveServerOptions{.port = *options.serve});
    std::cerr << fmt::format("live page: {}\n", server->url());
  }
  take_save_signals();
  stream::StreamSummary summary = run_to_the_end(loop);
  queue.stop();
  summary.queue.remarks = queue.counters().remarks;
  watcher.finish();
  if (watcher.timed_out() && !summary.end.is_error)
    summary.end.reason = fmt::format("the {} s that were asked for are over", options.seconds);
  if (summary.numbers.processed == 0 && !summary.end.is_error && !g_stop_stream_stream_stream)
    summary.end = {"no frame was learned from: " + summary.end.reason, true};
  if (page) page->end(summary.end.reason);
  // Weights that have learned nothing, or nonsense, must not replace better ones.
  if (summary.numbers.processed > 0 && !summary.state.layers.empty()) {
    const std::string line = weights.save(summary.state);
    // A save that failed is the command's error, below.
    if (!line.empty() && weights.failure().empty()) std::cerr << line << '\n';
  }
  if (is_pipe && !waits && 2 * summary.queue.dropped > summary.queue.frames_in) {
    std::cerr << fmt::format(
        "hint: {} of {} frames were dropped, because the pipe brings them faster than they are "
        "learned from: --keep-all makes it wait\n",
        summary.queue.dropped, summary.queue.frames_in);
  }
  for (const std::string& obstacle : summary.graph_obstacles)
    std::cerr << fmt::format("note: without CUDA graphs: {}\n", obstacle);
  const std::string failure = summary.end.is_error ? summary.end.reason : weights.failure();
  const StreamReport report{.summary = summary,
                            .source = queue.description(),
                            .task = task,
                            .error = failure,
                            .wanted_fps = options.fps,
                            .predicted_fps = predicted_fps,
                            .deadline_ns = deadline_ns,
                            .stages = watcher.stages().medians(),
                            .devices = job::dealt(devices, stages_of(summary.state.plan))};
  write_output("", options.json ? stream_json(report) : stream_text(report));
  return failure.empty() ? kExitYes : complain(failure, kExitFailure);
}

}  // namespace

Command stream_command(CLI::App& parent, char**) {
  auto arguments = std::make_shared<StreamArguments>();
  CLI::App* app = add_stream(parent, *arguments);
  return {app, [arguments]() { return run_stream(*arguments); }};
}

}  // namespace penstock::tool

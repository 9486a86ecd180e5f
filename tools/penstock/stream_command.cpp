// penstock stream: opens a source, plans the stages for its frame rate, learns until it ends.
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <thread>

#include "penstock/frames/frame_queue.h"
#include "penstock/live/live_server.h"
#include "penstock/model/optimizer.h"
#include "penstock/report/report.h"
#include "penstock/report/text/text.h"
#include "penstock/stream/online_loop.h"
#include "penstock/stream/profiled_loss.h"
#include "penstock/train/checkpoint/checkpoint.h"
#include "penstock/train/checkpoint/layer_states.h"
#include "penstock/util/error.h"
#include "penstock/util/freed_memory.h"
#include "penstock/util/rounding.h"
#include "tools/penstock/chosen_model.h"
#include "tools/penstock/command.h"
#include "tools/penstock/command_line.h"
#include "tools/penstock/measured_profile.h"
#include "tools/penstock/stream_arguments.h"
#include "tools/penstock/stream_live.h"
#include "tools/penstock/stream_plan.h"
#include "tools/penstock/stream_view.h"
#include "tools/penstock/thread_memory.h"

namespace penstock::tool {

namespace {

constexpr int kKeptCheckpoints = 2;

std::atomic<bool> g_stop{false};
std::atomic<bool> g_save{false};

extern "C" void on_stop_signal(int) {
  g_stop.store(true);
  // the second one, of either kind, ends the program at once
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
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
  if (!options.task.empty()) return parse_option("--task", options.task, stream::parse_task);
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
  return model_of_task(options.model, task, {size.channels, size.height, size.width},
                       source.num_classes());
}

profile::Profile profile_of(const StreamArguments& options, const model::Model& model,
                            const model::ProfiledLoss& loss, const StreamPlanRequest& request) {
  if (!options.profile_path.empty()) {
    profile::Profile profile = profile::load_profile(options.profile_path);
    if (!(profile.graph == model.graph()) || profile.batch_size != 1) {
      throw ConfigError(fmt::format(
          "the profile {} is of model '{}' with {} layers and batches of {}; expected '{}' with {} "
          "layers and single frames",
          options.profile_path, profile.model, profile.graph.num_layers(), profile.batch_size,
          model.name(), model.graph().num_layers()));
    }
    return profile;
  }
  model::ProfilerOptions profiler{.batch_size = 1,
                                  .samples = 3,
                                  .least_time = std::chrono::milliseconds(1000),
                                  .threads = static_cast<int>(options.threads),
                                  .seed = options.seed,
                                  .optimizer = options.optimizer};
  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  profiler.concurrency = std::clamp(cores / profiler.threads, 1, std::max(request.workers, 1));
  return measured_with_progress(model, profiler, loss);
}

/// Weights in a folder, as of a training without epochs.
class Weights {
 public:
  Weights(const StreamArguments& options, const model::Model& model)
      : options_(options), model_(model), optimizer_(model::make_optimizer(options.optimizer)) {
    if (options.checkpoint.empty() || options.resume) return;
    if (train::has_checkpoint(options.checkpoint)) {
      throw ConfigError(fmt::format(
          "'{}' holds weights already: add --resume to continue from them, or choose another "
          "folder",
          options.checkpoint));
    }
  }

  std::optional<stream::StreamState> load() const {
    if (!options_.resume) return std::nullopt;
    if (!train::has_checkpoint(options_.checkpoint)) {
      std::cerr << fmt::format("'{}' holds no weights yet: beginning anew\n", options_.checkpoint);
      return std::nullopt;
    }
    const train::Checkpoint checkpoint = train::load_checkpoint(options_.checkpoint, model_);
    stream::StreamState state{.steps = checkpoint.step};
    for (const train::LayerState& layer : checkpoint.layers)
      state.layers.push_back(train::to_snapshot(layer, *optimizer_, options_.optimizer.name));
    std::cerr << fmt::format("resumed after {} frames\n", checkpoint.step);
    return state;
  }

  /// The folder that was written; empty: none is wanted.
  std::string save(const stream::StreamState& state) const {
    if (options_.checkpoint.empty()) return {};
    train::Checkpoint checkpoint{{.model = model_.name(),
                                  .step = state.steps,
                                  .seed = options_.seed,
                                  .mini_batch_size = 1,
                                  .optimizer = options_.optimizer.name},
                                 {},
                                 plan::to_json(state.plan)};
    for (const runtime::LayerSnapshot& layer : state.layers)
      checkpoint.layers.push_back(train::to_state(layer, *optimizer_));
    return train::save_checkpoint(options_.checkpoint, model_, checkpoint, kKeptCheckpoints)
        .string();
  }

 private:
  const StreamArguments& options_;
  const model::Model& model_;
  std::unique_ptr<model::Optimizer> optimizer_;
};

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
    if (g_save.exchange(false) ||
        (options_.save_every_s > 0 && since_save >= options_.save_every_s)) {
      saved_ = at;
      loop.save_soon();
    }
    const double elapsed = std::chrono::duration<double>(at - begun_).count();
    if (options_.seconds > 0 && elapsed >= options_.seconds) {
      timed_out_ = true;
      stop_ = true;
    }
    if (g_stop) stop_ = true;
    collect(now.stages);
  }

  /// The stages' times since the last plan; nothing while too little has been seen.
  std::vector<stream::StageTimes> measured() const { return measured_; }
  void begin_anew() { measured_.clear(); }
  void say(const std::string& line) {
    view_.finish();
    std::cerr << line << std::endl;
  }
  const std::atomic<bool>* stop() const { return &stop_; }
  bool timed_out() const { return timed_out_; }
  void finish() { view_.finish(); }

 private:
  /// The newest look has half of the weight of all before it, in frames.
  void collect(const std::vector<stream::StageTimes>& stages) {
    if (measured_.size() != stages.size()) measured_.assign(stages.size(), {});
    for (size_t s = 0; s < stages.size(); ++s) {
      stream::StageTimes& sum = measured_[s];
      const stream::StageTimes& more = stages[s];
      if (more.frames == 0) continue;
      constexpr int64_t kMost = 100;
      const auto before = static_cast<double>(std::min(sum.frames, kMost));
      const auto added = static_cast<double>(more.frames);
      const auto mean = [&](double a, double b) {
        return (a * before + b * added) / (before + added);
      };
      sum = {.frames = sum.frames + more.frames,
             .forward_ns = mean(sum.forward_ns, more.forward_ns),
             .backward_ns = mean(sum.backward_ns, more.backward_ns),
             .step_ns = mean(sum.step_ns, more.step_ns),
             .hand_over_ns = mean(sum.hand_over_ns, more.hand_over_ns),
             .busy = mean(sum.busy, more.busy)};
    }
  }

  const StreamArguments& options_;
  StreamView view_;
  std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point saved_ = begun_;
  std::atomic<bool> stop_{false};
  bool timed_out_ = false;
  std::vector<stream::StageTimes> measured_;
};

std::string replan_text(const plan::Plan& before, const plan::Plan& after, double tick_ns) {
  return fmt::format(
      "planned again: {} instead of {}; the slowest stage took {:.1f} ms, now {:.1f} "
      "predicted",
      report::plural(std::ssize(after.stages), "stage"), before.stages.size(), tick_ns / 1e6,
      1e3 / after.throughput_samples_per_s);
}

int run(const StreamArguments& options) {
  check(options);
  keep_freed_memory();
  std::unique_ptr<frames::FrameSource> source =
      frames::open_source(options.source, source_options(options));
  // Nothing comes too late where nothing comes by itself.
  const bool waits = options.keep_all || (!source->is_live() && options.source_fps <= 0);
  const stream::Task task = task_of(options, *source);
  const model::Model model = model_of(options, task, *source);
  const Weights weights(options, model);
  std::optional<stream::StreamState> state = weights.load();

  StreamPlanRequest request{.strategy = options.strategy,
                            .weights = options.weights,
                            .fps = options.fps,
                            .optimizer = options.optimizer};
  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  request.workers = options.workers > 0 ? static_cast<int>(options.workers)
                                        : std::max(1, cores / static_cast<int>(options.threads));
  require_memory_for_threads(request.workers * options.threads);
  std::optional<profile::Profile> profile;
  plan::Plan plan;
  if (options.plan_path.empty()) {
    const frames::FrameSize size = source->size();
    const auto loss = stream::profiled_loss(
        task, {.channels = size.channels, .classes = source->num_classes()}, size, options.seed);
    profile = profile_of(options, model, loss, request);
    plan = stream_plan(*profile, request);
    std::cerr << frame_rate_text(plan, *profile, request);
  } else {
    plan = plan::load_plan(options.plan_path);
  }
  std::cerr << report::plan_table(plan) << '\n';
  const double predicted_fps = plan.throughput_samples_per_s;
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
      .seed = options.seed,
      .max_frames = options.max_frames,
      .deadline_ns = deadline_ns,
      .longest_stall = std::chrono::milliseconds(rounded_down(options.stall_s * 1e3)),
      .state = std::move(state),
      .stop = watcher.stop(),
      .on_look = [&](const stream::StreamLook& look) { watcher.look(look, *running, page.get()); },
      .on_state =
          [&](const stream::StreamState& saved) {
            const std::string folder = weights.save(saved);
            if (!folder.empty()) watcher.say("weights: " + folder);
          },
      .on_stuck = [](const std::string& failure) { _exit(complain(failure, kExitFailure)); }};
  if (profile && options.replan_margin > 0) {
    stream_options.replan = [&](const stream::StreamLook&, const plan::Plan& now) {
      auto better = better_plan(*profile, now, watcher.measured(), request, options.replan_margin);
      if (better) {
        double tick_ns = 0;
        for (const auto& stage : watcher.measured()) tick_ns = std::max(tick_ns, stage.tick_ns());
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
        loop, fmt::format("{} by {}", to_string(task), model.name()), queue.description(),
        options.fps > 0 ? options.fps : queue.frames_per_second());
    server.emplace(*page, live::LiveServerOptions{.port = *options.serve});
    std::cerr << fmt::format("live page: {}\n", server->url());
  }
  std::signal(SIGINT, on_stop_signal);
  std::signal(SIGTERM, on_stop_signal);
  take_save_signals();
  stream::StreamSummary summary = loop.run();
  queue.stop();
  watcher.finish();
  if (watcher.timed_out())
    summary.end.reason = fmt::format("the {} s that were asked for are over", options.seconds);
  if (page) page->end(summary.end.reason);
  const std::string folder = weights.save(summary.state);
  if (!folder.empty()) std::cerr << "weights: " << folder << '\n';
  const StreamReport report{.summary = summary,
                            .source = queue.description(),
                            .task = task,
                            .wanted_fps = options.fps,
                            .predicted_fps = predicted_fps,
                            .deadline_ns = deadline_ns,
                            .stages = watcher.measured()};
  write_output("", options.json ? stream_json(report) : stream_text(report));
  if (!summary.end.is_error) return kExitYes;
  return complain(summary.end.reason, kExitFailure);
}

}  // namespace

Command stream_command(CLI::App& parent, char**) {
  auto arguments = std::make_shared<StreamArguments>();
  CLI::App* app = add_stream(parent, *arguments);
  return {app, [arguments]() { return run(*arguments); }};
}

}  // namespace penstock::tool

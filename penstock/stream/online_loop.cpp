#include "penstock/stream/online_loop.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <thread>
#include <utility>

#include "penstock/plan/boundaries.h"
#include "penstock/schedule/endless_schedule.h"
#include "penstock/util/check.h"
#include "penstock/util/error.h"
#include "penstock/util/process/steady_ns.h"
#include "penstock/verify/verify_endless.h"

namespace penstock::stream {

namespace {

using plan::Strategy;

/// How long the watching thread sleeps between looks at what it has been asked for.
constexpr std::chrono::milliseconds kLoopSlice{10};

void check_plan(const plan::Plan& plan) {
  if (!traits(plan.strategy).takes_streams) {
    const auto takers = plan::strategies_where([](const auto& row) { return row.takes_streams; });
    throw ConfigError(fmt::format("a stream runs under one of {}, found {}", plan::names_of(takers),
                                  to_string(plan.strategy)));
  }
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    if (plan.stages[s].replicas == 1) continue;
    throw ConfigError(fmt::format("a stream takes one worker per stage, found {} of stage {}",
                                  plan.stages[s].replicas, s));
  }
  if (const std::string codings = plan::boundaries_text(plan); !codings.empty()) {
    throw ConfigError(fmt::format(
        "a stream's messages travel as they are, found a plan with boundaries in {}: expected "
        "float32",
        codings));
  }
}

void check_output(const model::Model& model, frames::Task task, const frames::FrameKind& kind,
                  frames::FrameSize size) {
  const graph::ValueRef output = model.graph().outputs().front();
  const model::Shape& shape =
      model.output_shapes(output.layer).at(static_cast<size_t>(output.output));
  model::Shape expected = {frames::outputs_of(task, kind)};
  if (is_per_pixel(task)) expected.insert(expected.end(), {size.height, size.width});
  const auto text = [](const model::Shape& s) { return fmt::format("[{}]", fmt::join(s, ", ")); };
  if (shape != expected) {
    throw ConfigError(
        fmt::format("task {} needs a model whose output is {} for each frame, that of "
                    "'{}' is {}",
                    to_string(task), text(expected), model.name(), text(shape)));
  }
  const model::Shape frame = {size.channels, size.height, size.width};
  if (model.input_shapes().front() != frame) {
    throw ConfigError(fmt::format("the frames are {}, the model '{}' reads {}", text(frame),
                                  model.name(), text(model.input_shapes().front())));
  }
}

/// The most frames that are under way at once in a pipeline of so many stages; on GPUs also some
/// that are done, but the host has not looked yet when that was.
int64_t under_way(const plan::Plan& plan, const StreamOptions& options) {
  constexpr int64_t kNotLookedAt = 6;
  return 2 * std::ssize(plan.stages) + 1 + (options.device_of_stage ? kNotLookedAt : 0);
}

std::vector<at::Device> devices_of(const plan::Plan& plan, const StreamOptions& options) {
  if (!options.device_of_stage) return {};
  return options.device_of_stage(static_cast<int>(plan.stages.size()));
}

/// Frames whose output has been made and whose loss is known: on a GPU the two come in any order.
/// For the thread of the last stage's worker.
class Outputs {
 public:
  explicit Outputs(StreamMeter& meter) : meter_(meter) {}

  void add_latency(MiniBatchId frame, int64_t latency_ns) {
    output(frame).latency_ns = latency_ns;
    settle();
  }
  void add_losses(MiniBatchId frame, const Losses& losses) {
    output(frame).losses = losses;
    settle();
  }

 private:
  struct Output {
    MiniBatchId frame;
    std::optional<int64_t> latency_ns = {};
    std::optional<Losses> losses = {};
  };

  Output& output(MiniBatchId frame) {
    for (Output& one : open_) {
      if (one.frame == frame) return one;
    }
    return open_.emplace_back(Output{.frame = frame});
  }
  void settle() {
    while (!open_.empty() && open_.front().latency_ns && open_.front().losses) {
      meter_.on_output(*open_.front().latency_ns, *open_.front().losses);
      open_.erase(open_.begin());
    }
  }

  StreamMeter& meter_;
  std::vector<Output> open_;  ///< ascending
};

/// A not-a-number has a sign that says nothing.
std::string text_of_odd(double number) {
  return std::isnan(number) ? "nan" : fmt::to_string(number);
}

plan::WeightPolicy policy_of(const plan::Plan& plan) {
  // One stage has no delay: all policies are the same.
  return plan.stages.size() == 1 ? plan::default_policy(Strategy::Online) : plan.weights;
}

}  // namespace

/// Copies of the stages' weights, each made by its worker right after the same step.
class OnlineLoop::Save {
 public:
  Save(int64_t after, int64_t steps_before, const plan::Plan& plan, size_t layers)
      : after_(after), missing_(plan.stages.size()) {
    state_.steps = steps_before + after + 1;
    state_.plan = plan;
    state_.layers.resize(layers);
  }
  /// The micro-batch after whose step the copies are made.
  int64_t after() const { return after_; }

  /// `next_frame`: StreamState::next_frame, after that step.
  void add(std::map<LayerId, runtime::LayerSnapshot> layers, int64_t next_frame) {
    MutexLock lock(mutex_);
    state_.next_frame = next_frame;
    for (auto& [id, layer] : layers) state_.layers[id.index()] = std::move(layer);
    --missing_;
  }
  bool is_complete() const {
    MutexLock lock(mutex_);
    return missing_ == 0;
  }
  StreamState take() {
    MutexLock lock(mutex_);
    return std::move(state_);
  }

 private:
  const int64_t after_;
  mutable Mutex mutex_;
  size_t missing_ GUARDED_BY(mutex_);
  StreamState state_ GUARDED_BY(mutex_);
};

OnlineLoop::OnlineLoop(const model::Model& model, frames::FrameQueue& queue, StreamOptions options)
    : model_(model),
      queue_(queue),
      options_(std::move(options)),
      optimizers_(model, options_.optimizer),
      loss_(std::make_shared<FrameLoss>(
          options_.task,
          frames::FrameKind{.channels = queue.size().channels, .classes = queue.num_classes()},
          options_.on_frame)),
      feed_(queue, {.task = options_.task,
                    .frames_under_way = under_way(options_.plan, options_),
                    .max_frames = options_.max_frames,
                    .longest_stall = options_.longest_stall,
                    .seed = options_.seed}),
      meter_(options_.deadline_ns) {
  check_plan(options_.plan);
  plan::stage_of_layer(options_.plan, model.graph());
  check_output(model, options_.task,
               {.channels = queue.size().channels, .classes = queue.num_classes()}, queue.size());
  MutexLock lock(mutex_);
  plan_ = options_.plan;
  if (options_.state) state_ = *std::move(options_.state);
}

OnlineLoop::~OnlineLoop() = default;

plan::Plan OnlineLoop::plan() const {
  MutexLock lock(mutex_);
  return plan_;
}

void OnlineLoop::save_soon() { save_wanted_ = true; }

runtime::PipelineOptions OnlineLoop::pipeline_options(const plan::Plan& plan) const {
  return {.seed = options_.seed,
          .threads_per_worker = options_.threads_per_worker,
          // A frame may be as late as the source may stall.
          .deadline = options_.longest_stall + std::chrono::minutes(5),
          .loss =
              [loss = loss_](const at::Tensor& output, const at::Tensor& targets,
                             const model::MiniBatchSize& mini_batch) {
                return (*loss)(output, targets, mini_batch);
              },
          .optimizers = &optimizers_,
          .device_of_worker = devices_of(plan, options_),
          .devices = options_.installed,
          .device_graphs = options_.device_graphs};
}

void OnlineLoop::begin_plan(const plan::Plan& plan, const runtime::Pipeline& pipeline) {
  feed_.restart(under_way(plan, options_));
  loss_->begin_run();
  meter_.begin(plan.stages.size());
  stop_run_ = false;
  MutexLock lock(mutex_);
  is_running_ = true;
  steps_before_ = pipeline.steps();
}

void OnlineLoop::forget_run() {
  MutexLock lock(mutex_);
  is_running_ = false;
  save_.reset();  // the state of the end is newer
}

/// Whether another plan goes on from here.
bool OnlineLoop::end_plan(const runtime::Pipeline& pipeline) {
  graph_obstacles_ = pipeline.graph_obstacles();
  state_.layers = pipeline.snapshot();
  state_.steps = pipeline.steps();
  if (const int64_t given = feed_.given_in_run(); given > 0)
    state_.next_frame = feed_.next_frame(MicroBatchId{given - 1});
  MutexLock lock(mutex_);
  state_.plan = plan_;
  if (failure_ || !next_plan_ || feed_.ended()) return false;
  plan_ = *std::exchange(next_plan_, std::nullopt);
  ++replans_;
  return true;
}

void OnlineLoop::add_to_save(const runtime::Pipeline& pipeline, StageId stage, MiniBatchId frame) {
  std::shared_ptr<Save> save;
  {
    MutexLock lock(mutex_);
    save = save_;
  }
  if (save && frame.value == save->after())
    save->add(pipeline.copy_of_stage(stage), feed_.next_frame(MicroBatchId{save->after()}));
}

Losses OnlineLoop::losses_of(MiniBatchId frame, const runtime::MiniBatchStats& stats) {
  const int64_t number = feed_.number(MicroBatchId{frame.value});
  if (!std::isfinite(stats.loss_sum)) {
    throw RuntimeError(fmt::format(
        "the loss of frame {} is {}: the training has diverged; take a smaller learning rate "
        "than {}",
        number, text_of_odd(stats.loss_sum), options_.learning_rate));
  }
  return loss_->take(number, stats.loss_sum, stats.correct);
}

bool OnlineLoop::run_plan() {
  const plan::Plan plan = this->plan();
  const std::vector<int> replicas(plan.stages.size(), 1);
  runtime::Pipeline pipeline(model_, plan::stage_of_layer(plan, model_.graph()), replicas,
                             optimizers_.general(), pipeline_options(plan));
  if (!state_.layers.empty()) pipeline.load(state_.layers, state_.steps);
  const schedule::EndlessSchedule schedule = schedule::make_endless(
      Strategy::Online, {.replicas = replicas, .policy = policy_of(plan)}, pipeline.links());
  const int64_t credits = std::max<int64_t>(1, verify::min_credits(schedule.sample));
  const auto violations = verify::verify_endless(schedule, {.credits = credits});
  PENSTOCK_CHECK(violations.empty(), violations.front().message);
  begin_plan(plan, pipeline);
  const StageId last{static_cast<int32_t>(plan.stages.size()) - 1};
  Outputs outputs(meter_);
  runtime::RunOptions run{
      .learning_rate = [rate = options_.learning_rate](int64_t) { return rate; },
      .stop = &stop_run_,
      .credits = credits,
      .max_timeline_events = 0,
      .on_stuck = options_.on_stuck};
  run.on_action = [&](WorkerId worker, const schedule::TimelineEvent& event) {
    meter_.on_action(worker, event);
    const schedule::Action& action = event.action;
    if (action.op != schedule::Op::Forward || action.stage != last) return;
    outputs.add_latency(action.mini_batch, event.end_ns - feed_.captured_ns(action.micro_batch));
  };
  run.on_step = [&](StageId stage, MiniBatchId frame) { add_to_save(pipeline, stage, frame); };
  run.on_mini_batch = [&](MiniBatchId frame, const runtime::MiniBatchStats& stats) {
    outputs.add_losses(frame, losses_of(frame, stats));
    return true;
  };
  try {
    pipeline.run_endless(schedule, feed_, run);
  } catch (...) {
    forget_run();
    throw;
  }
  forget_run();
  return end_plan(pipeline);
}

StreamLook OnlineLoop::look(bool is_last) {
  return {.part = meter_.take_part(),
          .whole = meter_.whole(),
          .queue = queue_.counters(),
          .stages = meter_.take_stages(),
          .is_last = is_last};
}

void OnlineLoop::watch() {
  if (options_.stop != nullptr && options_.stop->load()) stop_run_ = true;
  std::shared_ptr<Save> complete;
  {
    MutexLock lock(mutex_);
    if (save_ && save_->is_complete()) complete = std::exchange(save_, nullptr);
    if (!save_ && is_running_ && save_wanted_.exchange(false)) {
      // No stage has made the step of a frame that has not been taken.
      save_ = std::make_shared<Save>(feed_.given_in_run(), steps_before_, plan_,
                                     static_cast<size_t>(model_.graph().num_layers()));
    }
  }
  if (complete && options_.on_state) options_.on_state(complete->take());
}

StreamSummary OnlineLoop::run() {
  std::atomic<bool> is_over{false};
  std::jthread watcher([&] {
    auto next_look = std::chrono::steady_clock::now() + options_.between_looks;
    while (!is_over) {
      std::this_thread::sleep_for(kLoopSlice);
      try {
        watch();
        if (std::chrono::steady_clock::now() < next_look) continue;
        next_look = std::chrono::steady_clock::now() + options_.between_looks;
        const StreamLook now = look(false);
        if (options_.on_look) options_.on_look(now);
        const bool is_ending = options_.stop != nullptr && options_.stop->load();
        if (!options_.replan || stop_run_ || is_ending) continue;
        if (auto plan = options_.replan(now, this->plan())) {
          check_plan(*plan);
          MutexLock lock(mutex_);
          next_plan_ = std::move(plan);
          stop_run_ = true;
        }
      } catch (...) {
        MutexLock lock(mutex_);
        failure_ = std::current_exception();
        stop_run_ = true;
        return;
      }
    }
  });
  const auto end_watching = [&] {
    is_over = true;
    watcher.join();
  };
  try {
    while (run_plan()) continue;
  } catch (...) {
    end_watching();
    throw;
  }
  end_watching();
  {
    MutexLock lock(mutex_);
    if (failure_) std::rethrow_exception(failure_);
  }
  const StreamLook last = look(true);
  StreamSummary summary = summary_of(last, feed_.ended().value_or(FeedEnd{"stopped", false}));
  summary.state = std::move(state_);
  if (options_.on_look) options_.on_look(last);
  return summary;
}

StreamSummary OnlineLoop::summary_of(const StreamLook& last, FeedEnd end) const {
  return {.numbers = last.whole,
          .queue = last.queue,
          .end = std::move(end),
          .replans = replans_,
          .graph_obstacles = graph_obstacles_,
          .state = {.layers = {}, .steps = 0, .plan = plan()}};
}

StreamSummary OnlineLoop::summary_of_failure(const std::string& what) {
  return summary_of(look(true), {what, true});
}

}  // namespace penstock::stream

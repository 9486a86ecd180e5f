#include "tools/penstock/stream/stream_run.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <utility>

#include "penstock/job/worker_devices.h"
#include "penstock/report/text/text.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/rounding.h"
#include "tools/penstock/command/command.h"
#include "tools/penstock/command/command_line.h"

namespace penstock::tool {

namespace {

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
std::chrono::milliseconds between_looks(const options::StreamRequest& request) {
  const std::chrono::milliseconds usual = stream::StreamOptions{}.between_looks;
  if (request.run.seconds <= 0) return usual;
  const double most_ms = std::min(request.run.seconds * 1e3, static_cast<double>(usual.count()));
  return std::chrono::milliseconds(rounded_down(most_ms));
}

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

StreamLiveTexts live_texts(const StreamParts& parts, const frames::FrameQueue& queue) {
  const double wanted = parts.request.plan.fps;
  return {
      .title = fmt::format("{} by {}", to_string(parts.subject.task), parts.subject.model.name()),
      .source = queue.description(),
      .task = parts.subject.task,
      .classes = queue.num_classes(),
      .wanted_fps = wanted > 0 ? wanted : queue.frames_per_second()};
}

std::unique_ptr<PredictionLog> predictions_of(const options::StreamRequest& request,
                                              const frames::FrameQueue& queue) {
  const std::string& path = request.output.predictions;
  return path.empty() ? nullptr : std::make_unique<PredictionLog>(path, queue.class_names());
}

}  // namespace

StreamWatcher::StreamWatcher(const options::StreamRequest& request, const StreamSignals& signals,
                             bool has_deadline)
    : request_(request), signals_(signals), view_(has_deadline) {}

void StreamWatcher::look(const stream::StreamLook& now, stream::OnlineLoop& loop,
                         StreamLive* live) {
  const options::StreamRunRequest& run = request_.run;
  view_.show(now);
  if (live != nullptr) live->add(now);
  const auto at = std::chrono::steady_clock::now();
  const double since_save = std::chrono::duration<double>(at - saved_).count();
  const bool is_asked = signals_.save.exchange(false);
  if (is_asked && run.checkpoint.empty())
    say("SIGUSR1: the weights are not saved: there is no --checkpoint folder");
  if (is_asked || (run.save_every_s > 0 && since_save >= run.save_every_s)) {
    saved_ = at;
    loop.save_soon();
  }
  const double elapsed = std::chrono::duration<double>(at - begun_).count();
  if (run.seconds > 0 && elapsed >= run.seconds) {
    timed_out_ = true;
    stop_ = true;
  }
  if (signals_.stop) stop_ = true;
  stages_.add(now.stages);
}

void StreamWatcher::say(const std::string& line) {
  view_.finish();
  std::cerr << line << std::endl;
}

StreamRun::StreamRun(const StreamParts& parts, std::unique_ptr<frames::FrameSource> source,
                     std::optional<stream::StreamState> state)
    : parts_(parts),
      queue_(std::move(source), {.capacity = static_cast<int>(parts.request.source.queue),
                                 .waits_when_full = parts.subject.waits}),
      watcher_(parts.request, parts.signals, parts.prepared.deadline_ns > 0),
      predictions_(predictions_of(parts.request, queue_)),
      loop_(parts.subject.model, queue_, loop_options(std::move(state))) {
  const std::optional<int> port = parts.request.output.serve;
  if (!port) return;
  page_ = std::make_unique<StreamLive>(loop_, live_texts(parts, queue_));
  server_.emplace(*page_, live::LiveServerOptions{.port = *port});
  std::cerr << fmt::format("live page: {}\n", server_->url());
}

stream::StreamOptions StreamRun::loop_options(std::optional<stream::StreamState> state) {
  const options::StreamRequest& request = parts_.request;
  const job::PreparedStream& prepared = parts_.prepared;
  stream::StreamOptions loop{
      .task = parts_.subject.task,
      .plan = prepared.plan,
      .optimizer = request.optimizer,
      .learning_rate = request.learning_rate,
      .threads_per_worker = request.run.threads,
      .device_graphs = request.run.device_graphs,
      .seed = request.run.seed,
      .max_frames = request.run.frames,
      .deadline_ns = prepared.deadline_ns,
      .longest_stall = std::chrono::milliseconds(rounded_down(request.run.stall_s * 1e3)),
      .state = std::move(state),
      .stop = watcher_.stop(),
      .between_looks = between_looks(request),
      .on_look =
          [this](const stream::StreamLook& look) { watcher_.look(look, loop_, page_.get()); },
      .on_state =
          [this](const stream::StreamState& saved) {
            const std::string line = parts_.weights.save(saved);
            if (!line.empty()) watcher_.say(line);
          },
      .on_stuck = [](const std::string& failure) { _exit(complain(failure, kExitFailure)); }};
  if (!prepared.search.device.empty()) {
    loop.device_of_stage = [&prepared](int stages) { return job::dealt(prepared.devices, stages); };
  }
  if (predictions_)
    loop.on_frame = [this](const stream::FrameResult& result) { predictions_->add(result); };
  if (prepared.profile && request.plan.replan_margin > 0) {
    loop.replan = [this](const stream::StreamLook&, const plan::Plan& now) {
      return better_than(now);
    };
  }
  return loop;
}

std::optional<plan::Plan> StreamRun::better_than(const plan::Plan& now) {
  // So many that two which took long, as when the process is suspended, change no median.
  constexpr int64_t kLeastLooks = 5;
  if (watcher_.stages().looks() < kLeastLooks) return std::nullopt;
  const std::vector<stream::StageTimes> measured = watcher_.stages().medians();
  const job::PreparedStream& prepared = parts_.prepared;
  auto better = job::better_plan(*prepared.profile, now, measured, prepared.search,
                                 parts_.request.plan.replan_margin);
  if (better) {
    double tick_ns = 0;
    for (const auto& stage : measured) tick_ns = std::max(tick_ns, stage.tick_ns());
    watcher_.say(replan_text(now, *better, tick_ns));
    watcher_.begin_anew();
  }
  return better;
}

stream::StreamSummary StreamRun::run() {
  stream::StreamSummary summary = run_to_the_end(loop_);
  queue_.stop();
  summary.queue.remarks = queue_.counters().remarks;
  watcher_.finish();
  if (watcher_.timed_out() && !summary.end.is_error) {
    summary.end.reason =
        fmt::format("the {} s that were asked for are over", parts_.request.run.seconds);
  }
  if (summary.numbers.processed == 0 && !summary.end.is_error && !parts_.signals.stop)
    summary.end = {"no frame was learned from: " + summary.end.reason, true};
  const std::string unwritten = predictions_ ? predictions_->finish() : "";
  if (!unwritten.empty() && !summary.end.is_error) summary.end = {unwritten, true};
  if (page_) page_->end(summary.end.reason);
  return summary;
}

}  // namespace penstock::tool

// penstock stream: opens a source, plans the stages for its frame rate, learns until it ends.
#include <fmt/format.h>

#include <atomic>
#include <csignal>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "penstock/frames/sources/labelled_source.h"
#include "penstock/job/stream/prepare_stream.h"
#include "penstock/job/stream/stream_weights.h"
#include "penstock/job/worker_devices.h"
#include "penstock/live/listening_socket.h"
#include "penstock/report/report.h"
#include "penstock/util/process/freed_memory.h"
#include "tools/penstock/command/command.h"
#include "tools/penstock/command/command_line.h"
#include "tools/penstock/stream/stream_arguments.h"
#include "tools/penstock/stream/stream_run.h"
#include "tools/penstock/stream/stream_view.h"

namespace penstock::tool {

namespace {

std::atomic<bool> g_stop_stream{false};
std::atomic<bool> g_save{false};

extern "C" void on_stop_signal(int) {
  g_stop_stream.store(true);
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

/// What has been learned from already would look as if it were new.
void skip_learned_frames(const options::StreamRequest& request,
                         const std::optional<stream::StreamState>& state,
                         frames::FrameSource& source) {
  if (!state || state->next_frame <= 0 || request.source.name != "generated") return;
  source.skip(state->next_frame);
  std::cerr << fmt::format("the scene goes on at frame {}\n", state->next_frame);
}

/// Weights that have learned nothing, or nonsense, must not replace better ones.
void save_at_the_end(const stream::StreamSummary& summary, job::StreamWeights& weights) {
  if (summary.numbers.processed == 0 || summary.state.layers.empty()) return;
  const std::string line = weights.save(summary.state);
  // A save that failed is the command's error.
  if (!line.empty() && weights.failure().empty()) std::cerr << line << '\n';
}

void give_hints(const job::StreamSubject& subject, const stream::StreamSummary& summary) {
  if (subject.is_pipe && !subject.waits && 2 * summary.queue.dropped > summary.queue.frames_in) {
    std::cerr << fmt::format(
        "hint: {} of {} frames were dropped, because the pipe brings them faster than they are "
        "learned from: --keep-all makes it wait\n",
        summary.queue.dropped, summary.queue.frames_in);
  }
  for (const std::string& obstacle : summary.graph_obstacles)
    std::cerr << fmt::format("note: without CUDA graphs: {}\n", obstacle);
}

/// The exit code.
int write_summary(const StreamParts& parts, const StreamRun& run,
                  const stream::StreamSummary& summary) {
  const std::string failure = summary.end.is_error ? summary.end.reason : parts.weights.failure();
  const int stages = static_cast<int>(summary.state.plan.stages.size());
  const StreamReport report{
      .summary = summary,
      .source = run.source(),
      .task = parts.subject.task,
      .error = failure,
      .wanted_fps = parts.request.plan.fps,
      .predicted_fps = parts.prepared.plan.prediction.throughput_samples_per_s,
      .deadline_ns = parts.prepared.deadline_ns,
      .stages = run.stages(),
      .devices = job::dealt(parts.prepared.devices, stages)};
  write_output("", parts.request.output.json ? stream_json(report) : stream_text(report));
  return failure.empty() ? kExitYes : complain(failure, kExitFailure);
}

int run_stream(const options::StreamRequest& request) {
  catch_end_signals(on_stop_signal);
  check_stream(request);
  const auto devices = parse_option("--device", request.run.device, [](const std::string& text) {
    return job::own_devices(text, /*local_rank=*/0, /*local_ranks=*/1);
  });
  keep_freed_memory();
  const job::Listener listener = job::console_listener();
  std::unique_ptr<frames::FrameSource> source =
      frames::open_source(request.source.name, source_options(request));
  if (!request.source.labels.empty())
    source = std::make_unique<frames::LabelledSource>(std::move(source), request.source.labels);
  const job::StreamSubject subject = job::stream_subject(request, *source);
  job::StreamWeights weights(request, subject.model, source->class_names());
  std::optional<stream::StreamState> state = weights.load(listener);
  skip_learned_frames(request, state, *source);
  // Whether the page's port can be had is known before anything is measured.
  if (request.output.serve)
    live::ListeningSocket(live::LiveServerOptions{}.host, *request.output.serve);
  const std::optional<job::PreparedStream> prepared = job::prepare_stream(
      request, subject, {.devices = devices, .stop = &g_stop_stream, .listener = listener});
  if (!prepared) {
    std::cerr << "stopped before the first frame: nothing was learned, and nothing is saved\n";
    return kExitYes;
  }
  std::cerr << report::plan_table(prepared->plan) << '\n' << job::stream_notes(request, *prepared);
  const StreamParts parts{request, subject, *prepared, weights, {g_stop_stream, g_save}};
  StreamRun run(parts, std::move(source), std::move(state));
  take_save_signals();
  const stream::StreamSummary summary = run.run();
  save_at_the_end(summary, weights);
  give_hints(subject, summary);
  return write_summary(parts, run, summary);
}

}  // namespace

Command stream_command(CLI::App& parent, char**) {
  auto request = std::make_shared<options::StreamRequest>();
  CLI::App* app = add_stream(parent, *request);
  return {app, [request]() { return run_stream(*request); }};
}

}  // namespace penstock::tool

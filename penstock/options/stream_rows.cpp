// The options of `penstock stream`.
#include <fmt/format.h>

#include <string>

#include "penstock/frames/frame_queue.h"
#include "penstock/frames/paced_source.h"
#include "penstock/options/sections.h"
#include "penstock/util/error.h"

namespace penstock::options {
namespace {

using OfStream = StreamRequest;
using StreamRow = RowOf<StreamRequest>;

constexpr double kMostSeconds = 1e8;
constexpr double kLeastPause_s = 0.05;

Slot serve(OfStream& request) {
  std::optional<int>& port = request.output.serve;
  return Named{
      .set = [&port](const std::string& text) { port = text.empty() ? 0 : parse_port(text); },
      .text = [&port] { return port ? fmt::to_string(*port) : ""; },
      .stands_alone = true,
      .hints_at_help = true};
}

plan::Strategy parse_stream_strategy(const std::string& name) {
  const auto takers = plan::strategies_where([](const auto& row) { return row.takes_streams; });
  const auto strategy = plan::find_strategy(name);
  if (strategy && traits(*strategy).takes_streams) return *strategy;
  throw ConfigError(
      fmt::format("a stream runs under one of {}, found '{:.40}'", plan::names_of(takers), name));
}

Slot stream_strategy(OfStream& request) {
  return named(request.plan.strategy, parse_stream_strategy,
               [](plan::Strategy strategy) { return to_string(strategy); });
}

plan::WeightPolicy parse_stream_weights(const std::string& name) {
  for (const plan::WeightPolicy policy : plan::kWeightPolicies) {
    if (name == to_string(policy) && plan::supports(plan::Strategy::Online, policy)) return policy;
  }
  throw ConfigError(fmt::format("a stream takes current, latest or stash, found '{:.40}'", name));
}

Slot stream_weights(OfStream& request) {
  return named_or_none(request.plan.weights, parse_stream_weights,
                       [](plan::WeightPolicy policy) { return to_string(policy); });
}

bool names_source_file(std::string_view source) {
  return source != "generated" && source != "-" && !source.starts_with("camera:") &&
         source.find("://") == std::string_view::npos;
}

std::vector<StreamRow> source_rows() {
  using S = SourceRequest;
  return in<OfStream>(
      Section::Source,
      {path(row<&OfStream::source, &S::name>(
                "--source",
                "Where frames come from: generated (a moving scene), camera:0, a video file, a "
                "folder of images or of one folder per class, rtsp://... or http://..., or - (raw "
                "frames on standard input)"),
            names_source_file),
       row<&OfStream::source, &S::size>(
           "--size",
           "Width and height of a frame, 640x480: needed for raw frames; others are resized "
           "(default: the source's own, 160x120 generated)"),
       row<&OfStream::source, &S::pixel>(
           "--pixel", "Raw frames: rgb24, bgr24, gray, rgba or yuv420p, as ffmpeg calls them"),
       row<&OfStream::source, &S::grey>("--grey", "One channel instead of three"),
       row<&OfStream::source, &S::fps>(
           "--source-fps",
           "Play files, folders and the generated scene at this rate, as a camera would "
           "(default: as fast as frames are taken)",
           frames::kMinFramesPerSecond, frames::kMaxFramesPerSecond),
       row<&OfStream::source, &S::repeat>("--repeat", "Begin files and folders again at their end"),
       row<&OfStream::source, &S::classes>(
           "--source-classes", "generated: classes of the labels, the background among them", 2,
           25),
       row<&OfStream::source, &S::label_every>(
           "--label-every", "generated: only every n-th frame has labels; 0: none", 0),
       path(row<&OfStream::source, &S::labels>(
           "--labels",
           "CSV file with the classes of frames: `seconds,label` (until the next row) or "
           "`frame,label` (default: the source's own, of images a folder per class)")),
       row<&OfStream::source, &S::queue>(
           "--queue", "Frames that wait at most; when it is full the oldest is dropped", 1,
           frames::kMaxQueueCapacity),
       row<&OfStream::source, &S::keep_all>(
           "--keep-all",
           "Drop nothing: the source waits for the pipeline, also a pipe's writer (always so "
           "without --source-fps for files, folders and the generated scene)")});
}

std::vector<StreamRow> stream_learning_rows() {
  using model::OptimizerSpec;
  return in<OfStream>(
      Section::Learning,
      {row<OfStream>(
           "--task", [](OfStream& r) -> Slot { return named_task(r.task); },
           "reconstruct the frame, predict the next frame, classify its pixels, or label the "
           "frame: reconstruct, predict, pixels, label (default: pixels or label, as the source "
           "has labels, otherwise reconstruct)"),
       row<OfStream>(
           "--lr", [](OfStream& r) -> Slot { return &r.learning_rate; }, "Learning rate"),
       row<OfStream>(
           "--optimizer", [](OfStream& r) -> Slot { return named_optimizer(r.optimizer); },
           optimizer_help()),
       {.name = "--momentum",
        .slot = at<&OfStream::optimizer, &OptimizerSpec::momentum>,
        .help = momentum_help(),
        .usual = [] { return std::string("0; lars: 0.9; muon: 0.95"); }},
       with_zero(row<&OfStream::optimizer, &OptimizerSpec::weight_decay>("--weight-decay",
                                                                         "Weight decay"))});
}

/// A plan that is given has it already.
StreamRow of_stream_plan(StreamRow row) { return without("--plan", std::move(row)); }

std::vector<StreamRow> stream_plan_rows() {
  using P = StreamPlanSection;
  using Run = StreamRunRequest;
  return in<OfStream>(
      Section::Plan,
      {path(row<&OfStream::plan, &P::file>("--plan", "Run with this plan (JSON)")),
       of_stream_plan(
           row<OfStream>("--strategy", stream_strategy,
                         "online (stages work on different frames) or serial (one worker)")),
       of_stream_plan(row<&OfStream::plan, &P::workers>(
           "--workers",
           "The most stages, a thread each (default: as many as cores for --threads, or as "
           "there are GPUs in --device)",
           1, kMaxThreads)),
       of_stream_plan(row<OfStream>(
           "--weights", stream_weights,
           "What backward passes go through: current (the newest frame, as PARTIME), latest "
           "(the gradient's own frame, on the newest weights) or stash (on the weights that "
           "it saw) (default: current)")),
       threads_row<OfStream>("Threads of each stage"),
       row<&OfStream::run, &Run::device>(
           "--device",
           "What stages compute on: cpu, cuda (all GPUs), or a list such as cuda:0,cuda:1; "
           "neighbours share a device where there are more stages than devices"),
       row<&OfStream::run, &Run::device_graphs>(
           "--cuda-graphs",
           "On GPUs, give all kernels of a forward or backward pass in one call; not with "
           "--weights stash"),
       of_stream_plan(path(row<&OfStream::plan, &P::profile>(
           "--profile", "Plan from this profile of one frame instead of measuring"))),
       row<&OfStream::plan, &P::fps>(
           "--fps",
           "Frames per second that are wanted: takes the fewest stages that reach it, or "
           "says by how much it is missed (default: the fastest plan)",
           frames::kMinFramesPerSecond, frames::kMaxFramesPerSecond),
       row<&OfStream::plan, &P::replan_margin>(
           "--replan-margin",
           "Plan again while running when the measured times promise a plan that is so much "
           "faster (0.25: a quarter); 0: never",
           0, 1e6)});
}

std::vector<StreamRow> stream_run_rows() {
  using Run = StreamRunRequest;
  return in<OfStream>(
      Section::Run,
      {row<&OfStream::run, &Run::frames>("--frames",
                                         "End after so many frames have been learned from", 1),
       row<&OfStream::run, &Run::seconds>("--seconds", "End after this time", 0.001, kMostSeconds),
       row<&OfStream::run, &Run::deadline_ms>(
           "--deadline-ms",
           "Count the frames whose output comes later than this after the frame came "
           "(default: stages + queue frames, where the rate is known)",
           0.001, 1e9),
       row<&OfStream::run, &Run::stall_s>("--stall",
                                          "Give up when no frame has come for so many seconds",
                                          kLeastPause_s, kMostSeconds),
       path(row<&OfStream::run, &Run::checkpoint>(
           "--checkpoint",
           "Folder for the weights: saved at the end, on SIGUSR1 and as --save-every says; the "
           "two newest are kept")),
       row<&OfStream::run, &Run::resume>(
           "--resume",
           "Continue with the newest weights of the folder, and at their frame of the "
           "generated scene; other sources begin again"),
       row<&OfStream::run, &Run::save_every_s>(
           "--save-every", "Save the weights every so many seconds, without stopping",
           kLeastPause_s, kMostSeconds)});
}

std::vector<StreamRow> stream_output_rows() {
  return in<OfStream>(
      Section::Output,
      {row<OfStream>(
           "--serve", serve,
           "Show the running stream on a web page, at http://127.0.0.1 for this machine only; a "
           "port may be given, no host (default: any free port)"),
       path(row<&OfStream::output, &StreamOutputRequest::predictions>(
           "--predictions",
           "File for what the model made of each frame before it learned from it: JSON lines")),
       json_row<OfStream>()});
}

}  // namespace

template <>
std::span<const StreamRow> rows_of() {
  static const std::vector<StreamRow> kRows = joined<OfStream>(
      {source_rows(), in<OfStream>(Section::Model, model_rows<OfStream>(/*is_required=*/false)),
       stream_learning_rows(), stream_plan_rows(), stream_run_rows(), stream_output_rows(),
       in<OfStream>(Section::Run, {seed_row<OfStream>()}), file_rows<OfStream>()});
  return kRows;
}

}  // namespace penstock::options

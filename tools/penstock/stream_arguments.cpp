#include "tools/penstock/stream_arguments.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "penstock/frames/frame.h"
#include "penstock/frames/frame_queue.h"
#include "penstock/frames/paced_source.h"
#include "penstock/launch/job_environment.h"
#include "penstock/plan/strategy.h"
#include "penstock/plan/weight_policy.h"
#include "tools/penstock/optimizer_option.h"

namespace penstock::tool {

namespace {

constexpr double kMostSeconds = 1e8;
constexpr int64_t kMostStages = 1024;

std::optional<int> port_of(const std::string& text) {
  constexpr int kLast = 65535;
  int port = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size() || port < 0 || port > kLast)
    return std::nullopt;
  return port;
}

bool takes_weights(const std::string& policy) {
  try {
    return plan::supports(plan::Strategy::Online, plan::parse_weight_policy(policy));
  } catch (const ConfigError&) {
    return false;
  }
}

void add_source_options(CLI::App& app, StreamArguments& options) {
  app.add_option("--source", options.source,
                 "Where frames come from: generated (a moving scene), camera:0, a video file, a "
                 "folder of images, rtsp://... or http://..., or - (raw frames on standard input)")
      ->capture_default_str();
  app.add_option("--size", options.size,
                 "Width and height of a frame, 640x480: needed for raw frames; others are resized "
                 "(default: the source's own, 160x120 generated)");
  app.add_option("--pixel", options.pixel,
                 "Raw frames: rgb24, bgr24, gray, rgba or yuv420p, as ffmpeg calls them");
  app.add_flag("--grey", options.grey, "One channel instead of three");
  app.add_option("--source-fps", options.source_fps,
                 "Play files, folders and the generated scene at this rate, as a camera would "
                 "(default: as fast as frames are taken)")
      ->check(CLI::Range(frames::kMinFramesPerSecond, frames::kMaxFramesPerSecond));
  app.add_flag("--repeat", options.repeat, "Begin files and folders again at their end");
  app.add_option("--source-classes", options.classes,
                 "generated: classes of the labels, the background among them")
      ->check(whole_number(2, 25));
  app.add_option("--label-every", options.label_every,
                 "generated: only every n-th frame has labels; 0: none")
      ->check(whole_number(0));
  app.add_option("--queue", options.queue,
                 "Frames that wait at most; when it is full the oldest is dropped")
      ->check(whole_number(1, frames::kMaxQueueCapacity))
      ->capture_default_str();
  app.add_flag("--keep-all", options.keep_all,
               "Drop nothing: the source waits for the pipeline, also a pipe's writer (always so "
               "without --source-fps for files, folders and the generated scene)");
}

void add_learning_options(CLI::App& app, StreamArguments& options) {
  app.add_option("--task", options.task,
                 "reconstruct the frame, predict the next frame, classify its pixels, or label the "
                 "frame: reconstruct, predict, pixels, label (default: pixels where the source has "
                 "labels, otherwise reconstruct)");
  app.add_option("--lr", options.learning_rate, "Learning rate")->capture_default_str();
  add_optimizer(app, options.optimizer.kind);
  app.add_option("--momentum", options.optimizer.momentum, "sgd: momentum")->capture_default_str();
  app.add_option("--weight-decay", options.optimizer.weight_decay, "Weight decay")
      ->capture_default_str();
}

void add_plan_options(CLI::App& app, StreamArguments& options) {
  auto* const plan = app.add_option("--plan", options.plan_path, "Run with this plan (JSON)");
  app.add_option("--strategy", options.strategy,
                 "online (stages work on different frames) or serial (one worker)")
      ->capture_default_str()
      ->excludes(plan);
  app.add_option("--workers", options.workers,
                 "The most stages, a thread each (default: as many as cores for --threads, or as "
                 "there are GPUs in --device)")
      ->check(whole_number(1, kMostStages))
      ->excludes(plan);
  app.add_option("--weights", options.weights,
                 "What backward passes go through: current (the newest frame, as PARTIME), latest "
                 "(the gradient's own frame, on the newest weights) or stash (on the weights that "
                 "it saw) (default: current)")
      ->excludes(plan);
  app.add_option("--threads", options.threads, "Threads of each stage")
      ->check(whole_number(1, 1024))
      ->capture_default_str();
  app.add_option("--device", options.device,
                 "What stages compute on: cpu, cuda (all GPUs), or a list such as cuda:0,cuda:1; "
                 "neighbours share a device where there are more stages than devices")
      ->capture_default_str();
  app.add_flag("--cuda-graphs", options.cuda_graphs,
               "On GPUs, give all kernels of a forward or backward pass in one call; not with "
               "--weights stash");
  app.add_option("--profile", options.profile_path,
                 "Plan from this profile of one frame instead of measuring")
      ->excludes(plan);
  app.add_option("--fps", options.fps,
                 "Frames per second that are wanted: takes the fewest stages that reach it, or "
                 "says by how much it is missed (default: the fastest plan)")
      ->check(CLI::Range(frames::kMinFramesPerSecond, frames::kMaxFramesPerSecond));
  app.add_option("--replan-margin", options.replan_margin,
                 "Plan again while running when the measured times promise a plan that is so much "
                 "faster (0.25: a quarter); 0: never")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
}

}  // namespace

CLI::App* add_stream(CLI::App& parent, StreamArguments& options) {
  CLI::App* app = parent.add_subcommand("stream", "Learn online from a live stream of frames");
  options.model.name = "partime";
  add_source_options(*app, options);
  add_model_options(*app, options.model, /*required=*/false);
  app->get_option("--model")->capture_default_str();
  app->remove_option(app->get_option("--classes"));
  app->remove_option(app->get_option("--input"));
  add_learning_options(*app, options);
  add_plan_options(*app, options);
  app->add_option("--frames", options.max_frames, "End after so many frames have been learned from")
      ->check(whole_number(1));
  app->add_option("--seconds", options.seconds, "End after this time")
      ->check(CLI::Range(0.001, kMostSeconds));
  app->add_option("--deadline-ms", options.deadline_ms,
                  "Count the frames whose output comes later than this after the frame came "
                  "(default: stages + queue frames, where the rate is known)")
      ->check(CLI::Range(0.001, 1e9));
  app->add_option("--stall", options.stall_s, "Give up when no frame has come for so many seconds")
      ->check(CLI::Range(0.05, kMostSeconds))
      ->capture_default_str();
  app->add_option(
      "--checkpoint", options.checkpoint,
      "Folder for the weights: saved at the end, on SIGUSR1 and as --save-every says; the "
      "two newest are kept");
  app->add_flag("--resume", options.resume,
                "Continue with the newest weights of the folder, and at their frame of the "
                "generated scene; other sources begin again");
  app->add_option("--save-every", options.save_every_s,
                  "Save the weights every so many seconds, without stopping")
      ->check(CLI::Range(0.05, kMostSeconds));
  app->add_option_function<std::string>(
         "--serve",
         [&options](const std::string& port) { options.serve = port.empty() ? 0 : port_of(port); },
         "Show the running stream on a web page, at http://127.0.0.1 for this machine only; a port "
         "may be given, no host (default: any free port)")
      ->expected(0, 1)
      ->check([](const std::string& port) {
        return port.empty() || port_of(port)
                   ? std::string()
                   : fmt::format("expected a port from 0 to 65535, found '{:.40}'", port);
      });
  add_common(*app, options);
  return app;
}

void check(const StreamArguments& options) {
  // Every rank would learn from a stream of its own.
  if (const auto job = launch::own_job(); job && job->ranks > 1) {
    throw ConfigError(
        fmt::format("a stream is learned from in one process, a thread per stage; {} started {} "
                    "ranks: run penstock stream without it, with --workers {}",
                    job->launcher, job->ranks, job->ranks));
  }
  const auto takers = plan::strategies_where([](const auto& row) { return row.takes_streams; });
  const auto strategy = plan::find_strategy(options.strategy);
  if (!strategy || !traits(*strategy).takes_streams) {
    throw ConfigError(fmt::format("--strategy: a stream runs under one of {}, found '{:.40}'",
                                  plan::names_of(takers), options.strategy));
  }
  if (!options.weights.empty()) {
    if (!takes_weights(options.weights)) {
      throw ConfigError(fmt::format(
          "--weights: a stream takes current, latest or stash, found '{:.40}'", options.weights));
    }
  }
  if (!takes(options.optimizer.kind, &model::OptimizerSpec::momentum) &&
      options.optimizer.momentum != 0) {
    throw ConfigError(fmt::format("--momentum is for sgd; --optimizer {} has its own",
                                  to_string(options.optimizer.kind)));
  }
  if (traits(*strategy).extent == plan::Extent::OneWorker &&
      (!options.weights.empty() || options.workers > 1)) {
    throw ConfigError(
        fmt::format("--strategy {} is one worker without delay: {} has no meaning there",
                    options.strategy, options.weights.empty() ? "--workers" : "--weights"));
  }
  if (!std::isfinite(options.learning_rate) || options.learning_rate < 0) {
    throw ConfigError(
        fmt::format("--lr must be a number of at least 0, found {}", options.learning_rate));
  }
  if ((options.resume || options.save_every_s > 0) && options.checkpoint.empty()) {
    throw ConfigError(
        fmt::format("{} needs --checkpoint DIR", options.resume ? "--resume" : "--save-every"));
  }
  if (options.keep_all && options.source.starts_with("camera:"))
    throw ConfigError("--keep-all: a camera does not wait; without it late frames are dropped");
  source_options(options);
}

frames::SourceOptions source_options(const StreamArguments& options) {
  frames::SourceOptions source;
  if (!options.size.empty()) {
    const frames::FrameSize size = parse_option("--size:", options.size, [&](const auto& text) {
      return frames::parse_frame_size(text, options.grey ? frames::kGrey : frames::kRgb);
    });
    source.width = size.width;
    source.height = size.height;
  }
  if (options.grey) source.channels = frames::kGrey;
  source.frames_per_second = options.source_fps;
  if (!options.keep_all) source.late = frames::LateFrames::LeaveOut;
  if (!options.pixel.empty()) {
    source.pixel = parse_option("--pixel:", options.pixel,
                                [](const auto& text) { return frames::parse_pixel_format(text); });
  }
  source.repeats = options.repeat;
  if (options.source == "generated") source.seed = options.seed;
  if (options.classes) source.classes = static_cast<int>(*options.classes);
  if (options.label_every) source.label_every = static_cast<int>(*options.label_every);
  return source;
}

}  // namespace penstock::tool

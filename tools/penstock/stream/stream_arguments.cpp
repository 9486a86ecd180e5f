#include "tools/penstock/stream/stream_arguments.h"

#include <fmt/format.h>

#include "penstock/frames/frame.h"
#include "penstock/launch/job_environment.h"
#include "penstock/util/error.h"
#include "tools/penstock/command/command.h"
#include "tools/penstock/command/output_files.h"
#include "tools/penstock/command/row_options.h"

namespace penstock::tool {

CLI::App* add_stream(CLI::App& parent, options::StreamRequest& request) {
  CLI::App* app = parent.add_subcommand("stream", "Learn online from a live stream of frames");
  add_rows(*app, request);
  return app;
}

void check_stream(const options::StreamRequest& request) {
  // Every rank would learn from a stream of its own.
  if (const auto job = launch::own_job(); job && job->ranks > 1) {
    throw ConfigError(
        fmt::format("a stream is learned from in one process, a thread per stage; {} started {} "
                    "ranks: run penstock stream without it, with --workers {}",
                    job->launcher, job->ranks, job->ranks));
  }
  options::check(request);
  check_outputs({{"--predictions", request.output.predictions}},
                {{"--labels", request.source.labels},
                 {"--plan", request.plan.file},
                 {"--profile", request.plan.profile},
                 {"--model", request.model.name},
                 {"--source", request.source.name},
                 {"--config", request.file.config}});
  source_options(request);
}

frames::SourceOptions source_options(const options::StreamRequest& request) {
  const options::SourceRequest& wanted = request.source;
  frames::SourceOptions source;
  if (!wanted.size.empty()) {
    const frames::FrameSize size = parse_option("--size:", wanted.size, [&](const auto& text) {
      return frames::parse_frame_size(text, wanted.grey ? frames::kGrey : frames::kRgb);
    });
    source.width = size.width;
    source.height = size.height;
  }
  if (wanted.grey) source.channels = frames::kGrey;
  source.frames_per_second = wanted.fps;
  if (!wanted.keep_all) source.late = frames::LateFrames::LeaveOut;
  if (!wanted.pixel.empty()) {
    source.pixel = parse_option("--pixel:", wanted.pixel,
                                [](const auto& text) { return frames::parse_pixel_format(text); });
  }
  source.repeats = wanted.repeat;
  if (wanted.name == "generated") source.seed = request.run.seed;
  if (wanted.classes) source.classes = static_cast<int>(*wanted.classes);
  if (wanted.label_every) source.label_every = static_cast<int>(*wanted.label_every);
  return source;
}

}  // namespace penstock::tool

#include "penstock/frames/open_source.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>

#include "penstock/frames/sources/generated_source.h"
#include "penstock/frames/sources/image_folder.h"
#include "penstock/frames/sources/raw_source.h"
#include "penstock/frames/sources/video_source.h"
#include "penstock/util/error.h"
#include "penstock/util/text/printable.h"

namespace penstock::frames {

namespace fs = std::filesystem;

namespace {

enum class Kind : uint8_t { Generated, StandardInput, Camera, Folder, RawFile, Video, Url };

constexpr std::string_view kForms =
    "expected generated, - (standard input), camera:0, a folder of images, a video file or a URL";

struct Spec {
  Kind kind = Kind::Generated;
  std::string text;
  int camera = 0;
};

int camera_number(std::string_view text, std::string_view digits) {
  constexpr int kMostCameras = 64;
  int number = -1;
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (read.ec != std::errc() || read.ptr != digits.data() + digits.size() || number < 0 ||
      number >= kMostCameras) {
    throw ConfigError(
        fmt::format("source '{}': expected a camera by its number, such as camera:0, at most {}",
                    printable(text), kMostCameras - 1));
  }
  return number;
}

Spec parse_spec(std::string_view text, bool is_raw) {
  constexpr std::string_view kCamera = "camera:";
  constexpr std::string_view kDevice = "/dev/video";
  Spec spec;
  spec.text = std::string(text);
  if (text == "generated") return spec;
  if (text == "-") {
    spec.kind = Kind::StandardInput;
  } else if (text.starts_with(kCamera)) {
    spec.kind = Kind::Camera;
    spec.camera = camera_number(text, text.substr(kCamera.size()));
  } else if (text.starts_with(kDevice)) {
    spec.kind = Kind::Camera;
    spec.camera = camera_number(text, text.substr(kDevice.size()));
  } else if (text.find("://") != std::string_view::npos) {
    spec.kind = Kind::Url;
  } else {
    std::error_code error;
    const fs::file_status status = fs::status(spec.text, error);
    if (text.empty() || text.find('\0') != std::string_view::npos || !fs::exists(status)) {
      throw ConfigError(
          fmt::format("source '{}': there is no such file or folder; {}", printable(text), kForms));
    }
    // Whatever reads videos would wait for the writer of a pipe, for ever.
    spec.kind = is_raw || fs::is_fifo(status) ? Kind::RawFile : Kind::Video;
    if (fs::is_directory(status)) spec.kind = Kind::Folder;
  }
  return spec;
}

void refuse_if(bool is_given, const Spec& spec, std::string_view option, std::string_view fit) {
  if (is_given) {
    throw ConfigError(
        fmt::format("source '{}': {} is only for {}", printable(spec.text), option, fit));
  }
}

/// The options that do not go with the kind of source.
void check_options(const Spec& spec, const SourceOptions& options) {
  const Kind kind = spec.kind;
  const bool is_raw = kind == Kind::StandardInput || kind == Kind::RawFile;
  refuse_if(options.pixel.has_value() && !is_raw, spec, "a pixel format",
            "raw frames: standard input, a file or a named pipe");
  refuse_if(kind != Kind::Generated &&
                (options.seed || options.classes || options.label_every || options.frames),
            spec, "a seed, a number of classes or of frames, or a share of labels",
            "the generated scene");
  refuse_if(options.repeats && kind != Kind::Folder && kind != Kind::Video && kind != Kind::RawFile,
            spec, "repeating", "files and folders");
  refuse_if(!options.skips_broken && kind != Kind::Folder, spec, "refusing broken images",
            "folders of images");
  if ((options.width == 0) != (options.height == 0)) {
    throw ConfigError(
        fmt::format("expected a width and a height, found {}x{}", options.width, options.height));
  }
  if (options.channels != 0 && options.channels != kGrey && options.channels != kRgb)
    throw ConfigError(
        fmt::format("expected 1 channel (grey) or 3 (RGB), found {}", options.channels));
}

std::unique_ptr<FrameSource> open_generated(const SourceOptions& options) {
  GeneratedOptions generated;
  if (options.width != 0) {
    generated.size.width = options.width;
    generated.size.height = options.height;
  }
  if (options.channels != 0) generated.size.channels = options.channels;
  generated.seed = options.seed.value_or(generated.seed);
  generated.classes = options.classes.value_or(generated.classes);
  generated.label_every = options.label_every.value_or(generated.label_every);
  generated.frames = options.frames.value_or(generated.frames);
  return std::make_unique<GeneratedSource>(generated);
}

std::unique_ptr<FrameSource> open_raw(const Spec& spec, const SourceOptions& options) {
  if (options.width == 0 || !options.pixel) {
    throw ConfigError(
        fmt::format("source '{}': raw frames need a size, such as 640x480, and a pixel format, "
                    "such as rgb24; found {}",
                    printable(spec.text),
                    options.width != 0 ? "no pixel format"
                    : options.pixel    ? "no size"
                                       : "neither"));
  }
  RawInput input;
  input.format = *options.pixel;
  input.size = {options.width, options.height,
                options.channels != 0 ? options.channels : channels_of(input.format)};
  input.repeats = options.repeats;
  if (spec.kind == Kind::StandardInput) {
    input.fd = STDIN_FILENO;
    input.name = "standard input";
  } else {
    // Without O_NONBLOCK a named pipe would wait here for its writer.
    input.name = printable(spec.text);
    input.fd = ::open(spec.text.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    input.owns_fd = true;
    if (input.fd < 0)
      throw ConfigError(fmt::format("cannot read '{}': {}", input.name, std::strerror(errno)));
  }
  return std::make_unique<RawSource>(std::move(input));
}

std::unique_ptr<FrameSource> open_images(const Spec& spec, const SourceOptions& options) {
  return std::make_unique<ImageFolder>(
      ImageFolderOptions{.folder = spec.text,
                         .width = options.width,
                         .height = options.height,
                         .channels = options.channels != 0 ? options.channels : kRgb,
                         .repeats = options.repeats,
                         .skips_broken = options.skips_broken,
                         .opencv_module = options.opencv_module});
}

std::unique_ptr<FrameSource> open_video(const Spec& spec, const SourceOptions& options) {
  const VideoRequest request{.name = spec.kind == Kind::Camera ? "" : spec.text,
                             .camera = spec.camera,
                             .width = options.width,
                             .height = options.height,
                             .channels = options.channels != 0 ? options.channels : kRgb,
                             .repeats = options.repeats,
                             .open_timeout = options.open_timeout,
                             .read_timeout = options.read_timeout};
  return std::make_unique<VideoSource>(request, options.opencv_module);
}

std::unique_ptr<FrameSource> open_plain(const Spec& spec, const SourceOptions& options) {
  switch (spec.kind) {
    case Kind::Generated:
      return open_generated(options);
    case Kind::StandardInput:
    case Kind::RawFile:
      return open_raw(spec, options);
    case Kind::Folder:
      return open_images(spec, options);
    case Kind::Camera:
    case Kind::Video:
    case Kind::Url:
      break;
  }
  return open_video(spec, options);
}

}  // namespace

std::unique_ptr<FrameSource> open_source(std::string_view spec, const SourceOptions& options) {
  const Spec parsed = parse_spec(spec, options.pixel.has_value());
  check_options(parsed, options);
  std::unique_ptr<FrameSource> source = open_plain(parsed, options);
  if (options.frames_per_second == 0) return source;
  return std::make_unique<PacedSource>(std::move(source), options.frames_per_second, options.late);
}

}  // namespace penstock::frames

#include "penstock/frames/sources/video_source.h"

#include <fmt/format.h>

#include <utility>

#include "penstock/frames/opencv/opencv_loader.h"
#include "penstock/util/error.h"
#include "penstock/util/process/steady_ns.h"
#include "penstock/util/text/printable.h"
#include "penstock/util/text/units.h"

namespace penstock::frames {

namespace {

using VideoKind = VideoAnswer::Kind;

/// The name without the password that a URL may hold.
std::string shown_name(const VideoRequest& request) {
  if (request.name.empty()) return fmt::format("camera:{}", request.camera);
  std::string name = printable(request.name);
  const size_t begin = name.find("://");
  if (begin == std::string::npos) return name;
  const size_t host = name.substr(0, name.find('/', begin + 3)).rfind('@');
  const size_t colon = name.find(':', begin + 3);
  if (host != std::string::npos && colon < host) name.replace(colon + 1, host - colon - 1, "...");
  return name;
}

std::string duration_of(std::chrono::milliseconds time) {
  return format_duration(std::chrono::nanoseconds(time).count());
}

}  // namespace

VideoSource::VideoSource(const VideoRequest& request, const std::filesystem::path& opencv_module)
    : name_(shown_name(request)),
      is_live_(request.name.empty() || request.name.find("://") != std::string::npos),
      request_(request),
      reader_(load_opencv(opencv_module), request) {
  // Twice: to open it, and for the first frame.
  const auto patience = 2 * request.open_timeout;
  if (!reader_.read(answer_, std::chrono::steady_clock::now() + patience)) {
    throw TimeoutError(
        fmt::format("{} delivered no frame within {}", name_, duration_of(patience)));
  }
  switch (answer_.kind) {
    case VideoKind::Picture:
      break;
    case VideoKind::Ended:
      throw ConfigError(fmt::format("{} holds no frames", name_));
    case VideoKind::NoneCame:
      throw TimeoutError(fmt::format("{} delivers no frames", name_));
    case VideoKind::NotOpened:
    case VideoKind::Failed:
      throw ConfigError(fmt::format(
          "cannot read {}: {}{}", name_, answer_.error,
          is_live_ ? "" : "; if it holds raw frames, say so by a pixel format, such as rgb24"));
  }
  has_first_ = true;
  size_ = answer_.size;
  first_size_ = answer_.own_size;
  // Some containers claim a tick of their clock as a frame.
  constexpr double kHighestRate = 1000;
  if (answer_.frames_per_second <= kHighestRate) frames_per_second_ = answer_.frames_per_second;
}

std::string VideoSource::describe() const {
  std::string text = fmt::format("{}, {}", name_, to_string(size_));
  if (frames_per_second_ > 0) {
    text += fmt::format(", {}{:.4g} frames/s", is_live_ ? "" : "recorded at ", frames_per_second_);
  }
  return text;
}

std::string VideoSource::remarks() const {
  std::string text;
  const int64_t decoded = answer_.decoded.value_or(answer_.announced);
  if (decoded < answer_.announced) {
    text =
        fmt::format("{} announces {} frames, {} were decoded", name_, answer_.announced, decoded);
    if (answer_.broken > 0) text += fmt::format(", {} could not be", answer_.broken);
  } else if (answer_.broken > 0) {
    text = fmt::format("{} frames of {} could not be decoded and were left out", answer_.broken,
                       name_);
  }
  if (changed_ == 0) return text;
  if (!text.empty()) text += "; ";
  return text + fmt::format(
                    "{} frames had another size than the first one ({}x{}) and were resized, the "
                    "last of these was {}x{}",
                    changed_, first_size_.width, first_size_.height, changed_size_.width,
                    changed_size_.height);
}

SourceCounts VideoSource::counts() const {
  return {.announced = answer_.announced, .broken = answer_.broken};
}

Next VideoSource::next(Frame& frame, Deadline deadline) {
  if (has_ended_) return Next::Ended;
  if (!has_first_ && !reader_.read(answer_, deadline)) return Next::Stalled;
  has_first_ = false;
  switch (answer_.kind) {
    case VideoKind::Picture:
      break;
    case VideoKind::Ended:
      has_ended_ = true;
      return Next::Ended;
    case VideoKind::NoneCame:
      throw TransportError(
          fmt::format("{} delivers no more frames: nothing came after frame {} "
                      "for up to {}",
                      name_, frames_ - 1, duration_of(request_.read_timeout)));
    case VideoKind::NotOpened:
    case VideoKind::Failed:
      throw RuntimeError(
          fmt::format("reading {} failed at frame {}: {}", name_, frames_, answer_.error));
  }
  if (answer_.own_size != first_size_) {
    ++changed_;
    changed_size_ = answer_.own_size;
  }
  frame.number = frames_++;
  // A file's frames come when they are taken, the first one too, which was read to know its size.
  frame.captured_ns = is_live_ ? answer_.came_ns : steady_ns();
  frame.size = size_;
  frame.pixel_labels.clear();
  frame.label.reset();
  std::swap(frame.pixels, answer_.pixels);
  return Next::Ready;
}

}  // namespace penstock::frames

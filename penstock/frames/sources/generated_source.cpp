#include "penstock/frames/sources/generated_source.h"

#include <fmt/format.h>

#include <algorithm>

#include "penstock/util/error.h"
#include "penstock/util/process/steady_ns.h"

namespace penstock::frames {

namespace {

const GeneratedOptions& checked(const GeneratedOptions& options) {
  check_frame_size(options.size, "the generated scene");
  if (options.size.width < kMinGeneratedSide || options.size.height < kMinGeneratedSide) {
    throw ConfigError(
        fmt::format("the generated scene: expected at least {0}x{0} pixels, found {1}",
                    kMinGeneratedSide, to_string(options.size)));
  }
  if (options.classes < 2 || options.classes > kMaxGeneratedClasses) {
    throw ConfigError(
        fmt::format("the generated scene: expected 2 to {} classes (the background "
                    "and kinds of objects), found {}",
                    kMaxGeneratedClasses, options.classes));
  }
  if (options.label_every < 0 || options.frames < 0) {
    throw ConfigError("the generated scene: expected no negative number of frames");
  }
  return options;
}

}  // namespace

GeneratedSource::GeneratedSource(const GeneratedOptions& options)
    : options_(checked(options)), scene_(options.size, options.seed, options.classes - 1) {}

std::string GeneratedSource::describe() const {
  return fmt::format("generated, {}, seed {}, {} classes", to_string(options_.size), options_.seed,
                     options_.classes);
}

int64_t GeneratedSource::skip(int64_t count) {
  const int64_t skipped =
      options_.frames > 0 ? std::min(count, options_.frames - next_frame_) : count;
  next_frame_ += skipped;
  return skipped;
}

Next GeneratedSource::next(Frame& frame, Deadline /*deadline*/) {
  if (options_.frames > 0 && next_frame_ >= options_.frames) return Next::Ended;
  frame.number = next_frame_++;
  frame.size = options_.size;
  frame.pixels.resize(static_cast<size_t>(frame_bytes(options_.size)));
  frame.label.reset();
  if (options_.label_every > 0 && frame.number % options_.label_every == 0) {
    frame.pixel_labels.resize(static_cast<size_t>(pixel_count(options_.size)));
    frame.label = scene_.draw_with_labels(frame.number, frame.pixels, frame.pixel_labels);
  } else {
    frame.pixel_labels.clear();
    scene_.draw(frame.number, frame.pixels);
  }
  frame.captured_ns = steady_ns();
  return Next::Ready;
}

}  // namespace penstock::frames

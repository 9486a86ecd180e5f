#include "penstock/frames/sources/raw_source.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "penstock/frames/known_files.h"
#include "penstock/util/error.h"
#include "penstock/util/process/steady_ns.h"

namespace penstock::frames {

RawSource::RawSource(RawInput input) : input_(std::move(input)) {
  try {
    check();
    raw_.resize(static_cast<size_t>(raw_frame_bytes(input_.format, input_.size)));
  } catch (...) {
    if (input_.owns_fd) ::close(input_.fd);
    throw;
  }
}

RawSource::~RawSource() {
  if (input_.owns_fd) ::close(input_.fd);
}

void RawSource::check() {
  check_frame_size(input_.size, input_.name);
  struct stat status {};
  if (::fstat(input_.fd, &status) != 0)
    throw ConfigError(fmt::format("cannot read {}: {}", input_.name, std::strerror(errno)));
  if (S_ISDIR(status.st_mode)) {
    throw ConfigError(
        fmt::format("cannot read {}: it is a folder, expected a file or a pipe", input_.name));
  }
  is_file_ = S_ISREG(status.st_mode);
  if (input_.repeats && !is_file_) {
    throw ConfigError(fmt::format("{} cannot be repeated: it is no file", input_.name));
  }
  if (!is_file_) return;
  std::array<char, kKnownFileBytes> begin{};
  const ssize_t got =
      ::pread(input_.fd, begin.data(), begin.size(), ::lseek(input_.fd, 0, SEEK_CUR));
  check_begin({begin.data(), static_cast<size_t>(std::max<ssize_t>(got, 0))});
}

std::string RawSource::describe() const {
  return fmt::format("{}, {}, raw {}", input_.name, to_string(input_.size),
                     to_string(input_.format));
}

std::string RawSource::remarks() const {
  if (tail_bytes_ == 0) return {};
  return fmt::format("{} ended inside frame {}: {} bytes were left, a frame has {}", input_.name,
                     tail_frame_, tail_bytes_, raw_.size());
}

void RawSource::fail(const char* action, int error) const {
  throw RuntimeError(fmt::format("{} {} failed at frame {}: {}", action, input_.name, frames_,
                                 std::strerror(error)));
}

bool RawSource::wait_for_bytes(Deadline deadline) const {
  constexpr int64_t kMaxMilliseconds = 3'600'000;
  while (true) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd waited{input_.fd, POLLIN, 0};
    const int found = ::poll(
        &waited, 1, static_cast<int>(std::clamp<int64_t>(left.count(), 0, kMaxMilliseconds)));
    if (found > 0) return true;
    if (found < 0 && errno != EINTR && errno != EAGAIN) fail("waiting for", errno);
    if (left.count() <= 0) return false;
  }
}

Next RawSource::read_raw(Deadline deadline) {
  while (read_bytes_ < raw_.size()) {
    if (!is_file_ && !wait_for_bytes(deadline)) return Next::Stalled;
    const ssize_t got = ::read(input_.fd, raw_.data() + read_bytes_, raw_.size() - read_bytes_);
    if (got > 0) {
      read_bytes_ += static_cast<size_t>(got);
      if (!is_file_ && frames_ == 0)
        check_begin({reinterpret_cast<const char*>(raw_.data()), read_bytes_});
    } else if (got == 0) {
      if (tail_bytes_ == 0) {
        tail_bytes_ = read_bytes_;
        tail_frame_ = frames_;
      }
      if (begin_again()) continue;
      has_ended_ = true;
      return Next::Ended;
    } else if (errno != EINTR && errno != EAGAIN) {
      fail("reading", errno);
    }
  }
  return Next::Ready;
}

void RawSource::check_begin(std::string_view begin) const {
  const std::string_view found = known_file(begin);
  if (found.empty()) return;
  throw ConfigError(fmt::format(
      "{} begins as {}, expected raw frames of {}, one behind the other, without a header: give a "
      "file by its name and without a pixel format, or turn it into raw frames (ffmpeg -i FILE -f "
      "rawvideo -pix_fmt {} -)",
      input_.name, found, to_string(input_.size), to_string(input_.format)));
}

bool RawSource::begin_again() {
  // A file without a whole frame would begin again for ever.
  if (!input_.repeats || frames_in_pass_ == 0) return false;
  read_bytes_ = 0;
  frames_in_pass_ = 0;
  return ::lseek(input_.fd, 0, SEEK_SET) == 0;
}

int64_t RawSource::skip(int64_t count) {
  struct stat status {};
  if (!is_file_ || has_ended_ || read_bytes_ > 0 || ::fstat(input_.fd, &status) != 0) return 0;
  const auto bytes = static_cast<int64_t>(raw_.size());
  const int64_t at = ::lseek(input_.fd, 0, SEEK_CUR);
  if (at < 0 || at > status.st_size) return 0;
  const int64_t skipped = std::min(count, (status.st_size - at) / bytes);
  if (skipped <= 0 || ::lseek(input_.fd, skipped * bytes, SEEK_CUR) < 0) return 0;
  frames_ += skipped;
  frames_in_pass_ += skipped;
  return skipped;
}

std::string RawSource::half_frame() const {
  if (read_bytes_ == 0 || has_ended_) return {};
  return fmt::format("{} of {} bytes of frame {} have come", read_bytes_, raw_.size(), frames_);
}

Next RawSource::next(Frame& frame, Deadline deadline) {
  if (has_ended_) return Next::Ended;
  const Next found = read_raw(deadline);
  if (found != Next::Ready) return found;
  frame.number = frames_++;
  ++frames_in_pass_;
  frame.captured_ns = steady_ns();
  frame.size = input_.size;
  frame.pixel_labels.clear();
  frame.label.reset();
  read_bytes_ = 0;
  if (is_plain(input_.format, input_.size) && frame.pixels.size() == raw_.size()) {
    std::swap(frame.pixels, raw_);
  } else {
    frame.pixels.resize(static_cast<size_t>(frame_bytes(input_.size)));
    convert_pixels(input_.format, input_.size, raw_.data(), frame.pixels.data());
  }
  return Next::Ready;
}

}  // namespace penstock::frames

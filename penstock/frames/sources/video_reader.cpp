#include "penstock/frames/sources/video_reader.h"

#include <atomic>
#include <utility>

#include "penstock/frames/opencv/opencv_loader.h"
#include "penstock/util/process/mutex.h"
#include "penstock/util/process/steady_ns.h"

namespace penstock::frames {

namespace {

using Answer = VideoAnswer::Kind;

/// What the thread alone uses.
class OpenVideo {
 public:
  OpenVideo(const OpencvInterface& opencv, VideoRequest request,
            const std::atomic<bool>& is_cancelled)
      : opencv_(opencv),
        request_(std::move(request)),
        is_cancelled_(is_cancelled),
        picture_(make_picture(opencv)),
        video_(nullptr, opencv.close_video) {}

  void read(VideoAnswer& answer) {
    answer.error.clear();
    if (!video_ && !open(answer)) return;
    answer.kind = read_kind(answer.error);
    count(answer);
    if (answer.kind == Answer::Ended && !decoded_) decoded_ = pictures_;
    if (answer.kind == Answer::Ended && request_.repeats && pictures_ > 0) {
      pictures_ = 0;
      broken_before_ = answer.broken;
      video_.reset();
      if (!open(answer)) return;
      answer.kind = read_kind(answer.error);
      count(answer);
    }
    answer.decoded = decoded_;
    answer.came_ns = steady_ns();
    if (answer.kind == Answer::Picture) take_over(answer);
  }

 private:
  bool open(VideoAnswer& answer) {
    const OpencvVideoRequest request{
        .name = request_.name.empty() ? nullptr : request_.name.c_str(),
        .camera = request_.camera,
        .width = request_.width,
        .height = request_.height,
        .open_timeout_ms = static_cast<int>(request_.open_timeout.count()),
        .read_timeout_ms = static_cast<int>(request_.read_timeout.count()),
        .is_cancelled = &is_cancelled_};
    OpencvError error;
    video_.reset(opencv_.open_video(&request, &error));
    if (video_) {
      answer.frames_per_second = opencv_.frames_per_second(video_.get());
      return true;
    }
    answer.kind = Answer::NotOpened;
    answer.error = text_of(error);
    return false;
  }

  void count(VideoAnswer& answer) {
    opencv_.counts(video_.get(), &answer.announced, &answer.broken);
    answer.broken += broken_before_;
  }

  Answer read_kind(std::string& why) {
    const int64_t timeout_ns = std::chrono::nanoseconds(request_.read_timeout).count();
    const int64_t begin_ns = steady_ns();
    OpencvError error;
    for (int quick_failures = 0; true;) {
      const int64_t call_ns = steady_ns();
      switch (opencv_.read_video(video_.get(), request_.channels, picture_.get(), &error)) {
        case OpencvRead::Picture:
          ++pictures_;
          return Answer::Picture;
        case OpencvRead::Ended:
          return Answer::Ended;
        case OpencvRead::Failed:
          why = text_of(error);
          return Answer::Failed;
        case OpencvRead::Nothing:
          break;
      }
      if (!request_.name.empty()) return Answer::NoneCame;
      // A camera that was slow is asked again; one that is gone says so at once.
      constexpr int64_t kQuickNs = 500'000'000;
      const int64_t now_ns = steady_ns();
      if (is_cancelled_ || now_ns - begin_ns >= timeout_ns) return Answer::NoneCame;
      if (now_ns - call_ns < kQuickNs && ++quick_failures == 3) return Answer::NoneCame;
    }
  }

  void take_over(VideoAnswer& answer) {
    answer.own_size.channels = request_.channels;
    opencv_.picture_size(picture_.get(), &answer.own_size.width, &answer.own_size.height);
    if (size_.width == 0) {
      size_ = answer.own_size;
      if (request_.width > 0) size_ = {request_.width, request_.height, request_.channels};
      check_frame_size(size_, "the video");
    }
    answer.size = size_;
    answer.pixels.resize(static_cast<size_t>(frame_bytes(size_)));
    OpencvError error;
    if (opencv_.copy_picture(picture_.get(), size_.width, size_.height, answer.pixels.data(),
                             &error))
      return;
    answer.kind = Answer::Failed;
    answer.error = text_of(error);
  }

  const OpencvInterface& opencv_;
  VideoRequest request_;
  const std::atomic<bool>& is_cancelled_;
  PictureHandle picture_;
  VideoHandle video_;
  FrameSize size_{0, 0, kRgb};
  int64_t pictures_ = 0;       ///< since it was opened
  int64_t broken_before_ = 0;  ///< before it was opened again
  std::optional<int64_t> decoded_;
};

}  // namespace

struct VideoReader::Shared {
  Shared(const OpencvInterface& opencv, VideoRequest request)
      : video(opencv, std::move(request), is_cancelled) {}

  void run() noexcept;

  std::atomic<bool> is_cancelled{false};
  OpenVideo video;  ///< the thread's
  Mutex mutex;
  CondVar changed;
  bool is_wanted GUARDED_BY(mutex) = false;
  bool is_answered GUARDED_BY(mutex) = false;
  bool is_closed GUARDED_BY(mutex) = false;
  bool has_ended GUARDED_BY(mutex) = false;
  /// The thread's while it reads: from is_wanted to is_answered.
  VideoAnswer answer;
};

void VideoReader::Shared::run() noexcept {
  while (true) {
    {
      MutexLock lock(mutex);
      const auto is_called = [this]() NO_THREAD_SAFETY_ANALYSIS { return is_wanted || is_closed; };
      while (!is_called())
        changed.wait_until(mutex, std::chrono::steady_clock::now() + std::chrono::hours(1),
                           is_called);
      if (is_closed) break;
    }
    try {
      video.read(answer);
    } catch (const std::exception& error) {
      answer.kind = Answer::Failed;
      answer.error = error.what();
    }
    MutexLock lock(mutex);
    is_wanted = false;
    is_answered = true;
    changed.notify_all();
  }
  MutexLock lock(mutex);
  has_ended = true;
  changed.notify_all();
}

VideoReader::VideoReader(const OpencvInterface& opencv, VideoRequest request)
    : shared_(std::make_shared<Shared>(opencv, std::move(request))) {
  thread_ = std::thread([shared = shared_] { shared->run(); });
}

VideoReader::~VideoReader() {
  bool has_ended = false;
  shared_->is_cancelled = true;
  {
    MutexLock lock(shared_->mutex);
    shared_->is_closed = true;
    shared_->changed.notify_all();
    has_ended = shared_->changed.wait_until(
        shared_->mutex, std::chrono::steady_clock::now() + kGoodbye,
        [this]() NO_THREAD_SAFETY_ANALYSIS { return shared_->has_ended; });
  }
  if (has_ended) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

bool VideoReader::read(VideoAnswer& answer, Deadline deadline) {
  Shared& shared = *shared_;
  MutexLock lock(shared.mutex);
  if (!shared.is_wanted && !shared.is_answered) {
    shared.is_wanted = true;
    shared.changed.notify_all();
  }
  if (!shared.changed.wait_until(shared.mutex, deadline, [&shared]() NO_THREAD_SAFETY_ANALYSIS {
        return shared.is_answered;
      }))
    return false;
  shared.is_answered = false;
  std::swap(answer, shared.answer);
  return true;
}

}  // namespace penstock::frames

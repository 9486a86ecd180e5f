// The functions of penstock-opencv.so.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <exception>
#include <memory>
#include <opencv2/core.hpp>
#include <opencv2/core/utils/logger.hpp>
#include <opencv2/imgcodecs.hpp>
#include <opencv2/imgproc.hpp>
#include <opencv2/videoio.hpp>
#include <string>
#include <vector>

#include "penstock/frames/opencv/module/ffmpeg_reader.h"
#include "penstock/frames/opencv/opencv_interface.h"

namespace penstock::frames {

struct OpencvPicture {
  cv::Mat pixels;           ///< grey or RGB
  cv::Mat raw;              ///< as it was decoded
  mutable cv::Mat resized;  ///< kept for its memory
};

/// A file or stream, or else a camera.
struct OpencvVideo {
  std::unique_ptr<FfmpegReader> reader;
  cv::VideoCapture camera;
};

namespace {

void write_error(std::string text, OpencvError* error) {
  // OpenCV's texts have several lines.
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  while (!text.empty() && text.back() == ' ') text.pop_back();
  const size_t count = std::min(text.size(), error->text.size() - 1);
  std::memcpy(error->text.data(), text.data(), count);
  error->text[count] = '\0';
}

/// No exception crosses the border: `call` runs, or the error says why not.
template <class Result, class Call>
Result guarded(Result failed, OpencvError* error, Call&& call) noexcept {
  try {
    return call();
  } catch (const cv::Exception& found) {
    write_error(found.err.empty() ? found.what() : found.err, error);
  } catch (const std::exception& found) {
    write_error(found.what(), error);
  } catch (...) {
    write_error("unknown error", error);
  }
  return failed;
}

void to_channels(int channels, OpencvPicture& picture) {
  const cv::Mat& raw = picture.raw;
  if (raw.depth() != CV_8U) throw cv::Exception(0, "its pixels are not bytes", "", "", 0);
  if (raw.channels() == channels && channels == 1) {
    raw.copyTo(picture.pixels);
    return;
  }
  int code = channels == 1 ? cv::COLOR_BGR2GRAY : cv::COLOR_BGR2RGB;
  if (raw.channels() == 1) code = cv::COLOR_GRAY2RGB;
  if (raw.channels() == 4) code = channels == 1 ? cv::COLOR_BGRA2GRAY : cv::COLOR_BGRA2RGB;
  cv::cvtColor(raw, picture.pixels, code);
}

OpencvPicture* make_picture() noexcept {
  try {
    return std::make_unique<OpencvPicture>().release();
  } catch (...) {
    return nullptr;
  }
}

void free_picture(OpencvPicture* picture) noexcept {
  const std::unique_ptr<OpencvPicture> owned(picture);
}

void picture_size(const OpencvPicture* picture, int* width, int* height) noexcept {
  *width = picture->pixels.cols;
  *height = picture->pixels.rows;
}

bool copy_picture(const OpencvPicture* picture, int width, int height, uint8_t* out,
                  OpencvError* error) noexcept {
  return guarded(false, error, [&] {
    const cv::Mat& pixels = picture->pixels;
    cv::Mat target(height, width, pixels.type(), out);
    if (pixels.cols == width && pixels.rows == height) {
      pixels.copyTo(target);
      return true;
    }
    const bool shrinks = pixels.cols >= width && pixels.rows >= height;
    cv::resize(pixels, picture->resized, target.size(), 0, 0,
               shrinks ? cv::INTER_AREA : cv::INTER_LINEAR);
    picture->resized.copyTo(target);
    return true;
  });
}

/// Of 16 bits the upper 8. A picture that uses few of the lower ones would lose nearly all shades.
void to_bytes(cv::Mat& raw) {
  if (raw.depth() != CV_16U) return;
  constexpr double kFewShades = 4096;
  double most = 0;
  cv::minMaxLoc(raw.reshape(1), nullptr, &most);
  if (most > 0 && most < kFewShades) {
    const int bits = std::bit_width(static_cast<unsigned>(most));
    throw cv::Exception(
        0,
        cv::format("its 16 bits hold values up to %d, of which %d shades would be left (and Pillow "
                   "makes white of all above 255): multiply them by %d, so that %d bits fill 16, "
                   "or store 8",
                   static_cast<int>(most), static_cast<int>(most) / 256 + 1, 1 << (16 - bits),
                   bits),
        "", "", 0);
  }
  raw.convertTo(raw, CV_8U, 1.0 / 257);
}

bool decode(const uint8_t* bytes, int64_t count, int channels, bool turns, OpencvPicture* picture,
            OpencvError* error) noexcept {
  return guarded(false, error, [&] {
    const cv::Mat content(1, static_cast<int>(count), CV_8U, const_cast<uint8_t*>(bytes));
    const int colours = channels == 1 ? cv::IMREAD_GRAYSCALE : cv::IMREAD_COLOR;
    picture->raw = cv::imdecode(
        content, colours | cv::IMREAD_ANYDEPTH | (turns ? 0 : cv::IMREAD_IGNORE_ORIENTATION));
    if (picture->raw.empty()) {
      write_error("it is no image of a known format, or damaged", error);
      return false;
    }
    to_bytes(picture->raw);
    to_channels(channels, *picture);
    return true;
  });
}

bool open_camera(const OpencvVideoRequest& request, cv::VideoCapture& capture) {
  if (!capture.open(request.camera, cv::CAP_V4L2)) return false;
  if (request.width > 0) {
    capture.set(cv::CAP_PROP_FRAME_WIDTH, request.width);
    capture.set(cv::CAP_PROP_FRAME_HEIGHT, request.height);
  }
  return true;
}

OpencvVideo* open_video(const OpencvVideoRequest* request, OpencvError* error) noexcept {
  return guarded(static_cast<OpencvVideo*>(nullptr), error, [&]() -> OpencvVideo* {
    auto video = std::make_unique<OpencvVideo>();
    if (request->name != nullptr) {
      video->reader = std::make_unique<FfmpegReader>(*request);
    } else if (!open_camera(*request, video->camera)) {
      write_error("there is no such camera, or another program uses it", error);
      return nullptr;
    }
    return video.release();
  });
}

void close_video(OpencvVideo* video) noexcept { const std::unique_ptr<OpencvVideo> owned(video); }

double frames_per_second(OpencvVideo* video) noexcept {
  OpencvError ignored;
  return guarded(0.0, &ignored, [&] {
    const double rate =
        video->reader ? video->reader->frames_per_second() : video->camera.get(cv::CAP_PROP_FPS);
    return std::isfinite(rate) && rate > 0 ? rate : 0.0;
  });
}

void counts(OpencvVideo* video, int64_t* announced, int64_t* broken) noexcept {
  *announced = video->reader ? video->reader->announced() : 0;
  *broken = video->reader ? video->reader->broken() : 0;
}

OpencvRead read_video(OpencvVideo* video, int channels, OpencvPicture* picture,
                      OpencvError* error) noexcept {
  return guarded(OpencvRead::Failed, error, [&]() -> OpencvRead {
    if (video->reader) return video->reader->read(channels, picture->pixels);
    if (!video->camera.read(picture->raw) || picture->raw.empty()) return OpencvRead::Nothing;
    to_channels(channels, *picture);
    return OpencvRead::Picture;
  });
}

int ignore_error(int, const char*, const char*, const char*, int, void*) { return 0; }

constexpr OpencvInterface kInterface = {
    .version = kOpencvVersion,
    .make_picture = make_picture,
    .free_picture = free_picture,
    .picture_size = picture_size,
    .copy_picture = copy_picture,
    .decode = decode,
    .open_video = open_video,
    .close_video = close_video,
    .frames_per_second = frames_per_second,
    .counts = counts,
    .read_video = read_video,
};

}  // namespace

}  // namespace penstock::frames

extern "C" __attribute__((visibility("default"))) const penstock::frames::OpencvInterface*
penstock_opencv() {
  try {
    // Errors are exceptions here, and nothing is printed.
    cv::utils::logging::setLogLevel(cv::utils::logging::LOG_LEVEL_SILENT);
    cv::redirectError(penstock::frames::ignore_error);
    av_log_set_level(AV_LOG_QUIET);
    // The processors belong to those who learn.
    cv::setNumThreads(1);
    return &penstock::frames::kInterface;
  } catch (...) {
    return nullptr;
  }
}

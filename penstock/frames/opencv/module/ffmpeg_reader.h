// Video files and streams by the libraries of ffmpeg. OpenCV (4.6, and later ones) reads them
// through the same libraries, but reads beyond the picture when a stream changes its pixel format
// (opencv/opencv#29699), shows stale pixels when it changes its size, and does not tell the end
// from an error. Internal to penstock-opencv.so.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <opencv2/core.hpp>
#include <string>

#include "penstock/frames/opencv/opencv_interface.h"

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libswscale/swscale.h>
}

namespace penstock::frames {

class FfmpegReader {
 public:
  /// Blocks for the request's `open_timeout_ms` at most. Throws std::runtime_error.
  explicit FfmpegReader(const OpencvVideoRequest& request);
  ~FfmpegReader() = default;
  FfmpegReader(const FfmpegReader&) = delete;
  FfmpegReader& operator=(const FfmpegReader&) = delete;

  /// 0: unknown.
  double frames_per_second() const;
  /// Frames that the container says it has, without those that it marks as not to be shown; 0: it
  /// does not say.
  int64_t announced() const;
  /// Packets that could not be decoded so far.
  int64_t broken() const { return broken_; }
  /// The next picture in its own size, turned as its metadata says, grey or RGB. Blocks for the
  /// request's `read_timeout_ms` at most. Packets that cannot be decoded are left out, up to a
  /// number in a row. Throws std::runtime_error.
  OpencvRead read(int channels, cv::Mat& pixels);

 private:
  struct Free {
    void operator()(AVFormatContext* format) const { avformat_close_input(&format); }
    void operator()(AVCodecContext* codec) const { avcodec_free_context(&codec); }
    void operator()(AVPacket* packet) const { av_packet_free(&packet); }
    void operator()(AVFrame* frame) const { av_frame_free(&frame); }
    void operator()(SwsContext* scaler) const { sws_freeContext(scaler); }
  };
  template <class Type>
  using Owned = std::unique_ptr<Type, Free>;

  /// When ffmpeg has to give up what it waits for.
  struct Limits {
    const std::atomic<bool>* is_cancelled = nullptr;
    int64_t until_ns = 0;
  };

  static int should_give_up(void* limits);
  void open_input(const OpencvVideoRequest& request);
  void open_decoder();
  /// Reads packets until the decoder has a picture in frame_.
  OpencvRead decode();
  /// Gives the decoder its next packet, or the end.
  OpencvRead feed();
  void note_broken(int code);
  void convert(int channels, cv::Mat& pixels);

  Limits limits_;  ///< outlives format_, which calls should_give_up
  int read_timeout_ms_;
  Owned<AVFormatContext> format_;
  Owned<AVCodecContext> codec_;
  Owned<AVPacket> packet_;
  Owned<AVFrame> frame_;
  Owned<SwsContext> scaler_;
  int stream_ = -1;
  int quarter_turns_ = 0;  ///< clockwise, to show the picture upright
  bool is_draining_ = false;
  int broken_in_row_ = 0;
  int64_t broken_ = 0;
  int64_t hidden_ = 0;  ///< packets that are not to be shown
  cv::Mat buffer_;
};

}  // namespace penstock::frames

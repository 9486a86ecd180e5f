#include "penstock/frames/opencv/module/ffmpeg_reader.h"

#include <netdb.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>

#include "penstock/frames/frame.h"
#include "penstock/util/process/steady_ns.h"

extern "C" {
#include <libavutil/display.h>
}

namespace penstock::frames {

namespace {

/// 8192 x 8192, as for images.
constexpr int64_t kMaxPixels = int64_t{1} << 26;
constexpr int kMaxBrokenInRow = 250;
constexpr int64_t kMillisecond = 1'000'000;

[[noreturn]] void fail(int code) {
  std::array<char, AV_ERROR_MAX_STRING_SIZE> text{};
  av_strerror(code, text.data(), text.size());
  throw std::runtime_error(text.data());
}

int checked(int code) {
  if (code < 0) fail(code);
  return code;
}

/// Throws if the URL's host has no address; ffmpeg tells that as an error of reading.
void check_host(const std::string& url) {
  const size_t begin = url.find("://") + 3;
  std::string host = url.substr(begin, url.find_first_of("/?#", begin) - begin);
  host.erase(0, host.rfind('@') + 1);
  if (host.empty() || host.front() == '[') return;
  host.erase(std::min(host.find(':'), host.size()));
  addrinfo* found = nullptr;
  const int code = getaddrinfo(host.c_str(), nullptr, nullptr, &found);
  if (code == 0) freeaddrinfo(found);
  if (code == EAI_NONAME || code == EAI_NODATA)
    throw std::runtime_error("host '" + host + "' is not found");
}

/// Cameras of phones note how they were held.
int quarter_turns_of(const AVStream& stream) {
  const uint8_t* const matrix =
      av_stream_get_side_data(&stream, AV_PKT_DATA_DISPLAYMATRIX, nullptr);
  if (matrix == nullptr) return 0;
  const double degrees = -av_display_rotation_get(reinterpret_cast<const int32_t*>(matrix));
  if (!std::isfinite(degrees)) return 0;
  return (static_cast<int>(std::lround(degrees / 90)) % 4 + 4) % 4;
}

}  // namespace

int FfmpegReader::should_give_up(void* limits) {
  const auto* const own = static_cast<const Limits*>(limits);
  return *own->is_cancelled || steady_ns() > own->until_ns ? 1 : 0;
}

FfmpegReader::FfmpegReader(const OpencvVideoRequest& request)
    : limits_{request.is_cancelled, steady_ns() + request.open_timeout_ms * kMillisecond},
      read_timeout_ms_(request.read_timeout_ms),
      packet_(av_packet_alloc()),
      frame_(av_frame_alloc()) {
  if (!packet_ || !frame_) fail(AVERROR(ENOMEM));
  open_input(request);
  open_decoder();
}

void FfmpegReader::open_input(const OpencvVideoRequest& request) {
  // A colon in the name of a file would name a protocol.
  std::string name = request.name;
  const bool is_url = name.find("://") != std::string::npos;
  if (!is_url) name = "file:" + name;
  AVFormatContext* format = avformat_alloc_context();
  if (format == nullptr) fail(AVERROR(ENOMEM));
  format->interrupt_callback = {should_give_up, &limits_};
  if (is_url) format->flags |= AVFMT_FLAG_NOBUFFER;
  AVDictionary* options = nullptr;
  av_dict_set(&options, "rtsp_transport", "tcp", 0);
  const int code = avformat_open_input(&format, name.c_str(), nullptr, &options);
  av_dict_free(&options);
  if (code < 0) {  // it has freed `format`
    if (code == AVERROR_EXIT) throw std::runtime_error("no answer in time");
    if (is_url) check_host(name);
    // What ffmpeg 5 says of a YUV4MPEG2 header with a size that no picture has.
    if (!is_url && code == AVERROR(EBUSY))
      throw std::runtime_error("the video has no valid frame size, or its header is damaged");
    fail(code);
  }
  format_.reset(format);
  checked(avformat_find_stream_info(format, nullptr));
}

void FfmpegReader::open_decoder() {
  const AVCodec* decoder = nullptr;
  stream_ = av_find_best_stream(format_.get(), AVMEDIA_TYPE_VIDEO, -1, -1, &decoder, 0);
  if (stream_ == AVERROR_STREAM_NOT_FOUND) throw std::runtime_error("it has no video");
  checked(stream_);
  const AVStream& stream = *format_->streams[stream_];
  codec_.reset(avcodec_alloc_context3(decoder));
  if (!codec_) fail(AVERROR(ENOMEM));
  checked(avcodec_parameters_to_context(codec_.get(), stream.codecpar));
  // Several threads would hold frames back, and take processors from those who learn.
  codec_->thread_count = 1;
  codec_->max_pixels = kMaxPixels;
  checked(avcodec_open2(codec_.get(), decoder, nullptr));
  quarter_turns_ = quarter_turns_of(stream);
}

double FfmpegReader::frames_per_second() const {
  AVStream* const stream = format_->streams[stream_];
  const AVRational rate = av_guess_frame_rate(format_.get(), stream, nullptr);
  return rate.num > 0 && rate.den > 0 ? av_q2d(rate) : 0;
}

int64_t FfmpegReader::announced() const {
  return std::max<int64_t>(0, format_->streams[stream_]->nb_frames - hidden_);
}

OpencvRead FfmpegReader::read(int channels, cv::Mat& pixels) {
  limits_.until_ns = steady_ns() + read_timeout_ms_ * kMillisecond;
  const OpencvRead found = decode();
  if (found == OpencvRead::Picture) convert(channels, pixels);
  return found;
}

OpencvRead FfmpegReader::decode() {
  while (true) {
    const int code = avcodec_receive_frame(codec_.get(), frame_.get());
    if (code == 0) {
      broken_in_row_ = 0;
      return OpencvRead::Picture;
    }
    if (code == AVERROR_EOF) return OpencvRead::Ended;
    if (code != AVERROR(EAGAIN)) note_broken(code);
    const OpencvRead fed = feed();
    if (fed != OpencvRead::Picture) return fed;
  }
}

OpencvRead FfmpegReader::feed() {
  if (is_draining_) return OpencvRead::Ended;
  int code = 0;
  do {
    av_packet_unref(packet_.get());
    code = av_read_frame(format_.get(), packet_.get());
  } while (code >= 0 && packet_->stream_index != stream_);
  if (code == AVERROR_EXIT) return OpencvRead::Nothing;
  if (code == AVERROR(EAGAIN)) return OpencvRead::Picture;  // ask again
  if (code == AVERROR_EOF) {
    is_draining_ = true;
    checked(avcodec_send_packet(codec_.get(), nullptr));
    return OpencvRead::Picture;
  }
  checked(code);
  if ((packet_->flags & AV_PKT_FLAG_DISCARD) != 0) ++hidden_;
  code = avcodec_send_packet(codec_.get(), packet_.get());
  av_packet_unref(packet_.get());
  if (code < 0) note_broken(code);
  return OpencvRead::Picture;
}

void FfmpegReader::note_broken(int code) {
  ++broken_;
  if (++broken_in_row_ > kMaxBrokenInRow) fail(code);
}

void FfmpegReader::convert(int channels, cv::Mat& pixels) {
  const int width = frame_->width;
  const int height = frame_->height;
  const bool is_grey = channels == kGrey;
  SwsContext* const scaler = sws_getCachedContext(
      scaler_.release(), width, height, static_cast<AVPixelFormat>(frame_->format), width, height,
      is_grey ? AV_PIX_FMT_GRAY8 : AV_PIX_FMT_RGB24, SWS_BILINEAR, nullptr, nullptr, nullptr);
  if (scaler == nullptr) throw std::runtime_error("its pixel format cannot be converted");
  scaler_.reset(scaler);
  // The scaler may write a little beyond the end of a row.
  constexpr int kRoom = 64;
  buffer_.create(height + 1, (width + 2 * kRoom - 1) / kRoom * kRoom, is_grey ? CV_8UC1 : CV_8UC3);
  uint8_t* const rows[] = {buffer_.data, nullptr, nullptr, nullptr};
  const int steps[] = {static_cast<int>(buffer_.step), 0, 0, 0};
  checked(sws_scale(scaler, frame_->data, frame_->linesize, 0, height, rows, steps));
  const cv::Mat upright = buffer_(cv::Rect(0, 0, width, height));
  if (quarter_turns_ == 0) {
    pixels = upright;
    return;
  }
  constexpr std::array<int, 3> kTurns = {cv::ROTATE_90_CLOCKWISE, cv::ROTATE_180,
                                         cv::ROTATE_90_COUNTERCLOCKWISE};
  cv::rotate(upright, pixels, kTurns[static_cast<size_t>(quarter_turns_ - 1)]);
}

}  // namespace penstock::frames

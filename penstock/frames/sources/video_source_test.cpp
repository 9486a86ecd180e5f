#include "penstock/frames/sources/video_source.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "penstock/frames/frame_queue.h"
#include "penstock/frames/opencv/testing_opencv.h"
#include "penstock/frames/testing_frames.h"
#include "penstock/util/files/files.h"
#include "penstock/util/numbers/rng.h"

namespace penstock::frames {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::unique_ptr<VideoSource> open_video(const VideoRequest& request) {
  return std::make_unique<VideoSource>(request, kTestModule);
}

/// The first value of each frame, in tens.
std::vector<int> tens_of(FrameSource& source, int most = 100) {
  std::vector<int> values;
  Frame frame;
  while (static_cast<int>(values.size()) < most && source.next(frame, soon()) == Next::Ready) {
    EXPECT_EQ(frame.size, source.size());
    EXPECT_EQ(static_cast<int64_t>(frame.pixels.size()), frame_bytes(source.size()));
    const auto [low, high] = std::minmax_element(frame.pixels.begin(), frame.pixels.end());
    EXPECT_LE(*high - *low, 2);
    values.push_back((frame.pixels[0] + 5) / 10);
  }
  return values;
}

/// Takes one connection, sends an answer, and then nothing.
class SilentServer {
 public:
  explicit SilentServer(std::string answer = "")
      : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(fd_, 4), 0);
    socklen_t size = sizeof address;
    EXPECT_EQ(::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this, text = std::move(answer)] {
      peer_ = ::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
      size_t sent = 0;
      while (peer_ >= 0 && sent < text.size()) {
        const ssize_t done = ::send(peer_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
        if (done <= 0) break;
        sent += static_cast<size_t>(done);
      }
    });
  }
  ~SilentServer() {
    ::shutdown(fd_, SHUT_RDWR);  // wakes accept4
    thread_.join();
    if (peer_ >= 0) ::close(peer_);
    ::close(fd_);
  }
  SilentServer(const SilentServer&) = delete;
  SilentServer& operator=(const SilentServer&) = delete;
  int port() const { return port_; }

 private:
  int fd_;
  int peer_ = -1;
  int port_ = 0;
  std::thread thread_;
};

/// A stream of JPEG images, as network cameras send them.
std::string camera_answer(const TestFolder& folder, int frames) {
  write_media("image", folder / "image.jpg", 64, 48, 30, 30, 30);
  const std::string image = read_file(folder / "image.jpg");
  std::string answer =
      "HTTP/1.0 200 OK\r\nContent-Type: multipart/x-mixed-replace; boundary=frame\r\n\r\n";
  for (int i = 0; i < frames; ++i) {
    answer += fmt::format("--frame\r\nContent-Type: image/jpeg\r\nContent-Length: {}\r\n\r\n{}\r\n",
                          image.size(), image);
  }
  return answer + "--frame\r\n";
}

TEST(VideoSource, AFileDeliversItsFramesAndEnds) {
  SKIP_WITHOUT_OPENCV();
  const TestFolder folder;
  write_media("video", folder / "v.avi", 64, 48, 5, 20);
  const auto source = open_video({.name = (folder / "v.avi").string()});
  EXPECT_EQ(source->size(), (FrameSize{64, 48, kRgb}));
  EXPECT_EQ(source->frames_per_second(), 20);
  EXPECT_FALSE(source->is_live());
  EXPECT_EQ(source->describe(),
            (folder / "v.avi").string() + ", 64x48 RGB, recorded at 20 frames/s");
  EXPECT_EQ(tens_of(*source), (std::vector<int>{1, 2, 3, 4, 5}));
  Frame frame;
  EXPECT_EQ(source->next(frame, soon()), Next::Ended);
  EXPECT_EQ(source->remarks(), "");
}

TEST(VideoSource, AFileRepeatsIfAskedGreyAndResized) {
  SKIP_WITHOUT_OPENCV();
  const TestFolder folder;
  write_media("video", folder / "v.avi", 64, 48, 2, 20);
  const auto source = open_video({.name = (folder / "v.avi").string(),
                                  .width = 10,
                                  .height = 9,
                                  .channels = kGrey,
                                  .repeats = true});
  EXPECT_EQ(source->size(), (FrameSize{10, 9, kGrey}));
  EXPECT_EQ(tens_of(*source, 5), (std::vector<int>{1, 2, 1, 2, 1}));
}

TEST(VideoSource, FramesOfAnotherSizeAreResizedAndCounted) {
  SKIP_WITHOUT_OPENCV();
  const TestFolder folder;
  write_media("image", folder / "large.jpg", 64, 48, 30, 30, 30);
  write_media("image", folder / "small.jpg", 32, 16, 60, 60, 60);
  // A stream of JPEG images, as simple cameras send them.
  const std::string large = read_file(folder / "large.jpg");
  const std::string small = read_file(folder / "small.jpg");
  folder.write("v.mjpeg", large + large + small + small + large);
  const auto source = open_video({.name = (folder / "v.mjpeg").string()});
  EXPECT_EQ(source->size(), (FrameSize{64, 48, kRgb}));
  EXPECT_EQ(tens_of(*source), (std::vector<int>{3, 3, 6, 6, 3}));
  EXPECT_EQ(source->remarks(),
            "2 frames had another size than the first one (64x48) and were resized, the last of "
            "these was 32x16");
}

TEST(VideoSource, PixelFormatsMayChange) {
  SKIP_WITHOUT_OPENCV();
  const TestFolder folder;
  write_media("grey", folder / "grey.jpg", 64, 48, 30);
  write_media("image", folder / "colour.jpg", 64, 48, 60, 60, 60);
  const std::string grey = read_file(folder / "grey.jpg");
  const std::string colour = read_file(folder / "colour.jpg");
  folder.write("v.mjpeg", grey + colour + grey + colour);
  const auto source = open_video({.name = (folder / "v.mjpeg").string()});
  EXPECT_EQ(tens_of(*source), (std::vector<int>{3, 6, 3, 6}));
}

TEST(VideoSource, ATruncatedFileEndsEarlyAndSilently) {
  SKIP_WITHOUT_OPENCV();
  const TestFolder folder;
  write_media("video", folder / "v.avi", 64, 48, 20, 20);
  const std::string whole = read_file(folder / "v.avi");
  folder.write("short.avi", whole.substr(0, whole.size() / 2));
  testing::internal::CaptureStderr();
  const auto source = open_video({.name = (folder / "short.avi").string()});
  const size_t frames = tens_of(*source).size();
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_GE(frames, 5u);
  EXPECT_LT(frames, 20u);
  EXPECT_EQ(source->counts().announced, 20);
  EXPECT_THAT(source->remarks(),
              HasSubstr(fmt::format("short.avi announces 20 frames, {} were decoded", frames)));
}

TEST(VideoSource, FramesThatCannotBeDecodedAreCounted) {
  SKIP_WITHOUT_OPENCV();
  const TestFolder folder;
  write_media("video", folder / "v.avi", 64, 48, 12, 20);
  std::string content = read_file(folder / "v.avi");
  Rng rng(7);
  // Each picture is a chunk: its name, four bytes of its length, and a JPEG.
  int picture = 0;
  for (size_t at = content.find("00dc"); at != std::string::npos && picture < 12;
       at = content.find("00dc", at + 1), ++picture) {
    if (picture % 4 != 2) continue;
    const auto bytes =
        static_cast<uint8_t>(content[at + 4]) + size_t{256} * static_cast<uint8_t>(content[at + 5]);
    for (size_t i = 8; i < 8 + bytes; ++i) content[at + i] = static_cast<char>(rng.next());
  }
  ASSERT_EQ(picture, 12);
  folder.write("damaged.avi", content);
  const std::string name = (folder / "damaged.avi").string();
  for (const bool repeats : {false, true}) {
    const auto source = open_video({.name = name, .repeats = repeats});
    Frame frame;
    for (int k = 0; k < (repeats ? 10 : 9); ++k)
      ASSERT_EQ(source->next(frame, soon()), Next::Ready);
    if (!repeats) {
      EXPECT_EQ(source->next(frame, soon()), Next::Ended);
    }
    EXPECT_EQ(source->counts().announced, 12);
    EXPECT_EQ(source->counts().broken, 3);
    EXPECT_EQ(source->remarks(), name + " announces 12 frames, 9 were decoded, 3 could not be");
  }
}

TEST(VideoSource, AVideoWithoutAFrameSizeIsRefusedAsThat) {
  SKIP_WITHOUT_OPENCV();
  const TestFolder folder;
  folder.write("zero.y4m", "YUV4MPEG2 W0 H0 F25:1\nFRAME\n");
  folder.write("huge.y4m", "YUV4MPEG2 W60000 H60000 F25:1\nFRAME\n");
  EXPECT_THAT(
      message_of<ConfigError>([&] { open_video({.name = (folder / "zero.y4m").string()}); }),
      AllOf(HasSubstr("zero.y4m: "), HasSubstr("no valid frame size")));
  EXPECT_THAT(
      message_of<ConfigError>([&] { open_video({.name = (folder / "huge.y4m").string()}); }),
      AllOf(HasSubstr("huge.y4m: "), HasSubstr("no valid frame size")));
}

TEST(VideoSource, AnUnknownHostIsNamed) {
  SKIP_WITHOUT_OPENCV();
  EXPECT_THAT(message_of<ConfigError>([] { open_video({.name = "http://none.invalid/v.mjpg"}); }),
              HasSubstr("host 'none.invalid' is not found"));
}

TEST(VideoSource, AFilesFirstFrameComesWhenItIsTaken) {
  SKIP_WITHOUT_OPENCV();
  const TestFolder folder;
  write_media("video", folder / "v.avi", 64, 48, 3, 20);
  const auto source = open_video({.name = (folder / "v.avi").string()});
  const int64_t opened_ns = steady_ns();  // as long after that as its user likes
  Frame frame;
  ASSERT_EQ(source->next(frame, soon()), Next::Ready);
  EXPECT_GE(frame.captured_ns, opened_ns);
}

TEST(VideoSource, ADamagedFileEndsOrIsAnError) {
  SKIP_WITHOUT_OPENCV();
  const TestFolder folder;
  write_media("video", folder / "v.avi", 64, 48, 6, 20);
  const std::string whole = read_file(folder / "v.avi");
  Rng rng(5);
  int opened = 0;
  testing::internal::CaptureStderr();
  for (int round = 0; round < 40; ++round) {
    std::string damaged = whole;
    for (int i = 0; i < 1 + round; ++i)
      damaged[rng.below(damaged.size())] = static_cast<char>(rng.next());
    folder.write("damaged.avi", damaged);
    try {
      const auto source = open_video({.name = (folder / "damaged.avi").string()});
      ++opened;
      Frame frame;
      for (int i = 0; i < 100 && source->next(frame, soon()) == Next::Ready; ++i) {
        EXPECT_EQ(static_cast<int64_t>(frame.pixels.size()), frame_bytes(source->size()));
      }
    } catch (const Error&) {
    }
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_GT(opened, 10);
}

TEST(VideoSource, RefusesWhatIsNoVideo) {
  SKIP_WITHOUT_OPENCV();
  const TestFolder folder;
  folder.write("v.avi", "RIFF is not enough");
  folder.write("empty.mp4", "");
  testing::internal::CaptureStderr();
  for (const char* name : {"v.avi", "empty.mp4", "nothing.mp4"}) {
    EXPECT_THAT(message_of<ConfigError>([&] { open_video({.name = (folder / name).string()}); }),
                AllOf(HasSubstr("cannot read "), HasSubstr(name), HasSubstr("a pixel format")));
  }
  EXPECT_THAT(message_of<ConfigError>([&] { open_video({.camera = 63}); }),
              HasSubstr("cannot read camera:63: there is no such camera"));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(VideoSource, AServerThatSaysNothingIsGivenUp) {
  SKIP_WITHOUT_OPENCV();
  const SilentServer server;
  const int64_t begin_ns = steady_ns();
  std::string message;
  try {
    open_video({.name = fmt::format("http://user:secret@127.0.0.1:{}/v.mjpg", server.port()),
                .open_timeout = std::chrono::milliseconds(300),
                .read_timeout = std::chrono::milliseconds(300)});
  } catch (const Error& error) {
    message = error.what();
  }
  EXPECT_THAT(message,
              AllOf(HasSubstr("http://user:...@127.0.0.1"), testing::Not(HasSubstr("secret"))));
  EXPECT_LT(steady_ns() - begin_ns, 8'000'000'000);
}

TEST(VideoSource, AStreamThatStallsIsNoticedAndGivenUp) {
  SKIP_WITHOUT_OPENCV();
  const TestFolder folder;
  const SilentServer server(camera_answer(folder, 60));
  const auto source = open_video({.name = fmt::format("http://127.0.0.1:{}/v", server.port()),
                                  .read_timeout = std::chrono::milliseconds(400)});
  EXPECT_TRUE(source->is_live());
  Frame frame;
  for (int i = 0; i < 59; ++i) ASSERT_EQ(source->next(frame, soon()), Next::Ready) << i;
  Next found = Next::Ready;
  while (found == Next::Ready) found = source->next(frame, in_ms(50));
  EXPECT_EQ(found, Next::Stalled);
  EXPECT_THAT(message_of<TransportError>([&] { source->next(frame, soon()); }),
              HasSubstr("delivers no more frames"));
}

TEST(VideoSource, AStreamThatStallsDoesNotHoldUpTheEnd) {
  SKIP_WITHOUT_OPENCV();
  const TestFolder folder;
  const SilentServer server(camera_answer(folder, 60));
  const std::string name = fmt::format("http://127.0.0.1:{}/v", server.port());
  auto queue = std::make_unique<FrameQueue>(open_video({.name = name}));
  Frame frame;
  while (queue->take(frame, in_ms(200)) == Next::Ready) {
  }
  const int64_t begin_ns = steady_ns();
  queue.reset();
  EXPECT_LT(steady_ns() - begin_ns, 1'000'000'000);
}

TEST(VideoSource, ComesThroughAQueue) {
  SKIP_WITHOUT_OPENCV();
  const TestFolder folder;
  write_media("video", folder / "v.avi", 32, 32, 12, 20);
  FrameQueue queue(open_video({.name = (folder / "v.avi").string()}), {.waits_when_full = true});
  Frame frame;
  int64_t frames = 0;
  while (queue.take(frame, soon()) == Next::Ready) EXPECT_EQ(frame.number, frames++);
  EXPECT_EQ(frames, 12);
  EXPECT_EQ(queue.counters().end_reason, "the source ended");
}

}  // namespace
}  // namespace penstock::frames

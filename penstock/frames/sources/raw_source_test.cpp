#include "penstock/frames/sources/raw_source.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <array>

#include "penstock/frames/frame_queue.h"
#include "penstock/frames/testing_frames.h"

namespace penstock::frames {
namespace {

using testing::HasSubstr;

/// A pipe into a source of 2x1 grey frames.
class Pipe {
 public:
  Pipe() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    read_end_ = ends[0];
    write_end_ = ends[1];
  }
  ~Pipe() { close(); }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  RawInput input() const {
    return {.fd = read_end_,
            .owns_fd = true,
            .name = "a pipe",
            .size = {2, 1, kGrey},
            .format = PixelFormat::Gray};
  }
  void write(const std::string& bytes) const {
    EXPECT_EQ(::write(write_end_, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  }
  void close() {
    if (write_end_ >= 0) ::close(write_end_);
    write_end_ = -1;
  }

 private:
  int read_end_ = -1;  ///< the source closes it
  int write_end_ = -1;
};

std::string text_of(const Frame& frame) { return {frame.pixels.begin(), frame.pixels.end()}; }

TEST(RawSource, ReadsFrameByFrame) {
  Pipe pipe;
  RawSource source(pipe.input());
  pipe.write("aabbcc");
  pipe.close();
  Frame frame;
  std::string all;
  while (source.next(frame, soon()) == Next::Ready) {
    EXPECT_EQ(frame.number, static_cast<int64_t>(all.size()) / 2);
    all += text_of(frame);
  }
  EXPECT_EQ(all, "aabbcc");
  EXPECT_EQ(source.remarks(), "");
  EXPECT_TRUE(source.is_live());
  EXPECT_EQ(source.describe(), "a pipe, 2x1 grey, raw gray");
}

TEST(RawSource, AStallKeepsThePartThatHasCome) {
  Pipe pipe;
  RawSource source(pipe.input());
  Frame frame;
  const int64_t begin_ns = steady_ns();
  EXPECT_EQ(source.next(frame, in_ms(30)), Next::Stalled);
  EXPECT_GE(steady_ns() - begin_ns, 29'000'000);
  pipe.write("x");
  EXPECT_EQ(source.next(frame, in_ms(5)), Next::Stalled);
  pipe.write("yz");
  EXPECT_EQ(source.next(frame, in_ms(-5)), Next::Ready);
  EXPECT_EQ(text_of(frame), "xy");
  EXPECT_EQ(source.next(frame, in_ms(5)), Next::Stalled);
}

TEST(RawSource, SaysHowMuchOfAFrameHasCome) {
  Pipe pipe;
  RawSource source(pipe.input());
  Frame frame;
  pipe.write("aab");
  ASSERT_EQ(source.next(frame, soon()), Next::Ready);
  EXPECT_EQ(source.half_frame(), "");
  ASSERT_EQ(source.next(frame, in_ms(20)), Next::Stalled);
  EXPECT_EQ(source.half_frame(), "1 of 2 bytes of frame 1 have come");
  EXPECT_EQ(source.skip(1), 0);  // a pipe cannot leave frames out
}

TEST(RawSource, BytesThatAreNoWholeFrameAreReported) {
  Pipe pipe;
  RawSource source(pipe.input());
  pipe.write("aab");
  pipe.close();
  Frame frame;
  EXPECT_EQ(source.next(frame, soon()), Next::Ready);
  EXPECT_EQ(source.next(frame, soon()), Next::Ended);
  EXPECT_EQ(source.next(frame, soon()), Next::Ended);
  EXPECT_EQ(source.remarks(), "a pipe ended inside frame 1: 1 bytes were left, a frame has 2");
}

TEST(RawSource, ASilentPipeDoesNotHoldUpTheEnd) {
  const Pipe pipe;
  auto queue = std::make_unique<FrameQueue>(std::make_unique<RawSource>(pipe.input()));
  Frame frame;
  EXPECT_EQ(queue->take(frame, in_ms(20)), Next::Stalled);
  const int64_t begin_ns = steady_ns();
  queue.reset();
  EXPECT_LT(steady_ns() - begin_ns, 1'000'000'000);
}

TEST(RawSource, NeverReadsBeyondTheFrame) {
  const TestFolder folder;
  folder.write("raw", "aabbcc");
  const int fd = ::open((folder / "raw").c_str(), O_RDONLY | O_CLOEXEC);
  RawSource source({.fd = fd,
                    .owns_fd = true,
                    .name = "raw",
                    .size = {2, 1, kRgb},
                    .format = PixelFormat::Gray});
  Frame frame;
  ASSERT_EQ(source.next(frame, soon()), Next::Ready);
  EXPECT_EQ(text_of(frame), "aaaaaa");
  EXPECT_EQ(::lseek(fd, 0, SEEK_CUR), 2);
  EXPECT_FALSE(source.is_live());
}

TEST(RawSource, AFileRepeatsIfAsked) {
  const TestFolder folder;
  folder.write("raw", "aabb");
  folder.write("short", "a");
  const auto open_file = [&](const char* name) {
    return RawInput{.fd = ::open((folder / name).c_str(), O_RDONLY | O_CLOEXEC),
                    .owns_fd = true,
                    .name = name,
                    .size = {2, 1, kGrey},
                    .format = PixelFormat::Gray,
                    .repeats = true};
  };
  RawSource source(open_file("raw"));
  Frame frame;
  std::string all;
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(source.next(frame, soon()), Next::Ready);
    all += text_of(frame);
  }
  EXPECT_EQ(all, "aabbaabbaa");
  folder.write("ragged", "aabbc");
  RawSource ragged(open_file("ragged"));
  all.clear();
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(ragged.next(frame, soon()), Next::Ready);
    all += text_of(frame);
  }
  EXPECT_EQ(all, "aabbaabbaa");
  EXPECT_EQ(ragged.remarks(), "ragged ended inside frame 2: 1 bytes were left, a frame has 2");
  RawSource endless(open_file("short"));
  EXPECT_EQ(endless.next(frame, soon()), Next::Ended);
  EXPECT_THAT(endless.remarks(), HasSubstr("1 bytes were left"));
}

TEST(RawSource, LeavesFramesOfAFileOut) {
  const TestFolder folder;
  folder.write("raw", "aabbccddee");
  RawSource source({.fd = ::open((folder / "raw").c_str(), O_RDONLY | O_CLOEXEC),
                    .owns_fd = true,
                    .name = "raw",
                    .size = {2, 1, kGrey},
                    .format = PixelFormat::Gray});
  Frame frame;
  EXPECT_EQ(source.skip(2), 2);
  ASSERT_EQ(source.next(frame, soon()), Next::Ready);
  EXPECT_EQ(text_of(frame), "cc");
  EXPECT_EQ(frame.number, 2);
  EXPECT_EQ(source.skip(9), 2);
  EXPECT_EQ(source.next(frame, soon()), Next::Ended);
  EXPECT_EQ(source.remarks(), "");
}

TEST(RawSource, RefusesWhatItCannotRead) {
  const auto refusal = [](const RawInput& input) {
    return message_of<ConfigError>([&] { RawSource source(input); });
  };
  const RawInput input{.fd = 0, .name = "input", .size = {2, 2, kRgb}};
  RawInput changed = input;
  changed.fd = -1;
  EXPECT_THAT(refusal(changed), HasSubstr("cannot read input: Bad file descriptor"));
  changed = input;
  changed.size = {0, 2, kRgb};
  EXPECT_THAT(refusal(changed), HasSubstr("found 0x2"));
  changed.size = {16384, 16384, kRgb};
  EXPECT_THAT(refusal(changed), HasSubstr("takes 805 MB"));
  changed = input;
  changed.fd = ::open("/", O_RDONLY | O_CLOEXEC);
  changed.owns_fd = true;
  EXPECT_THAT(refusal(changed), HasSubstr("it is a folder"));
  Pipe pipe;
  changed = pipe.input();
  changed.repeats = true;
  EXPECT_THAT(refusal(changed), HasSubstr("a pipe cannot be repeated"));
}

TEST(RawSource, AReadThatFailsIsAnError) {
  const TestFolder folder;
  folder.write("raw", "aabb");
  const int fd = ::open((folder / "raw").c_str(), O_WRONLY | O_CLOEXEC);
  RawSource source({.fd = fd,
                    .owns_fd = true,
                    .name = "the file",
                    .size = {2, 1, kGrey},
                    .format = PixelFormat::Gray});
  Frame frame;
  EXPECT_THAT(message_of<RuntimeError>([&] { source.next(frame, soon()); }),
              HasSubstr("reading the file failed at frame 0: Bad file descriptor"));
}

TEST(RawSource, AVideoOrAnArchiveIsNoRawFrames) {
  const std::pair<std::string, std::string> kFiles[] = {
      {"YUV4MPEG2 W2 H2 F25:1\nFRAME\n", "a YUV4MPEG2 video (.y4m)"},
      {std::string("\0\0\0\x20"
                   "ftypisom\0\0\0\0",
                   16),
       "an MP4 or QuickTime video"},
      {std::string("RIFF\x10\0\0\0AVI LIST", 16), "an AVI video"},
      {std::string("\x89PNG\r\n\x1A\n\0\0\0\rIHDR", 16), "a PNG image"},
      {std::string("\x1F\x8B\x08\0abcd\0\x03rest..", 16), "a gzip file"}};
  for (const auto& [content, name] : kFiles) {
    Pipe pipe;
    RawInput input = pipe.input();
    input.size = {4, 4, kGrey};
    RawSource source(input);
    pipe.write(content.substr(0, 5));  // as it comes
    Frame frame;
    EXPECT_EQ(source.next(frame, std::chrono::steady_clock::now()), Next::Stalled) << name;
    pipe.write(content.substr(5));
    try {
      source.next(frame, soon());
      ADD_FAILURE() << name << " was read as pixels";
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), testing::AllOf(HasSubstr("a pipe begins as " + name),
                                               HasSubstr("-pix_fmt gray")));
    }
  }
}

TEST(RawSource, AFileThatIsNoRawFramesIsRefusedWhenItIsOpened) {
  const TestFolder folder;
  folder.write("street.y4m", "YUV4MPEG2 W2 H2 F25:1\nFRAME\n01234567890123456789");
  RawInput input{.fd = ::open((folder.path() / "street.y4m").c_str(), O_RDONLY | O_CLOEXEC),
                 .owns_fd = true,
                 .name = "street.y4m",
                 .size = {2, 2, kGrey},
                 .format = PixelFormat::Gray};
  EXPECT_THROW(RawSource{input}, ConfigError);
}

}  // namespace
}  // namespace penstock::frames

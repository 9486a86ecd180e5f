#include "penstock/frames/open_source.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <limits>

#include "penstock/frames/opencv/testing_opencv.h"
#include "penstock/frames/testing_frames.h"

namespace penstock::frames {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string refusal(const std::string& spec, const SourceOptions& options = {}) {
  return message_of<ConfigError>([&] { open_source(spec, options); });
}

TEST(OpenSource, GeneratedHasDefaultsAndOptions) {
  EXPECT_EQ(open_source("generated", {})->describe(), "generated, 160x120 RGB, seed 1, 4 classes");
  EXPECT_EQ(open_source("generated", {.width = 32,
                                      .height = 24,
                                      .channels = kGrey,
                                      .frames_per_second = 25,
                                      .seed = 9,
                                      .classes = 3})
                ->describe(),
            "generated, 32x24 grey, seed 9, 3 classes, played at 25 frames/s");
}

TEST(OpenSource, ARawFileAndANamedPipe) {
  const TestFolder folder;
  folder.write("raw", "aabb");
  const SourceOptions options{.width = 2, .height = 1, .pixel = PixelFormat::Gray};
  Frame frame;
  const auto file = open_source((folder / "raw").string(), options);
  EXPECT_EQ(file->size(), (FrameSize{2, 1, kGrey}));
  EXPECT_EQ(file->next(frame, soon()), Next::Ready);
  EXPECT_FALSE(file->is_live());

  const std::string name = (folder / "pipe").string();
  ASSERT_EQ(::mkfifo(name.c_str(), 0600), 0);
  const auto pipe = open_source(name, options);  // does not wait for a writer
  EXPECT_TRUE(pipe->is_live());
  EXPECT_EQ(pipe->next(frame, in_ms(10)), Next::Stalled);
  const int writer = ::open(name.c_str(), O_WRONLY | O_CLOEXEC);
  ASSERT_GE(writer, 0);
  EXPECT_EQ(::write(writer, "xyz", 3), 3);
  EXPECT_EQ(pipe->next(frame, soon()), Next::Ready);
  EXPECT_EQ(pipe->next(frame, in_ms(10)), Next::Stalled);
  ::close(writer);
  EXPECT_EQ(pipe->next(frame, soon()), Next::Ended);
  EXPECT_THAT(pipe->remarks(), HasSubstr("1 bytes were left"));
}

TEST(OpenSource, RawFramesNeedASizeAndAPixelFormat) {
  EXPECT_THAT(refusal("-"),
              AllOf(HasSubstr("source '-': raw frames need a size"), HasSubstr("found neither")));
  EXPECT_THAT(refusal("-", {.width = 2, .height = 2}), HasSubstr("found no pixel format"));
  EXPECT_THAT(refusal("-", {.pixel = PixelFormat::Rgb24}), HasSubstr("found no size"));
  EXPECT_THAT(refusal("-", {.width = 1 << 20, .height = 1 << 20, .pixel = PixelFormat::Rgb24}),
              HasSubstr("standard input: expected a width and a height of 1 to 16384"));
}

TEST(OpenSource, ANamedPipeWithoutAPixelFormatIsRefusedAtOnce) {
  const TestFolder folder;
  const std::string name = (folder / "pipe").string();
  ASSERT_EQ(::mkfifo(name.c_str(), 0600), 0);
  EXPECT_THAT(refusal(name, {.width = 2, .height = 2}),
              AllOf(HasSubstr("raw frames need a size"), HasSubstr("found no pixel format")));
}

TEST(OpenSource, WhatDoesNotExistIsNamed) {
  EXPECT_THAT(refusal("/nowhere/at all"),
              AllOf(HasSubstr("source '/nowhere/at all': there is no such file or folder"),
                    HasSubstr("expected generated, - (standard input), camera:0")));
  EXPECT_THAT(refusal(""), HasSubstr("source ''"));
  EXPECT_THAT(refusal("generate\x1b"), HasSubstr("source 'generate?'"));
  EXPECT_THAT(refusal(std::string("/tmp\0x", 6)), HasSubstr("no such file"));
  for (const char* camera : {"camera:", "camera:x", "camera:-1", "camera:1x", "camera:64",
                             "camera:99999999999", "/dev/videox"}) {
    EXPECT_THAT(refusal(camera), HasSubstr("expected a camera by its number")) << camera;
  }
}

TEST(OpenSource, OptionsThatDoNotFitAreErrors) {
  const TestFolder folder;
  const std::string images = folder.path().string();
  EXPECT_THAT(refusal("generated", {.pixel = PixelFormat::Gray}),
              HasSubstr("source 'generated': a pixel format is only for raw frames"));
  EXPECT_THAT(refusal("camera:0", {.seed = 3}), HasSubstr("only for the generated scene"));
  EXPECT_THAT(refusal("generated", {.repeats = true}),
              HasSubstr("repeating is only for files and folders"));
  EXPECT_THAT(refusal("-", {.skips_broken = false}), HasSubstr("only for folders of images"));
  EXPECT_THAT(refusal("generated", {.width = 8}), HasSubstr("found 8x0"));
  EXPECT_THAT(refusal("generated", {.channels = 2}), HasSubstr("found 2"));
  EXPECT_THAT(refusal("generated", {.frames_per_second = -3}), HasSubstr("expected a rate"));
  EXPECT_THAT(refusal(images, {.pixel = PixelFormat::Gray}), HasSubstr("a pixel format"));
}

TEST(OpenSource, FoldersAndVideosNeedOpencv) {
  const TestFolder folder;
  folder.write("1.pgm", "P5\n2 2\n255\nabcd");
  folder.write("2.pgm", "P5\n2 2\n255\nefgh");
  const SourceOptions options{.channels = kGrey, .opencv_module = kTestModule};
  if (!has_opencv()) {
    EXPECT_THAT(refusal(folder.path().string(), options),
                AllOf(HasSubstr("built without it"), HasSubstr("libopencv-videoio-dev")));
    return;
  }
  const auto source = open_source(folder.path().string(), options);
  Frame frame;
  ASSERT_EQ(source->next(frame, soon()), Next::Ready);
  EXPECT_EQ(frame.pixels, (std::vector<uint8_t>{'a', 'b', 'c', 'd'}));
  ASSERT_EQ(source->next(frame, soon()), Next::Ready);
  EXPECT_EQ(source->next(frame, soon()), Next::Ended);
}

}  // namespace
}  // namespace penstock::frames

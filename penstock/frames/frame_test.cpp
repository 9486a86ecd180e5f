#include "penstock/frames/frame.h"

#include <gmock/gmock.h>

#include "penstock/frames/testing_frames.h"

namespace penstock::frames {
namespace {

using testing::HasSubstr;

TEST(Frame, ASizeReadsBack) {
  EXPECT_EQ(parse_frame_size("640x480", kRgb), (FrameSize{640, 480, kRgb}));
  EXPECT_EQ(parse_frame_size("640X480", kRgb), (FrameSize{640, 480, kRgb}));
  EXPECT_EQ(parse_frame_size("1x1", kGrey), (FrameSize{1, 1, kGrey}));
  EXPECT_EQ(to_string(FrameSize{640, 480, kGrey}), "640x480 grey");
  EXPECT_EQ(frame_bytes({640, 480, kRgb}), 640 * 480 * 3);
}

TEST(Frame, AMalformedSizeIsNamed) {
  for (const char* text : {"", "x", "640", "640x", "x480", "640x480x3", "640 x 480", "640xX80",
                           "-640x-480x", "99999999999x1", "640x480\n"}) {
    EXPECT_THAT(message_of<ConfigError>([&] { parse_frame_size(text, kRgb); }),
                HasSubstr("expected a size such as 640x480"))
        << text;
  }
}

TEST(Frame, ASizeThatNoFrameMayHaveIsRefused) {
  EXPECT_THAT(
      message_of<ConfigError>([] { parse_frame_size("0x480", kRgb); }),
      testing::Eq("'0x480': expected a width and a height of 1 to 16384 pixels, found 0x480"));
  EXPECT_THAT(message_of<ConfigError>([] { parse_frame_size("640x-1", kRgb); }),
              HasSubstr("found 640x-1"));
  EXPECT_THAT(message_of<ConfigError>([] { parse_frame_size("2000000000x2000000000", kRgb); }),
              HasSubstr("1 to 16384 pixels"));
  EXPECT_THAT(message_of<ConfigError>([] { parse_frame_size("16384x16384", kRgb); }),
              HasSubstr("takes 805 MB"));
  EXPECT_THAT(message_of<ConfigError>([] {
                check_frame_size({8, 8, 4}, "a frame");
              }),
              HasSubstr("a frame: expected 1 channel (grey) or 3 (RGB), found 4"));
  check_frame_size({16384, 16384, kGrey}, "the largest");
}

}  // namespace
}  // namespace penstock::frames

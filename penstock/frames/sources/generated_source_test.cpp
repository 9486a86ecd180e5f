#include "penstock/frames/sources/generated_source.h"

#include <gmock/gmock.h>

#include <set>
#include <string_view>

#include "penstock/frames/testing_frames.h"
#include "penstock/util/files/files.h"

namespace penstock::frames {
namespace {

using testing::HasSubstr;

uint32_t checksum(const std::vector<uint8_t>& bytes) {
  return crc32_of({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

std::vector<Frame> frames_of(const GeneratedOptions& options, int count) {
  GeneratedSource source(options);
  std::vector<Frame> frames(static_cast<size_t>(count));
  for (Frame& frame : frames) EXPECT_EQ(source.next(frame, soon()), Next::Ready);
  return frames;
}

double share_of_changed(const std::vector<uint8_t>& a, const std::vector<uint8_t>& b) {
  size_t changed = 0;
  for (size_t i = 0; i < a.size(); ++i) changed += a[i] != b[i] ? 1 : 0;
  return static_cast<double>(changed) / static_cast<double>(a.size());
}

TEST(GeneratedSource, TheSameSeedGivesTheSameBytesOnEveryMachine) {
  const std::vector<Frame> rgb = frames_of({.size = {64, 48, kRgb}, .seed = 7}, 31);
  EXPECT_EQ(checksum(rgb[0].pixels), 3709834576u);
  EXPECT_EQ(checksum(rgb[30].pixels), 1951291586u);
  EXPECT_EQ(checksum(rgb[30].pixel_labels), 344796218u);
  const std::vector<Frame> grey = frames_of({.size = {33, 21, kGrey}, .seed = 7, .classes = 25}, 3);
  EXPECT_EQ(checksum(grey[2].pixels), 3582980107u);
  EXPECT_NE(frames_of({.size = {64, 48, kRgb}, .seed = 8}, 1)[0].pixels, rgb[0].pixels);
}

TEST(GeneratedSource, ObjectsMoveALittleFromFrameToFrame) {
  const std::vector<Frame> frames = frames_of({.size = {160, 120, kRgb}}, 100);
  for (size_t k = 1; k < frames.size(); ++k) {
    EXPECT_NE(frames[k].pixels, frames[k - 1].pixels);
    EXPECT_LT(share_of_changed(frames[k].pixel_labels, frames[k - 1].pixel_labels), 0.1) << k;
  }
  EXPECT_GT(share_of_changed(frames[0].pixel_labels, frames[99].pixel_labels), 0.2);
}

TEST(GeneratedSource, EveryKindIsSeenAndTheLargestNamesTheFrame) {
  for (const int classes : {2, 4, 7, 25}) {
    std::set<int> seen;
    std::set<int> names;
    for (const Frame& frame :
         frames_of({.size = {96, 96, kGrey}, .seed = 3, .classes = classes}, 200)) {
      seen.insert(frame.pixel_labels.begin(), frame.pixel_labels.end());
      ASSERT_TRUE(frame.label.has_value());
      names.insert(*frame.label);
      EXPECT_NE(std::count(frame.pixel_labels.begin(), frame.pixel_labels.end(), *frame.label), 0);
    }
    EXPECT_EQ(static_cast<int>(seen.size()), classes);
    EXPECT_EQ(*seen.rbegin(), classes - 1);
    EXPECT_GE(*names.begin(), 1);
  }
}

TEST(GeneratedSource, FramesThatAreLeftOutChangeNoOther) {
  const GeneratedOptions options{.size = {32, 24, kRgb}, .frames = 9};
  const std::vector<Frame> all = frames_of(options, 9);
  GeneratedSource source(options);
  Frame frame;
  ASSERT_EQ(source.skip(4), 4);
  ASSERT_EQ(source.next(frame, soon()), Next::Ready);
  EXPECT_EQ(frame.number, 4);
  EXPECT_EQ(frame.pixels, all[4].pixels);
  EXPECT_EQ(frame.pixel_labels, all[4].pixel_labels);
  EXPECT_EQ(source.skip(100), 4);
  EXPECT_EQ(source.next(frame, soon()), Next::Ended);
}

TEST(GeneratedSource, LabelsComeWithEveryNthFrame) {
  GeneratedSource source({.size = {16, 16, kRgb}, .label_every = 3, .frames = 7});
  EXPECT_EQ(source.num_classes(), 4);
  Frame frame;
  std::vector<bool> labelled;
  while (source.next(frame, soon()) == Next::Ready) {
    labelled.push_back(frame.label.has_value());
    EXPECT_EQ(frame.pixel_labels.size(), frame.label ? 256u : 0u);
  }
  EXPECT_EQ(labelled, (std::vector<bool>{true, false, false, true, false, false, true}));
  EXPECT_EQ(GeneratedSource({.label_every = 0}).num_classes(), 0);
}

TEST(GeneratedSource, LabelsMakeNoDifferenceToPixels) {
  const auto all = frames_of({.size = {40, 30, kRgb}}, 4);
  const auto none = frames_of({.size = {40, 30, kRgb}, .label_every = 0}, 4);
  for (size_t k = 0; k < 4; ++k) EXPECT_EQ(all[k].pixels, none[k].pixels);
}

TEST(GeneratedSource, AnySizeFrom8x8On) {
  for (const FrameSize size :
       {FrameSize{8, 8, kGrey}, {8, 8, kRgb}, {9, 200, kRgb}, {301, 8, kGrey}, {1024, 9, kRgb}}) {
    for (const Frame& frame : frames_of({.size = size, .classes = 25}, 50)) {
      EXPECT_EQ(frame.size, size);
      EXPECT_EQ(static_cast<int64_t>(frame.pixels.size()), frame_bytes(size));
      EXPECT_GE(frame.label.value_or(0), 1);
    }
  }
}

TEST(GeneratedSource, RefusesWhatItCannotDraw) {
  const auto refusal = [](const GeneratedOptions& options) {
    return message_of<ConfigError>([&] { GeneratedSource source(options); });
  };
  EXPECT_THAT(refusal({.size = {7, 100, kRgb}}), HasSubstr("at least 8x8 pixels, found 7x100"));
  EXPECT_THAT(refusal({.size = {0, 0, kRgb}}), HasSubstr("found 0x0"));
  EXPECT_THAT(refusal({.size = {1 << 30, 1 << 30, kRgb}}), HasSubstr("1 to 16384"));
  EXPECT_THAT(refusal({.size = {16384, 16384, kRgb}}), HasSubstr("takes 805 MB"));
  EXPECT_THAT(refusal({.classes = 1}), HasSubstr("2 to 25 classes"));
  EXPECT_THAT(refusal({.classes = 26}), HasSubstr("found 26"));
  EXPECT_THAT(refusal({.label_every = -1}), HasSubstr("negative"));
}

}  // namespace
}  // namespace penstock::frames

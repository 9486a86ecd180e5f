#include "penstock/captions/clip.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace penstock::captions {
namespace {

constexpr ClipSize kSize{.frames = 8, .side = 32};

/// A black and a red square that fill their pictures.
std::vector<Picture> squares() {
  Picture black{.width = 20, .height = 20, .pixels = {}, .shares = std::vector<uint8_t>(400, 255)};
  black.pixels.assign(1200, 0);
  Picture red = black;
  for (size_t i = 0; i < red.pixels.size(); i += 3) red.pixels[i] = 255;
  return {black, red};
}

/// Where a frame's pixels have less green than its background: the box [left, top, right, bottom).
struct Box {
  int left = 99, top = 99, right = 0, bottom = 0;
  bool is_empty() const { return right == 0; }
};

Box box_of(const std::vector<uint8_t>& clip, int64_t frame, bool is_upper) {
  const auto side = static_cast<size_t>(kSize.side);
  const uint8_t* const green =
      clip.data() + static_cast<size_t>(frame * kSize.numbers()) + side * side;
  Box box;
  for (int y = is_upper ? 0 : 16; y < (is_upper ? 16 : 32); ++y) {
    for (int x = 0; x < kSize.side; ++x) {
      if (green[static_cast<size_t>(y) * side + static_cast<size_t>(x)] >= 150) continue;
      box.left = std::min(box.left, x);
      box.top = std::min(box.top, y);
      box.right = std::max(box.right, x + 1);
      box.bottom = std::max(box.bottom, y + 1);
    }
  }
  return box;
}

std::vector<uint8_t> drawn(Motion motion, uint64_t seed = 3, bool is_stacked = true) {
  const std::vector<Picture> pictures = squares();
  ClipDrawer drawer(kSize, pictures);
  std::vector<uint8_t> pixels(static_cast<size_t>(kSize.frames * kSize.numbers()));
  drawer.draw({.actors = {Actor{0, motion}, Actor{1, Motion::Rest}},
               .is_stacked = is_stacked,
               .seed = seed},
              pixels);
  return pixels;
}

TEST(Clip, CaptionsSayWhatIsSeen) {
  const std::vector<std::string> names = {"cat face", "red heart"};
  Clip clip{.actors = {Actor{1, Motion::Left}, Actor{0, Motion::Grow}}};
  EXPECT_EQ(caption_of(clip, names), "red heart slides left above cat face that grows");
  clip.is_stacked = false;
  EXPECT_EQ(caption_of(clip, names), "red heart slides left beside cat face that grows");
}

TEST(Clip, PicturesMoveAsTheWordsSay) {
  for (const uint64_t seed : {1, 2, 3}) {
    const auto boxes = [&](Motion motion) {
      const std::vector<uint8_t> clip = drawn(motion, seed);
      return std::pair(box_of(clip, 0, true), box_of(clip, 7, true));
    };
    const auto [left_first, left_last] = boxes(Motion::Left);
    EXPECT_EQ(left_first.right, 32);
    EXPECT_EQ(left_last.left, 0);
    const auto [right_first, right_last] = boxes(Motion::Right);
    EXPECT_LT(right_first.left, right_last.left);
    const auto [up_first, up_last] = boxes(Motion::Up);
    EXPECT_GT(up_first.top, up_last.top);
    const auto [down_first, down_last] = boxes(Motion::Down);
    EXPECT_LT(down_first.top, down_last.top);
    const auto [small, large] = boxes(Motion::Grow);
    EXPECT_LT(small.right - small.left, large.right - large.left);
    const auto [before, after] = boxes(Motion::Shrink);
    EXPECT_GT(before.right - before.left, after.right - after.left);
    const auto [still, later] = boxes(Motion::Rest);
    EXPECT_EQ(still.left, later.left);
    EXPECT_EQ(still.top, later.top);
  }
}

TEST(Clip, PicturesBlinkAndFade) {
  const std::vector<uint8_t> blinking = drawn(Motion::Blink);
  for (int64_t f = 0; f < 8; ++f)
    EXPECT_EQ(box_of(blinking, f, true).is_empty(), f / 2 % 2 == 1) << f;
  const std::vector<uint8_t> fading = drawn(Motion::Fade);
  EXPECT_FALSE(box_of(fading, 0, true).is_empty());
  EXPECT_TRUE(box_of(fading, 7, true).is_empty());
}

TEST(Clip, TheSecondIsBelowOrBeside) {
  const auto is_red = [](const std::vector<uint8_t>& clip, size_t y, size_t x) {
    const size_t at = y * 32 + x;
    return clip[at] == 255 && clip[1024 + at] < 100;
  };
  const std::vector<uint8_t> stacked = drawn(Motion::Rest);
  EXPECT_TRUE(is_red(stacked, 24, 16));
  EXPECT_FALSE(is_red(stacked, 8, 16));
  const std::vector<uint8_t> beside = drawn(Motion::Rest, 3, false);
  EXPECT_TRUE(is_red(beside, 16, 24));
  EXPECT_FALSE(is_red(beside, 16, 8));
}

TEST(Clip, DependsOnItsSeedAlone) {
  EXPECT_EQ(drawn(Motion::Left, 5), drawn(Motion::Left, 5));
  EXPECT_NE(drawn(Motion::Left, 5), drawn(Motion::Left, 6));
}

}  // namespace
}  // namespace penstock::captions

#include "penstock/captions/clip.h"

#include <fmt/format.h>

#include <algorithm>

#include "penstock/frames/resample.h"
#include "penstock/util/check.h"
#include "penstock/util/numbers/rng.h"

namespace penstock::captions {

namespace {

constexpr int64_t kWhole = 256;  ///< of shares

/// From `first` to `last` over the clip, both at least 0.
int64_t between(int64_t first, int64_t last, int64_t frame, int64_t frames) {
  const int64_t steps = frames - 1;
  return (2 * (first * (steps - frame) + last * frame) + steps) / (2 * steps);
}

}  // namespace

std::string caption_of(const Clip& clip, std::span<const std::string> names) {
  const auto words = [](const Actor& actor) {
    return kMotionWords[static_cast<size_t>(actor.motion)];
  };
  const auto& [first, second] = clip.actors;
  return fmt::format("{} {} {} {} that {}", names[first.picture], words(first),
                     clip.is_stacked ? "above" : "beside", names[second.picture], words(second));
}

void ClipDrawer::draw(const Clip& clip, std::span<uint8_t> pixels) {
  PENSTOCK_CHECK(size_.frames >= 2 && size_.side >= kMinClipSide, size_.frames, size_.side);
  PENSTOCK_CHECK(std::ssize(pixels) == size_.frames * size_.numbers(), pixels.size());
  Rng rng(clip.seed);
  const auto grey = static_cast<uint8_t>(200 + rng.below(56));
  std::fill(pixels.begin(), pixels.end(), grey);
  const int half = size_.side / 2;
  for (size_t i = 0; i < clip.actors.size(); ++i) {
    Lane lane{.width = size_.side, .height = size_.side};
    (clip.is_stacked ? lane.height : lane.width) = half;
    if (i == 1) (clip.is_stacked ? lane.top : lane.left) = half;
    draw_actor(clip.actors[i], lane, rng.next(), pixels);
  }
}

void ClipDrawer::draw_actor(const Actor& actor, const Lane& lane, uint64_t seed,
                            std::span<uint8_t> pixels) {
  Rng rng(seed);
  const int most = std::min(lane.width, lane.height);
  // From 5/8 to 7/8 of the lane, somewhere near its middle.
  const int usual = most * 5 / 8 + static_cast<int>(rng.below(static_cast<uint64_t>(most) / 4 + 1));
  const auto shift = [&rng](int room) {
    return static_cast<int>(rng.below(static_cast<uint64_t>(room / 2) + 1)) - room / 4;
  };
  const int shift_x = shift(lane.width - usual);
  const int shift_y = shift(lane.height - usual);
  const auto is = [&actor](Motion motion) { return actor.motion == motion; };
  for (int64_t f = 0; f < size_.frames; ++f) {
    const auto along = [&](int64_t first, int64_t last) {
      return static_cast<int>(between(first, last, f, size_.frames));
    };
    int side = usual;
    if (is(Motion::Grow)) side = along(most / 4, most);
    if (is(Motion::Shrink)) side = along(most, most / 4);
    const int room_x = lane.width - side;
    const int room_y = lane.height - side;
    int x = std::clamp(room_x / 2 + shift_x, 0, room_x);
    int y = std::clamp(room_y / 2 + shift_y, 0, room_y);
    if (is(Motion::Left)) x = along(room_x, 0);
    if (is(Motion::Right)) x = along(0, room_x);
    if (is(Motion::Up)) y = along(room_y, 0);
    if (is(Motion::Down)) y = along(0, room_y);
    if (is(Motion::Blink) && f / 2 % 2 == 1) continue;
    const int64_t share = is(Motion::Fade) ? between(kWhole, kWhole / 8, f, size_.frames) : kWhole;
    draw_picture(scaled(actor.picture, side), lane.left + x, lane.top + y, share,
                 pixels.subspan(static_cast<size_t>(f * size_.numbers()),
                                static_cast<size_t>(size_.numbers())));
  }
}

void ClipDrawer::draw_picture(const Picture& picture, int left, int top, int64_t share,
                              std::span<uint8_t> frame) const {
  for (int y = 0; y < picture.height; ++y) {
    for (int x = 0; x < picture.width; ++x) {
      const size_t from =
          static_cast<size_t>(y) * static_cast<size_t>(picture.width) + static_cast<size_t>(x);
      const int64_t behind = 255 - picture.shares[from] * share / kWhole;
      for (int c = 0; c < 3; ++c) {
        const auto row = static_cast<int64_t>(c) * size_.side + top + y;
        uint8_t& pixel = frame[static_cast<size_t>(row * size_.side + left + x)];
        const int64_t own = picture.pixels[3 * from + static_cast<size_t>(c)] * share / kWhole;
        pixel = static_cast<uint8_t>(std::min<int64_t>(255, own + (pixel * behind + 127) / 255));
      }
    }
  }
}

const Picture& ClipDrawer::scaled(size_t picture, int side) {
  const auto [found, is_new] = scaled_.try_emplace({picture, side});
  Picture& made = found->second;
  if (!is_new) return made;
  const Picture& whole = pictures_[picture];
  made.width = made.height = side;
  const auto pixels = static_cast<size_t>(side) * static_cast<size_t>(side);
  made.pixels.resize(3 * pixels);
  made.shares.resize(pixels);
  const frames::Extent extent{side, side};
  const frames::Crop all{0, 0, side, side};
  frames::resize_and_crop({whole.pixels.data(), whole.width, whole.height, 3}, extent, all,
                          made.pixels.data());
  frames::resize_and_crop({whole.shares.data(), whole.width, whole.height, 1}, extent, all,
                          made.shares.data());
  return made;
}

}  // namespace penstock::captions

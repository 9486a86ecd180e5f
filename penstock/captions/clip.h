// Two pictures that move, and what they are and do, in words:
//
//   red heart slides left above cat face that grows
//
//   ClipDrawer drawer({.frames = 12, .side = 32}, pictures);
//   drawer.draw(clip, pixels);   // [frames, 3, side, side]
//   caption_of(clip, names);
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "penstock/captions/emoji_font.h"

namespace penstock::captions {

enum class Motion : uint8_t { Left, Right, Up, Down, Grow, Shrink, Blink, Fade, Rest };
/// In the order of Motion.
inline constexpr std::array<std::string_view, 9> kMotionWords = {
    "slides left", "slides right", "rises", "falls", "grows",
    "shrinks",     "blinks",       "fades", "rests"};

struct Actor {
  size_t picture = 0;
  Motion motion = Motion::Rest;

  bool operator==(const Actor&) const = default;
};

struct Clip {
  std::array<Actor, 2> actors;
  bool is_stacked = true;  ///< the first is above the second; otherwise left of it
  uint64_t seed = 0;       ///< what no word says: exact places and sizes, the background

  bool operator==(const Clip&) const = default;
};

/// "A MOTION above|beside B that MOTION".
std::string caption_of(const Clip& clip, std::span<const std::string> names);

struct ClipSize {
  int64_t frames = 12;
  int side = 32;

  int64_t numbers() const { return int64_t{3} * side * side; }  ///< of a frame
};
inline constexpr int kMinClipSide = 16;

/// Not thread-safe. In whole numbers: the same bytes on every machine.
class ClipDrawer {
 public:
  /// `pictures` must live as long. Needs at least two frames and a side of kMinClipSide.
  ClipDrawer(const ClipSize& size, std::span<const Picture> pictures)
      : size_(size), pictures_(pictures) {}

  /// Fills [frames, 3, side, side].
  void draw(const Clip& clip, std::span<uint8_t> pixels);

 private:
  struct Lane {
    int left = 0;
    int top = 0;
    int width = 0;
    int height = 0;
  };
  void draw_actor(const Actor& actor, const Lane& lane, uint64_t seed, std::span<uint8_t> pixels);
  void draw_picture(const Picture& scaled, int left, int top, int64_t share,
                    std::span<uint8_t> frame) const;
  const Picture& scaled(size_t picture, int side);

  ClipSize size_;
  std::span<const Picture> pictures_;
  std::map<std::pair<size_t, int>, Picture> scaled_;
};

}  // namespace penstock::captions

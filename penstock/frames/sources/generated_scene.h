// The scene of GeneratedSource: where its objects are at frame k, and what they look like. Any
// frame can be drawn, in any order. Internal to sources.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "penstock/frames/frame.h"
#include "penstock/frames/sources/generated_textures.h"

namespace penstock::frames {

/// Of an object. Kind k has shape (k - 1) % kShapes.
enum class ObjectShape : uint8_t { Disc, Rectangle, Bar, Triangle, Ring, Cross };
inline constexpr int kShapes = 6;

/// Lengths are in 1/256 pixel, angles in 1/65536 turn.
struct SceneObject {
  int kind = 1;  ///< its class
  ObjectShape shape = ObjectShape::Disc;
  int64_t extent = 0;  ///< about half of its size
  int64_t x = 0;       ///< of its centre at frame 0
  int64_t y = 0;
  int64_t speed_x = 0;  ///< per frame, in 1/65536 pixel
  int64_t speed_y = 0;
  int64_t angle = 0;  ///< at frame 0
  int64_t spin = 0;   ///< per frame
  ObjectTexture texture;
};

class Scene {
 public:
  /// `kinds` of objects, 1 to 24. The size must be one that frames may have, at least 8x8.
  Scene(FrameSize size, uint64_t seed, int kinds);

  /// Frame `number` into `pixels` [height, width, channels].
  void draw(int64_t number, std::span<uint8_t> pixels);
  /// And its labels [height, width]. Returns the kind of the object with the most visible pixels;
  /// of equal ones, the nearest.
  int draw_with_labels(int64_t number, std::span<uint8_t> pixels, std::span<uint8_t> labels);

  const std::vector<SceneObject>& objects() const { return objects_; }

 private:
  void light(int64_t number);
  void draw_background(std::span<uint8_t> pixels) const;
  /// `owners`: null, or [height, width]: 1 + the index of the object that is seen there, 0 for the
  /// background.
  void draw_all(int64_t number, std::span<uint8_t> pixels, uint8_t* owners);

  FrameSize size_;
  std::vector<uint8_t> background_;   ///< in full light
  std::vector<SceneObject> objects_;  ///< the farthest first
  uint64_t light_phase_;
  std::vector<uint16_t> light_x_;  ///< per byte of a row, in 1/256
  std::vector<uint16_t> light_y_;  ///< per row
};

}  // namespace penstock::frames

#include "penstock/frames/sources/generated_scene.h"

#include <algorithm>
#include <array>

#include "penstock/util/numbers/rng.h"

namespace penstock::frames {

namespace {

constexpr int64_t kPixel = 256;

/// A path that runs to and fro between `low` and `high`.
int64_t bounced(int64_t position, int64_t low, int64_t high) {
  const int64_t range = high - low;
  if (range <= 0) return (low + high) / 2;
  int64_t along = (position - low) % (2 * range);
  if (along < 0) along += 2 * range;
  return low + std::min(along, 2 * range - along);
}

/// How far the shape reaches from its centre, in 1/256 of the extent.
int64_t reach_of(ObjectShape shape) {
  switch (shape) {
    case ObjectShape::Disc:
    case ObjectShape::Ring:
      return 256;
    case ObjectShape::Bar:
      return 400;
    case ObjectShape::Rectangle:
    case ObjectShape::Triangle:
    case ObjectShape::Cross:
      break;
  }
  return 320;
}

/// Whether (u, v), in the object's own directions, lies in the shape with extent e.
template <ObjectShape shape>
bool is_inside(int64_t u, int64_t v, int64_t e) {
  const int64_t across = u < 0 ? -u : u;
  const int64_t along = v < 0 ? -v : v;
  if constexpr (shape == ObjectShape::Disc) return u * u + v * v <= e * e;
  if constexpr (shape == ObjectShape::Rectangle) return across <= e && 100 * along <= 62 * e;
  if constexpr (shape == ObjectShape::Bar) return 2 * across <= 3 * e && 100 * along <= 26 * e;
  if constexpr (shape == ObjectShape::Triangle) {
    return 10 * v <= 7 * e && 10 * across <= 6 * (v + e);
  }
  if constexpr (shape == ObjectShape::Ring) {
    const int64_t square = u * u + v * v;
    return square <= e * e && 100 * square >= 30 * e * e;
  }
  return (10 * across <= 3 * e && along <= e) || (10 * along <= 3 * e && across <= e);
}

/// Where an object is drawn, and the tables that it needs.
struct Canvas {
  FrameSize size;
  uint8_t* pixels = nullptr;
  uint8_t* owners = nullptr;  ///< may stay so
  const uint16_t* light_x = nullptr;
  const uint16_t* light_y = nullptr;
};

struct Pose {
  int64_t x;  ///< of the centre, in 1/256 pixel
  int64_t y;
  int64_t cosine;  ///< in 1/16384
  int64_t sine;
};

Pose pose_of(const SceneObject& object, FrameSize size, int64_t number) {
  // The centre stays inside, a little of the object may leave.
  const int64_t margin = object.extent * 3 / 4;
  const int64_t angle = object.angle + object.spin * number;
  return {bounced(object.x + object.speed_x * number / 256, margin, size.width * kPixel - margin),
          bounced(object.y + object.speed_y * number / 256, margin, size.height * kPixel - margin),
          integer_sine(angle + 16384), integer_sine(angle)};
}

template <ObjectShape shape, int channels, bool with_owners>
void draw_object(const Canvas& canvas, const SceneObject& object, const Pose& pose, uint8_t owner) {
  constexpr int kMask = ObjectTexture::kSide - 1;
  const int64_t reach = object.extent * reach_of(shape) / 256;
  const int64_t width = canvas.size.width;
  const int64_t first_x = std::max<int64_t>((pose.x - reach) / kPixel, 0);
  const int64_t last_x = std::min<int64_t>((pose.x + reach) / kPixel, width - 1);
  const int64_t first_y = std::max<int64_t>((pose.y - reach) / kPixel, 0);
  const int64_t last_y = std::min<int64_t>((pose.y + reach) / kPixel, canvas.size.height - 1);
  // 48 pixels of the tile per extent.
  const int64_t scale = (int64_t{48} << 20) / object.extent;
  const uint8_t* const tile = object.texture.pixels.data();
  for (int64_t y = first_y; y <= last_y; ++y) {
    // From the object's centre to the centre of the first pixel; then in steps of one pixel.
    const int64_t down = y * kPixel + kPixel / 2 - pose.y;
    const int64_t right = first_x * kPixel + kPixel / 2 - pose.x;
    int64_t u = (pose.cosine * right + pose.sine * down) / kPixel;  // in 1/16384 pixel
    int64_t v = (pose.cosine * down - pose.sine * right) / kPixel;
    const int light_y = canvas.light_y[y];
    uint8_t* out = canvas.pixels + (y * width + first_x) * channels;
    for (int64_t x = first_x; x <= last_x; ++x, out += channels, u += pose.cosine, v -= pose.sine) {
      const int64_t own_u = u >> 6;
      const int64_t own_v = v >> 6;
      if (!is_inside<shape>(own_u, own_v, object.extent)) continue;
      const int64_t column = (own_u * scale >> 20) & kMask;
      const int64_t row = (own_v * scale >> 20) & kMask;
      const uint8_t* const colour = tile + (row * ObjectTexture::kSide + column) * channels;
      const int light = canvas.light_x[x * channels] + light_y;
      for (int i = 0; i < channels; ++i)
        out[i] = static_cast<uint8_t>(std::min(255, colour[i] * light >> 8));
      if constexpr (with_owners) canvas.owners[y * width + x] = owner;
    }
  }
}

template <ObjectShape shape>
void draw_shape(const Canvas& canvas, const SceneObject& object, const Pose& pose, uint8_t owner) {
  const bool is_grey = canvas.size.channels == kGrey;
  if (is_grey && canvas.owners != nullptr)
    draw_object<shape, kGrey, true>(canvas, object, pose, owner);
  else if (is_grey)
    draw_object<shape, kGrey, false>(canvas, object, pose, owner);
  else if (canvas.owners != nullptr)
    draw_object<shape, kRgb, true>(canvas, object, pose, owner);
  else
    draw_object<shape, kRgb, false>(canvas, object, pose, owner);
}

void draw_any(const Canvas& canvas, const SceneObject& object, const Pose& pose, uint8_t owner) {
  switch (object.shape) {
    case ObjectShape::Disc:
      return draw_shape<ObjectShape::Disc>(canvas, object, pose, owner);
    case ObjectShape::Rectangle:
      return draw_shape<ObjectShape::Rectangle>(canvas, object, pose, owner);
    case ObjectShape::Bar:
      return draw_shape<ObjectShape::Bar>(canvas, object, pose, owner);
    case ObjectShape::Triangle:
      return draw_shape<ObjectShape::Triangle>(canvas, object, pose, owner);
    case ObjectShape::Ring:
      return draw_shape<ObjectShape::Ring>(canvas, object, pose, owner);
    case ObjectShape::Cross:
      return draw_shape<ObjectShape::Cross>(canvas, object, pose, owner);
  }
}

SceneObject make_object(int kind, FrameSize size, int64_t scale, Rng& rng) {
  const auto between = [&rng](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(rng.below(static_cast<uint64_t>(high - low + 1)));
  };
  const int64_t side = std::min(size.width, size.height) * kPixel;
  const auto signed_speed = [&](int64_t slowest, int64_t fastest) {
    const int64_t speed = between(slowest, fastest);
    return between(0, 1) == 0 ? speed : -speed;
  };
  SceneObject object;
  object.kind = kind;
  object.shape = static_cast<ObjectShape>((kind - 1) % kShapes);
  // At least a pixel and a half, so that small frames have objects, too.
  object.extent =
      std::max<int64_t>(between(side * 12 / 100, side * 22 / 100) * scale / 256, kPixel * 3 / 2);
  object.x = between(0, size.width * kPixel);
  object.y = between(0, size.height * kPixel);
  // 1/400 to 1/100 of the shorter side per frame; a turn takes 200 frames or more.
  object.speed_x = signed_speed(side * 256 / 400, side * 256 / 100);
  object.speed_y = signed_speed(side * 256 / 400, side * 256 / 100);
  object.angle = between(0, 65535);
  object.spin = signed_speed(60, 320);
  object.texture = make_object_texture(kind, size.channels, rng.next());
  return object;
}

/// More objects are smaller ones: in 1/256, for so many.
int64_t scale_for(int objects) {
  constexpr std::array<int64_t, 4> kScales = {256, 210, 170, 150};
  return kScales[static_cast<size_t>(std::min((objects - 1) / 7, 3))];
}

}  // namespace

Scene::Scene(FrameSize size, uint64_t seed, int kinds)
    : size_(size),
      background_(make_background(size, derive_seed(seed, hash_name("background")))),
      light_phase_(derive_seed(seed, hash_name("light"))),
      light_x_(static_cast<size_t>(size.width) * static_cast<size_t>(size.channels)),
      light_y_(static_cast<size_t>(size.height)) {
  Rng rng(derive_seed(seed, hash_name("objects")));
  const int count = std::clamp(2 * kinds + 1, 5, 24);
  for (int i = 0; i < count; ++i)
    objects_.push_back(make_object(1 + i % kinds, size, scale_for(count), rng));
  rng.shuffle(std::span(objects_));
}

void Scene::light(int64_t number) {
  const auto phase = [this](int shift) {
    return static_cast<int64_t>(light_phase_ >> shift & 65535);
  };
  // All of it within 900 frames; and a bright side that wanders within 700 and 1100.
  const int64_t all = 30 * integer_sine(phase(0) + number * 65536 / 900) / 16384;
  const int64_t at_x = phase(16) + number * 65536 / 700;
  const int64_t at_y = phase(32) + number * 65536 / 1100;
  size_t i = 0;
  for (int64_t x = 0; x < size_.width; ++x) {
    const int64_t own = 32 * integer_sine(at_x + x * 24000 / size_.width) / 16384;
    for (int c = 0; c < size_.channels; ++c) light_x_[i++] = static_cast<uint16_t>(128 + own);
  }
  for (int64_t y = 0; y < size_.height; ++y) {
    const int64_t own = 26 * integer_sine(at_y + y * 24000 / size_.height) / 16384;
    light_y_[static_cast<size_t>(y)] = static_cast<uint16_t>(128 + all + own);
  }
}

void Scene::draw_background(std::span<uint8_t> pixels) const {
  const size_t row_bytes = light_x_.size();
  for (size_t y = 0; y < light_y_.size(); ++y) {
    const uint8_t* const in = background_.data() + y * row_bytes;
    uint8_t* const out = pixels.data() + y * row_bytes;
    const unsigned light_y = light_y_[y];
    // A background of at most 128 in at most 1.4 times its light: no byte overflows.
    for (size_t i = 0; i < row_bytes; ++i)
      out[i] = static_cast<uint8_t>(in[i] * (light_x_[i] + light_y) >> 8);
  }
}

void Scene::draw_all(int64_t number, std::span<uint8_t> pixels, uint8_t* owners) {
  light(number);
  draw_background(pixels);
  const Canvas canvas{size_, pixels.data(), owners, light_x_.data(), light_y_.data()};
  for (size_t i = 0; i < objects_.size(); ++i) {
    draw_any(canvas, objects_[i], pose_of(objects_[i], size_, number), static_cast<uint8_t>(i + 1));
  }
}

void Scene::draw(int64_t number, std::span<uint8_t> pixels) { draw_all(number, pixels, nullptr); }

int Scene::draw_with_labels(int64_t number, std::span<uint8_t> pixels, std::span<uint8_t> labels) {
  std::fill(labels.begin(), labels.end(), uint8_t{0});
  draw_all(number, pixels, labels.data());
  std::array<uint8_t, 256> kinds{};
  for (size_t i = 0; i < objects_.size(); ++i)
    kinds[i + 1] = static_cast<uint8_t>(objects_[i].kind);
  std::array<int64_t, 256> counts{};
  for (uint8_t& label : labels) {
    ++counts[label];
    label = kinds[label];
  }
  size_t largest = 1;
  for (size_t i = 2; i <= objects_.size(); ++i) {
    if (counts[i] >= counts[largest]) largest = i;
  }
  return kinds[largest];
}

}  // namespace penstock::frames

#include "penstock/captions/emoji_font.h"

#include <fmt/format.h>
#include <ft2build.h>

#include <algorithm>
#include <string>
#include <system_error>
#include FT_FREETYPE_H

#include "penstock/text/sources/debian_package.h"
#include "penstock/util/error.h"
#include "penstock/util/text/printable.h"

namespace penstock::captions {

namespace {

/// The largest side of a bitmap that a font of emoji is expected to have.
constexpr unsigned kMostSide = 1024;

/// From blue, green, red and share, as FreeType has them.
Picture picture_of(const FT_Bitmap& bitmap) {
  Picture picture{.width = static_cast<int>(bitmap.width),
                  .height = static_cast<int>(bitmap.rows),
                  .pixels = {},
                  .shares = {}};
  for (unsigned y = 0; y < bitmap.rows; ++y) {
    const uint8_t* row = bitmap.buffer + static_cast<ptrdiff_t>(y) * bitmap.pitch;
    for (unsigned x = 0; x < bitmap.width; ++x) {
      const uint8_t* const pixel = row + size_t{4} * x;
      picture.pixels.insert(picture.pixels.end(), {pixel[2], pixel[1], pixel[0]});
      picture.shares.push_back(pixel[3]);
    }
  }
  return picture;
}

}  // namespace

struct EmojiFont::Face {
  FT_Library library = nullptr;
  FT_Face face = nullptr;

  Face() = default;
  Face(const Face&) = delete;
  Face& operator=(const Face&) = delete;
  ~Face() {
    if (face != nullptr) FT_Done_Face(face);
    if (library != nullptr) FT_Done_FreeType(library);
  }
};

EmojiFont::EmojiFont(const std::filesystem::path& file) : face_(std::make_unique<Face>()) {
  std::error_code ignored;
  const std::string name = printable(file.string());
  if (!std::filesystem::exists(file, ignored))
    throw ConfigError(fmt::format("a font of emoji is expected in {}, which is missing; {}", name,
                                  text::how_to_install("fonts-noto-color-emoji")));
  if (FT_Init_FreeType(&face_->library) != 0) throw RuntimeError("FreeType does not start");
  if (FT_New_Face(face_->library, file.c_str(), 0, &face_->face) != 0)
    throw ConfigError(fmt::format("{}: FreeType does not know it as a font", name));
  const FT_Face face = face_->face;
  if (FT_HAS_COLOR(face) == 0 || face->num_fixed_sizes < 1)
    throw ConfigError(fmt::format(
        "{}: a font with coloured bitmaps is expected, as fonts-noto-color-emoji has them", name));
  const auto* const sizes = face->available_sizes;
  const auto* const largest =
      std::max_element(sizes, sizes + face->num_fixed_sizes,
                       [](const auto& a, const auto& b) { return a.height < b.height; });
  if (FT_Select_Size(face, static_cast<FT_Int>(largest - sizes)) != 0)
    throw ConfigError(fmt::format("{}: its bitmaps cannot be read", name));
}

EmojiFont::~EmojiFont() = default;

std::optional<Picture> EmojiFont::picture(uint32_t code_point) {
  const FT_Face face = face_->face;
  const FT_UInt glyph = FT_Get_Char_Index(face, code_point);
  if (glyph == 0 || FT_Load_Glyph(face, glyph, FT_LOAD_COLOR) != 0) return std::nullopt;
  const FT_Bitmap& bitmap = face->glyph->bitmap;
  if (bitmap.pixel_mode != FT_PIXEL_MODE_BGRA || bitmap.width > kMostSide ||
      bitmap.rows > kMostSide || bitmap.pitch < 0)
    return std::nullopt;
  Picture picture = picture_of(bitmap);
  const bool is_empty = std::all_of(picture.shares.begin(), picture.shares.end(),
                                    [](uint8_t share) { return share < 8; });
  if (is_empty) return std::nullopt;
  return picture;
}

}  // namespace penstock::captions

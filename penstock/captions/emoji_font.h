// Pictures of emoji, out of a font that holds them as bitmaps (tables CBDT and CBLC), as Debian's
// fonts-noto-color-emoji does.
//
//   EmojiFont font(kEmojiFont);
//   if (const auto heart = font.picture(0x2764)) use(heart->pixels);
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

namespace penstock::captions {

inline constexpr std::string_view kEmojiFont = "/usr/share/fonts/truetype/noto/NotoColorEmoji.ttf";

struct Picture {
  int width = 0;
  int height = 0;
  std::vector<uint8_t> pixels;  ///< [height, width, 3], RGB, times their share of the pixel
  std::vector<uint8_t> shares;  ///< [height, width]: 255 hides what is behind, 0 nothing
};

/// Not thread-safe.
class EmojiFont {
 public:
  /// Throws ConfigError: no such file (with the package to install), no font, one without bitmaps.
  explicit EmojiFont(const std::filesystem::path& file);
  ~EmojiFont();
  EmojiFont(const EmojiFont&) = delete;
  EmojiFont& operator=(const EmojiFont&) = delete;

  /// In the largest size that the font has, which in Noto Color Emoji is 136x128 of size 109.
  /// Nothing: there is none, or it is empty (367 of 1,734 names of Debian 12's CLDR).
  std::optional<Picture> picture(uint32_t code_point);

 private:
  struct Face;
  std::unique_ptr<Face> face_;
};

}  // namespace penstock::captions

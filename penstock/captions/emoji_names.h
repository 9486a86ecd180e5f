// What emoji are called: the names of Unicode's Common Locale Data Repository, as Debian's
// unicode-cldr-core installs them (annotations/en.xml, those that are to be read aloud).
//
//   for (const EmojiName& emoji : read_emoji_names(kCldrAnnotations / "en.xml")) use(emoji.name);
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::captions {

inline constexpr std::string_view kCldrFolder = "/usr/share/unicode/cldr/common/annotations";

struct EmojiName {
  uint32_t code_point = 0;
  std::string name;  ///< "red heart"

  bool operator==(const EmojiName&) const = default;
};

/// Of emoji that are one code point (keys have no U+FE0F), ascending by it. Throws ConfigError: no
/// such file (with the package to install), ParseError: no names in it.
std::vector<EmojiName> read_emoji_names(const std::filesystem::path& file);

}  // namespace penstock::captions

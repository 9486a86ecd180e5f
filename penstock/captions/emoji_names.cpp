#include "penstock/captions/emoji_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "penstock/text/plain_text.h"
#include "penstock/text/sources/debian_package.h"
#include "penstock/text/sources/markup.h"
#include "penstock/util/error.h"
#include "penstock/util/files/files.h"
#include "penstock/util/text/printable.h"

namespace penstock::captions {

namespace {

/// What is below is punctuation and mathematics.
constexpr uint32_t kFirstEmoji = 0x2190;

std::string unescaped(std::string_view text) {
  std::string result;
  text::append_unescaped(text, result);
  return result;
}

}  // namespace

std::vector<EmojiName> read_emoji_names(const std::filesystem::path& file) {
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored))
    throw ConfigError(fmt::format("names of emoji are expected in {}, which is missing; {}",
                                  printable(file.string()),
                                  text::how_to_install("unicode-cldr-core")));
  constexpr int64_t kMost = int64_t{1} << 26;
  const std::string bytes = read_file(file, kMost);
  text::MarkupScanner scanner(bytes);
  std::vector<EmojiName> names;
  uint32_t open = 0;
  for (text::MarkupPiece piece; scanner.next(piece);) {
    if (piece.kind == text::MarkupKind::Open && piece.name == "annotation") {
      const std::string key = unescaped(text::attribute(piece.content, "cp"));
      size_t at = 0;
      open = key.empty() ? 0 : text::next_code_point(key, at);
      const bool is_read_aloud = text::attribute(piece.content, "type") == "tts";
      if (at != key.size() || !is_read_aloud || open < kFirstEmoji) open = 0;
    } else if (piece.kind == text::MarkupKind::Text && open != 0) {
      names.push_back({open, text::single_spaced(unescaped(piece.content))});
      open = 0;
    } else {
      open = 0;
    }
  }
  if (names.empty())
    throw ParseError(file.string(), 0, "expected annotations with names of emoji, found none");
  std::sort(names.begin(), names.end(),
            [](const EmojiName& a, const EmojiName& b) { return a.code_point < b.code_point; });
  return names;
}

}  // namespace penstock::captions

#include "penstock/util/text/printable.h"

#include <fmt/format.h>

#include <algorithm>

namespace penstock {

namespace {

struct Character {
  char32_t code = 0;
  size_t bytes = 1;
  bool valid = false;
};

// Decodes the character at `at`: no overlong forms, no surrogates, nothing above U+10FFFF.
Character character_at(std::string_view text, size_t at) {
  const auto byte = [&](size_t k) { return static_cast<unsigned char>(text[at + k]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {lead, 1, true};
  const size_t bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || at + bytes > text.size()) return {};
  char32_t code = lead & (0x7Fu >> bytes);
  for (size_t k = 1; k < bytes; ++k) {
    if ((byte(k) & 0xC0u) != 0x80) return {};
    code = code << 6 | (byte(k) & 0x3Fu);
  }
  constexpr char32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < kLeast[bytes] || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) return {};
  return {code, bytes, true};
}

bool steers_output(char32_t code) {
  return code < 0x20 || (code >= 0x7F && code < 0xA0) || code == 0x200E || code == 0x200F ||
         (code >= 0x2028 && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069) ||
         code == 0xFEFF || (code & 0xFFFE) == 0xFFFE;
}

bool is_wide(char32_t code) {
  return (code >= 0x1100 && code <= 0x115F) || (code >= 0x2E80 && code <= 0xA4CF) ||
         (code >= 0xAC00 && code <= 0xD7A3) || (code >= 0xF900 && code <= 0xFAFF) ||
         (code >= 0xFE30 && code <= 0xFE6F) || (code >= 0xFF00 && code <= 0xFF60) ||
         (code >= 0x1F300 && code <= 0x1FAFF) || (code >= 0x20000 && code <= 0x3FFFD);
}

// The longest prefix (or suffix) of valid UTF-8 that takes at most `most` columns.
std::string_view head(std::string_view text, size_t most) {
  size_t at = 0;
  for (size_t width = 0; at < text.size();) {
    const Character c = character_at(text, at);
    width += is_wide(c.code) ? 2 : 1;
    if (width > most) break;
    at += c.bytes;
  }
  return text.substr(0, at);
}

std::string_view tail(std::string_view text, size_t most) {
  size_t excess = display_width(text);
  size_t at = 0;
  while (at < text.size() && excess > most) {
    const Character c = character_at(text, at);
    excess -= is_wide(c.code) ? 2 : 1;
    at += c.bytes;
  }
  return text.substr(at);
}

}  // namespace

std::string printable(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Character c = character_at(text, at);
    if (c.valid && !steers_output(c.code)) {
      result += text.substr(at, c.bytes);
    } else {
      result += '?';
    }
    at += c.bytes;
  }
  return result;
}

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : printable(text)) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      case '\'':
        result += "&#39;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

size_t display_width(std::string_view text) {
  size_t width = 0;
  for (size_t at = 0; at < text.size();) {
    const Character c = character_at(text, at);
    width += is_wide(c.code) ? 2 : 1;
    at += c.bytes;
  }
  return width;
}

std::string shortened(std::string_view text, size_t most) {
  std::string safe = printable(text);
  if (display_width(safe) <= most) return safe;
  const size_t behind = (most - 2) / 2;
  return fmt::format("{}..{}", head(safe, most - 2 - behind), tail(safe, behind));
}

}  // namespace penstock

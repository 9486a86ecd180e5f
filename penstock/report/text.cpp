#include "penstock/report/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "penstock/util/units.h"

namespace penstock::report {

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
  return code < 0x20 || (code >= 0x7F && code < 0xA0) || code == 0x200E || code == 0x200F || (code >= 0x2028 && code <= 0x202E) ||
         (code >= 0x2066 && code <= 0x2069) || code == 0xFEFF || (code & 0xFFFE) == 0xFFFE;
}

bool is_wide(char32_t code) {
  return (code >= 0x1100 && code <= 0x115F) || (code >= 0x2E80 && code <= 0xA4CF) || (code >= 0xAC00 && code <= 0xD7A3) ||
         (code >= 0xF900 && code <= 0xFAFF) || (code >= 0xFE30 && code <= 0xFE6F) || (code >= 0xFF00 && code <= 0xFF60) ||
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

// Numbers beyond int64 are as good as its end to a reader.
int64_t rounded(double value) {
  if (!(value > 0)) return 0;
  return value < 9.2e18 ? static_cast<int64_t>(std::llround(value)) : INT64_MAX;
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
  const std::string safe = printable(text);
  if (display_width(safe) <= most) return safe;
  const size_t behind = (most - 2) / 2;
  return fmt::format("{}..{}", head(safe, most - 2 - behind), tail(safe, behind));
}

std::string layers_text(const std::vector<std::string>& layers, size_t most) {
  if (layers.empty()) return "-";
  if (layers.size() == 1) return shortened(layers.front(), most);
  constexpr size_t kRoomForWord = 34;
  const std::string count = fmt::format(" ({}{})", layers.size(), most >= kRoomForWord ? " layers" : "");
  const size_t names = most - std::min(most - 8, count.size() + 4);
  const size_t first = display_width(printable(layers.front()));
  const size_t last = display_width(printable(layers.back()));
  // A short name leaves its room to the other one.
  const size_t front = std::min(first, std::max({names / 2, names - std::min(names, last), size_t{4}}));
  const size_t back = std::max<size_t>(4, names - std::min(names, front));
  return fmt::format("{} .. {}{}", shortened(layers.front(), std::max<size_t>(front, 4)), shortened(layers.back(), back), count);
}

std::string short_config(std::string_view config, size_t most) {
  constexpr size_t kRun = 4;
  if (config.find(' ') != std::string_view::npos) return shortened(config, most);
  std::vector<std::string_view> counts;
  for (size_t begin = 0; begin <= config.size() && !config.empty();) {
    const size_t end = std::min(config.find('-', begin), config.size());
    counts.push_back(config.substr(begin, end - begin));
    begin = end + 1;
  }
  std::string text;
  for (size_t begin = 0; begin < counts.size() && text.size() <= most;) {
    size_t end = begin + 1;
    while (end < counts.size() && counts[end] == counts[begin]) ++end;
    if (end - begin < kRun) end = begin + 1;
    text += fmt::format("{}{}", text.empty() ? "" : "-", counts[begin]);
    if (end - begin > 1) text += fmt::format("x{}", end - begin);
    begin = end;
  }
  if (text.size() > most) return plural(static_cast<int64_t>(counts.size()), "stage");
  return text.empty() ? "-" : printable(text);
}

std::string format_rate(double per_s) {
  if (!std::isfinite(per_s)) return "-";
  if (per_s >= 1e9 || per_s < 0.9995) return fmt::format("{:.3g}", per_s);
  return fmt::format("{:.{}f}", per_s, per_s >= 99.95 ? 0 : per_s >= 9.995 ? 1 : 2);
}
std::string plural(int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : noun.ends_with("ch") ? "es" : "s");
}

std::string duration_text(double ns) {
  constexpr double kLongest = 3.6e12 * 10'000;
  return ns < kLongest || std::isnan(ns) ? format_duration(rounded(ns)) : "over 9999 h";
}
std::string bytes_text(double bytes) { return format_bytes(rounded(bytes)); }

std::string percent_text(double share) {
  if (!std::isfinite(share)) return "-";
  const double percent = 100 * share;
  if (percent != 0 && std::fabs(percent) < 9.95) return fmt::format("{:.1f} %", percent);
  return std::fabs(percent) > 1e6 ? fmt::format("{:.1e} %", percent) : fmt::format("{:.0f} %", percent);
}

std::string ratio_text(double value, double base) {
  if (!(base > 0) || !std::isfinite(value)) return "-";
  return value / base >= 1000 ? fmt::format("{:.3g}x", value / base) : fmt::format("{:.2f}x", value / base);
}

}  // namespace penstock::report

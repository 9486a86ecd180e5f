// Text from files and users in messages.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace penstock {

/// At most `most` bytes of the text in single quotes, with '?' for all that is not printable ASCII
/// and "..." where it was cut: safe to show on a terminal.
inline std::string in_quotes(std::string_view text, size_t most = 40) {
  std::string result = "'";
  for (const char c : text.substr(0, most)) result += c >= ' ' && c <= '~' ? c : '?';
  return result + (text.size() > most ? "...'" : "'");
}

}  // namespace penstock

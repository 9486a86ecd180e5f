// Whole numbers as environments hold them: digits and nothing else.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

namespace penstock::launch {

/// The number that the digits of `text` write; nothing for anything else (signs, spaces, an empty
/// text) and for numbers of more than 18 digits.
inline std::optional<int64_t> whole_number(std::string_view text) {
  if (text.empty() || text.size() > 18) return std::nullopt;
  if (text.find_first_not_of("0123456789") != std::string_view::npos) return std::nullopt;
  int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

}  // namespace penstock::launch

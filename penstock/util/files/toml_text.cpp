#include "penstock/util/files/toml_text.h"

#include <fmt/format.h>

#include <iterator>

namespace penstock {

std::string toml_quantity(int64_t value, std::initializer_list<std::string_view> units) {
  auto unit = units.begin();
  while (value != 0 && value % 1000 == 0 && std::next(unit) != units.end()) {
    value /= 1000;
    ++unit;
  }
  return fmt::format("\"{}{}\"", value, *unit);
}

std::string toml_string(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      result += fmt::format("\\u{:04X}", static_cast<unsigned>(c));
    } else {
      result += c;
    }
  }
  return result + '"';
}

}  // namespace penstock

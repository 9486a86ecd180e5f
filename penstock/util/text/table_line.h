// Lines of tables as spreadsheets write them (RFC 4180): cells between separators, quoted or not.
//
//   for (std::string_view rest = bytes; !rest.empty();) use(take_table_line(rest, ','));
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace penstock {

/// The cells of the line at the front of the text, which is taken; a quoted one may hold anything,
/// and two quotation marks in it stand for one.
inline std::vector<std::string> take_table_line(std::string_view& text, char separator) {
  std::vector<std::string> cells(1);
  bool is_quoted = false;
  size_t at = 0;
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '"') {
      if (is_quoted && text.substr(at + 1).starts_with('"'))
        cells.back() += text[++at];
      else
        is_quoted = !is_quoted;
    } else if (!is_quoted && c == '\n') {
      ++at;
      break;
    } else if (!is_quoted && c == separator) {
      cells.emplace_back();
    } else if (c != '\r') {
      cells.back() += c;
    }
  }
  text.remove_prefix(at);
  return cells;
}

}  // namespace penstock

#include "penstock/report/text/text_table.h"

#include <algorithm>

#include "penstock/util/check.h"
#include "penstock/util/printable.h"

namespace penstock::report {

std::string wrapped_item(std::string_view item, size_t width) {
  const std::string text = printable(item);
  std::string result;
  std::string line = "  -";
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const std::string_view word = std::string_view(text).substr(begin, end - begin);
    if (display_width(line) + 1 + display_width(word) > width && line.size() > 3) {
      result += line + '\n';
      line = "   ";
    }
    line += ' ';
    line += word;
    begin = end + 1;
  }
  return result + line + '\n';
}

void TextTable::add(std::vector<std::string> cells) {
  PENSTOCK_CHECK(cells.size() == columns_.size(), cells.size(), columns_.size());
  for (size_t c = 0; c < cells.size(); ++c) cells[c] = shortened(cells[c], columns_[c].most);
  rows_.push_back(std::move(cells));
}

std::string TextTable::to_string(size_t indent) const {
  std::vector<size_t> widths;
  for (size_t c = 0; c < columns_.size(); ++c) {
    size_t width = columns_[c].title.size();
    for (const auto& row : rows_) width = std::max(width, display_width(row[c]));
    widths.push_back(width);
  }
  std::string text;
  const auto add_line = [&](const auto& cell) {
    std::string line(indent, ' ');
    for (size_t c = 0; c < columns_.size(); ++c) {
      const std::string& content = cell(c);
      const std::string padding(widths[c] - display_width(content), ' ');
      if (c > 0) line += "  ";
      line += columns_[c].align == Align::Left ? content + padding : padding + content;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  };
  add_line([&](size_t c) -> const std::string& { return columns_[c].title; });
  for (const auto& row : rows_) add_line([&](size_t c) -> const std::string& { return row[c]; });
  return text;
}

}  // namespace penstock::report

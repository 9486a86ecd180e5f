#include "penstock/report/text/table.h"

#include <fmt/format.h>

#include <algorithm>

#include "penstock/util/check.h"
#include "penstock/util/text/printable.h"

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

void Table::add(std::vector<std::string> cells, RowMark mark) {
  PENSTOCK_CHECK(cells.size() == columns_.size(), cells.size(), columns_.size());
  rows_.push_back(std::move(cells));
  marks_.push_back(mark);
}

std::string Table::text(size_t indent) const {
  std::vector<std::vector<std::string>> lines;
  std::vector<std::string>& titles = lines.emplace_back();
  for (const Column& column : columns_) titles.push_back(column.title);
  for (const auto& row : rows_) {
    std::vector<std::string>& cells = lines.emplace_back();
    for (size_t c = 0; c < row.size(); ++c) cells.push_back(shortened(row[c], columns_[c].most));
  }
  std::vector<size_t> widths(columns_.size());
  for (const auto& cells : lines) {
    for (size_t c = 0; c < cells.size(); ++c)
      widths[c] = std::max(widths[c], display_width(cells[c]));
  }
  std::string text;
  for (const auto& cells : lines) {
    std::string line(indent, ' ');
    for (size_t c = 0; c < cells.size(); ++c) {
      const std::string padding(widths[c] - display_width(cells[c]), ' ');
      if (c > 0) line += "  ";
      line += columns_[c].align == Align::Left ? cells[c] + padding : padding + cells[c];
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

std::string Table::html() const {
  constexpr std::string_view kRows[] = {"<tr>", "<tr class=\"hot\">", "<tr class=\"winner\">"};
  const auto cell = [&](std::string_view tag, size_t column, std::string_view content) {
    const std::string_view style = columns_[column].align == Align::Left ? " class=\"left\"" : "";
    return fmt::format("<{0}{1}>{2}</{0}>", tag, style, escaped(content));
  };
  std::string page = "<div class=\"scroll\"><table>\n<thead><tr>";
  for (size_t c = 0; c < columns_.size(); ++c) page += cell("th", c, columns_[c].title);
  page += "</tr></thead>\n<tbody>\n";
  for (size_t r = 0; r < rows_.size(); ++r) {
    page += kRows[static_cast<size_t>(marks_[r])];
    for (size_t c = 0; c < columns_.size(); ++c) page += cell("td", c, rows_[r][c]);
    page += "</tr>\n";
  }
  return page + "</tbody></table></div>\n";
}

std::string html_paragraph(std::string_view style, std::string_view text) {
  return fmt::format("<p class=\"{}\">{}</p>\n", style, escaped(text));
}

std::string html_list(const std::vector<std::string>& items) {
  if (items.empty()) return "";
  std::string page = "<ul>\n";
  for (const std::string& item : items) page += fmt::format("<li>{}</li>\n", escaped(item));
  return page + "</ul>\n";
}

}  // namespace penstock::report

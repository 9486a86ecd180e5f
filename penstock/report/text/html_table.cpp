#include "penstock/report/text/html_table.h"

#include <fmt/format.h>

#include "penstock/util/printable.h"

namespace penstock::report {

void HtmlTable::add(const std::vector<std::string>& cells, std::string_view row_style) {
  rows_ += row_style.empty() ? "<tr>" : fmt::format("<tr class=\"{}\">", row_style);
  for (size_t c = 0; c < cells.size(); ++c) rows_ += cell("td", c, cells[c]);
  rows_ += "</tr>\n";
}

std::string HtmlTable::to_string() const {
  std::string text = "<div class=\"scroll\"><table>\n<thead><tr>";
  for (size_t c = 0; c < columns_.size(); ++c) text += cell("th", c, columns_[c].title);
  return text + "</tr></thead>\n<tbody>\n" + rows_ + "</tbody></table></div>\n";
}

std::string HtmlTable::cell(std::string_view tag, size_t column, std::string_view content) const {
  const std::string_view style = columns_[column].style;
  return fmt::format("<{0}{1}>{2}</{0}>", tag,
                     style.empty() ? "" : fmt::format(" class=\"{}\"", style), escaped(content));
}

std::string html_paragraph(std::string_view style, std::string_view text) {
  return fmt::format("<p class=\"{}\">{}</p>\n", style, escaped(text));
}

}  // namespace penstock::report

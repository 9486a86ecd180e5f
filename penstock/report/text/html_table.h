// Pieces of an HTML page from text that may come from anywhere. Internal to the reports.
//
//   HtmlTable table({{"stage", ""}, {"layers", "wide"}});
//   table.add({"0", "conv1 .. <pool5>"});   // escaped here
//   page += table.to_string();
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::report {

struct Heading {
  std::string_view title;
  std::string_view style;  ///< of the whole column: "left", "wide" or nothing for numbers
};

/// A table row by row; cells are text and are escaped here. Styles are ours and are not.
class HtmlTable {
 public:
  explicit HtmlTable(std::vector<Heading> columns) : columns_(std::move(columns)) {}

  /// As many cells as columns, or fewer.
  void add(const std::vector<std::string>& cells, std::string_view row_style = "");
  std::string to_string() const;

 private:
  std::string cell(std::string_view tag, size_t column, std::string_view content) const;

  std::vector<Heading> columns_;
  std::string rows_;
};

/// <p class="style">text</p>, the text escaped.
std::string html_paragraph(std::string_view style, std::string_view text);

}  // namespace penstock::report

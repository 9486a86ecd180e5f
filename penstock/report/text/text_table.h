// Lines up cells in columns; internal to the reports.
//
//   TextTable table({{"layer", Align::Left, 24}, {"forward", Align::Right}});
//   table.add({"conv1", "1.2 ms"});
//   std::string text = table.to_string();
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::report {

enum class Align : uint8_t { Left, Right };

struct Column {
  std::string title;
  Align align = Align::Right;
  size_t most = 40;  ///< wider cells are shortened in the middle
};

class TextTable {
 public:
  explicit TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {}
  /// One cell per column; made printable().
  void add(std::vector<std::string> cells);
  /// Title line and rows, each indented by `indent` and ended by a newline; no trailing spaces.
  std::string to_string(size_t indent = 0) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

/// printable(text) as a "- " list item broken at spaces so that no line passes `width`.
std::string wrapped_item(std::string_view text, size_t width);

}  // namespace penstock::report

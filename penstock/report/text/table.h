// A table as text with columns lined up, and as HTML. Internal to the reports.
//
//   Table table({{"layer", Align::Left, 24}, {"forward"}});
//   table.add({"conv1", "1.2 ms"});
//   std::string text = table.text();
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
  size_t most = 40;  ///< in text, wider cells are shortened in the middle
};

/// How a page shows a row; text does not show it.
enum class RowMark : uint8_t { None, Slowest, Chosen };

class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  /// One cell per column. Cells may hold anything: text() makes them printable(), html() escapes
  /// them.
  void add(std::vector<std::string> cells, RowMark mark = RowMark::None);

  /// Title line and rows, each indented by `indent` and ended by a newline; no trailing spaces.
  std::string text(size_t indent = 0) const;
  /// A `<table>` that scrolls sideways where the page is too narrow.
  std::string html() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
  std::vector<RowMark> marks_;  ///< as many as rows
};

/// printable(text) as a "- " list item broken at spaces so that no line passes `width`.
std::string wrapped_item(std::string_view text, size_t width);

/// <p class="style">text</p>, the text escaped.
std::string html_paragraph(std::string_view style, std::string_view text);

/// <ul> of the items, escaped; empty for none.
std::string html_list(const std::vector<std::string>& items);

}  // namespace penstock::report

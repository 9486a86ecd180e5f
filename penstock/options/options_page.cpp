#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "penstock/options/rows.h"

namespace penstock::options {

namespace {

/// Broken into lines of at most 100 columns, the later ones indented.
std::string wrapped(const std::string& text, const std::string& indent) {
  constexpr size_t kColumns = 100;
  std::string lines;
  size_t column = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const size_t length = end - begin;
    if (column > 0 && column + 1 + length > kColumns) {
      lines += '\n' + indent;
      column = indent.size();
    } else if (column > 0) {
      lines += ' ';
      ++column;
    }
    lines.append(text, begin, length);
    column += length;
    begin = end + 1;
  }
  return lines + '\n';
}

/// What stands between semicolons, where that is a list; otherwise all of it.
std::vector<std::string> parts_of(const std::string& text) {
  constexpr int kFewest = 3;
  if (std::count(text.begin(), text.end(), ';') < kFewest) return {text};
  std::vector<std::string> parts;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find("; ", begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 2;
  }
  return parts;
}

std::string_view changes_text(Changes changes) {
  switch (changes) {
    case Changes::Plan:
      return " A resumed run with another value plans anew.";
    case Changes::Learning:
      return " A resumed run with another value is warned.";
    case Changes::Both:
      return " A resumed run with another value is warned and plans anew.";
    case Changes::Run:
      break;
  }
  return "";
}

std::string entry(const Row& row) {
  std::string notes;
  const auto note = [&](const std::string& text) { notes += (notes.empty() ? " (" : "; ") + text; };
  if (!row.keyword.empty()) note(fmt::format("Python: `{}`", row.keyword));
  const std::string usual = is_flag(row) ? "" : text_of(row, {});
  if (!usual.empty() && usual != "0") note(fmt::format("default: {}", usual));
  if (!notes.empty()) notes += ')';
  const std::string head = fmt::format("- **`{}`**{}:", row.name, notes);
  const std::vector<std::string> parts = parts_of(row.help);
  if (parts.size() == 1)
    return wrapped(fmt::format("{} {}.{}", head, row.help, changes_text(row.changes)), "  ");
  std::string text = wrapped(head + std::string(changes_text(row.changes)), "  ");
  for (const std::string& part : parts) text += wrapped("  - " + part, "    ");
  return text;
}

}  // namespace

std::string options_page() {
  std::string page =
      "# Options of `penstock train`\n\n"
      "<!-- Written by options_test from the rows of penstock/options: see "
      "docs/extending.md. -->\n\n"
      "Each option is a row of one table (`penstock/options/`). `penstock.Trainer` of Python "
      "takes\n"
      "those with a keyword; the others say nothing there, or the trainer has its own way.\n";
  std::optional<Section> section;
  for (const Row& row : train_rows()) {
    if (row.section != section) page += fmt::format("\n## {}\n\n", to_string(row.section));
    section = row.section;
    page += entry(row);
  }
  return page;
}

}  // namespace penstock::options

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

/// What stands behind the option's name, and what another value does to a resumed run.
struct EntryNotes {
  std::string in_brackets;
  std::string_view resumed;
};

template <class Request>
EntryNotes notes_of(const RowOf<Request>& row) {
  EntryNotes notes{.in_brackets = {}, .resumed = changes_text(row.changes)};
  const auto note = [&](const std::string& text) {
    notes.in_brackets += (notes.in_brackets.empty() ? " (" : "; ") + text;
  };
  if (!row.letter.empty()) note(fmt::format("`{}`", row.letter));
  if (!row.keyword.empty()) note(fmt::format("Python: `{}`", row.keyword));
  // What is usual where nothing is chosen may depend on the machine.
  Request request;
  const std::string usual = usual_text(row);
  if (!usual.empty() && !text_of(row.slot(request)).empty())
    note(fmt::format("default: {}", usual));
  if (!notes.in_brackets.empty()) notes.in_brackets += ')';
  return notes;
}

std::string entry(std::string_view name, const std::string& help, const EntryNotes& notes) {
  const std::string head = fmt::format("- **`{}`**{}:", name, notes.in_brackets);
  const std::vector<std::string> parts = parts_of(help);
  if (parts.size() == 1) return wrapped(fmt::format("{} {}.{}", head, help, notes.resumed), "  ");
  std::string text = wrapped(head + std::string(notes.resumed), "  ");
  for (const std::string& part : parts) text += wrapped("  - " + part, "    ");
  return text;
}

/// Its rows by sections, these in the order of their first rows.
template <class Request>
std::string chapter(std::string_view command) {
  std::vector<Section> sections;
  for (const auto& row : rows_of<Request>()) {
    if (std::find(sections.begin(), sections.end(), row.section) == sections.end())
      sections.push_back(row.section);
  }
  std::string text = fmt::format("\n## `penstock {}`\n", command);
  for (const Section section : sections) {
    text += fmt::format("\n### {}\n\n", to_string(section));
    for (const auto& row : rows_of<Request>())
      if (row.section == section) text += entry(row.name, row.help, notes_of(row));
  }
  return text;
}

}  // namespace

std::string options_page() {
  return "# Options\n\n"
         "<!-- Written by options_test from the rows of penstock/options: see "
         "docs/extending.md. -->\n\n"
         "Each option is a row of the table of its command (`penstock/options/`). "
         "`penstock.Trainer`\n"
         "of Python takes those of `train` with a keyword; the others say nothing there, or the "
         "trainer\n"
         "has its own way. `penstock plan` has more options than these, which choose among "
         "plans.\n" +
         chapter<TrainRequest>("train") + chapter<StreamRequest>("stream") +
         chapter<ProfileRequest>("profile") + chapter<SearchRequest>("plan");
}

}  // namespace penstock::options

// Walks the lines of a text with their numbers, without copying. A newline at the very end does not
// begin another line.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "penstock/schedule/formats/action_parser.h"

namespace penstock::schedule {

class TextLines {
 public:
  explicit TextLines(std::string_view text) : rest_(text) {}

  /// Moves to the next line; false at the end.
  bool next() {
    if (rest_.empty()) return false;
    const size_t end = std::min(rest_.find('\n'), rest_.size());
    line_ = trimmed(rest_.substr(0, end));
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    ++number_;
    return true;
  }
  /// The line, trimmed.
  std::string_view line() const { return line_; }
  /// Its number, from 1.
  int64_t number() const { return number_; }

 private:
  std::string_view rest_;
  std::string_view line_;
  int64_t number_ = 0;
};

}  // namespace penstock::schedule

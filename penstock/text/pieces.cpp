#include "penstock/text/pieces.h"

#include <algorithm>

#include "penstock/util/error.h"

namespace penstock::text {

namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581

void replace_marks(std::string& text) {
  for (size_t at = text.find(kSpaceMark); at != std::string::npos; at = text.find(kSpaceMark, at))
    text.replace(at, kSpaceMark.size(), " ");
}

}  // namespace

Pieces Pieces::parse(std::string_view lines, std::string_view place) {
  Pieces pieces;
  while (!lines.empty()) {
    const size_t end = std::min(lines.find('\n'), lines.size());
    pieces.pieces_.emplace_back(lines.substr(0, end));
    lines.remove_prefix(std::min(end + 1, lines.size()));
  }
  if (pieces.pieces_.empty()) throw ParseError(place, 0, "expected a piece a line, found none");
  return pieces;
}

std::string Pieces::text(std::span<const int64_t> tokens, const Unwritten& unwritten) const {
  std::string text;
  for (const int64_t token : tokens) {
    if (std::find(unwritten.silent.begin(), unwritten.silent.end(), token) !=
        unwritten.silent.end())
      continue;
    const bool is_known = token >= 0 && token < size() && token != unwritten.unknown;
    std::string piece = is_known              ? pieces_[static_cast<size_t>(token)]
                        : unwritten.are_words ? unwritten.mark
                                              : " " + unwritten.mark + " ";
    const bool begins = text.empty();
    const bool has_mark = piece.starts_with(kSpaceMark);
    if (has_mark && (begins || unwritten.are_words)) piece.erase(0, kSpaceMark.size());
    if (unwritten.are_words && !begins) text += ' ';
    text += piece;
  }
  replace_marks(text);
  return text;
}

}  // namespace penstock::text

// How tokens become text, without the library that made the vocabulary: its pieces, one a line.
// Debian's SentencePiece has symbols of its own protobuf, which must not meet those of libtorch: so
// nothing that a program with libtorch uses may refer to vocabulary.h's functions.
//
//   const Pieces pieces = Pieces::parse(read_file("vocabulary.txt"), "vocabulary.txt");
//   pieces.text({5, 9, 7}, {.unknown = 1, .silent = {0, 2, 3}}) == "some words";
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::text {

/// Tokens that stand for no text of their own.
struct Unwritten {
  int64_t unknown = 1;                ///< written as Unwritten::mark
  std::vector<int64_t> silent = {};   ///< not written at all
  std::string mark = "\xE2\x81\x87";  ///< as SentencePiece writes what it does not know
  bool are_words = false;             ///< tokens are whole words, with a space between any two
};

/// Immutable; thread-safe.
class Pieces {
 public:
  /// A line per token, from 0 on; a space within a text is written as U+2581. Throws ParseError:
  /// no line.
  static Pieces parse(std::string_view lines, std::string_view place);

  int64_t size() const { return static_cast<int64_t>(pieces_.size()); }
  /// As SentencePiece decodes them; tokens that have no piece count as unknown.
  std::string text(std::span<const int64_t> tokens, const Unwritten& unwritten) const;

 private:
  std::vector<std::string> pieces_;
};

}  // namespace penstock::text

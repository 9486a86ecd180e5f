// What the text tools know of characters: UTF-8, white space, lower case. No locale is asked, so
// that the same text gives the same data on every machine.
//
//   single_spaced("  a\u00a0 b\t") == "a b";  folded("Ärger IM") == "ärger im";
//
// Pure; thread-safe. All of them are O(size).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace penstock::text {

/// The code point that begins at `at`, which moves behind it. A byte that begins none is returned
/// as it is, plus 0xDC00 (a value that UTF-8 cannot have). Needs at < text.size().
uint32_t next_code_point(std::string_view text, size_t& at);

void append_utf8(uint32_t code_point, std::string& out);

/// Where the first byte stands that is no UTF-8; nothing: there is none.
std::optional<size_t> first_invalid_utf8(std::string_view text);

/// White space as Python's str.split() has it: no-break spaces, line separators and the like, too.
bool is_white_space(uint32_t code_point);

/// The words with one space between them, and none around. Control characters count as spaces;
/// bytes that are no UTF-8 become U+FFFD.
std::string single_spaced(std::string_view text);

/// Words of single-spaced text.
int64_t count_words(std::string_view spaced);

/// In lower case: Latin, Greek, Cyrillic and Armenian letters that have one.
std::string folded(std::string_view text);

/// folded(), without digits and punctuation: what two nearly equal sentences share.
std::string letters_of(std::string_view text);

}  // namespace penstock::text

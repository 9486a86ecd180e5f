// Plain text, a sentence a line.
//
//   const std::vector<std::string> lines = read_lines("train.en");
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::text {

/// The largest file of plain text.
inline constexpr int64_t kMaxPlainTextBytes = int64_t{4} << 30;

/// The lines of a text, single-spaced, empty ones too. A mark of byte order, and what Windows ends
/// lines with, are left out. Throws ParseError(place, line, ...) where it is no UTF-8.
std::vector<std::string> lines_of(std::string_view text, std::string_view place);

/// The same of a file of up to kMaxPlainTextBytes. Throws ConfigError where it cannot be read, or
/// where the memory does not suffice.
std::vector<std::string> read_lines(const std::filesystem::path& file);

}  // namespace penstock::text

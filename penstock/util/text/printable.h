// Makes text from any source (layer names, notes, messages) safe to print and cuts it to a width.
//
//   printable("conv\x1b[31m1") == "conv?[31m1";
//   shortened("a_long_layer_name", 10) == "a_lo..name";
//   escaped("<a&b>") == "&lt;a&amp;b&gt;"
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace penstock {

/// The text with '?' for everything that could control a terminal or is not UTF-8: control
/// characters, marks that reverse the direction of writing, invalid bytes. O(size).
std::string printable(std::string_view text);

/// printable(), and with the five special characters of XML and HTML as entities: safe between tags
/// and inside quotes.
std::string escaped(std::string_view text);

/// Columns that the UTF-8 text takes: one per character, two for East Asian wide ones.
size_t display_width(std::string_view text);

/// printable(text), or its first and last characters around ".." when it is wider than `most` (at
/// least 4) columns.
std::string shortened(std::string_view text, size_t most);

}  // namespace penstock

// Text that may come from anywhere (layer names, notes), made safe to print and cut to a width; and the numbers of the reports. Internal.
//
//   printable("conv\x1b[31m1") == "conv?[31m1";  shortened("a_long_layer_name", 10) == "a_lo..name";  escaped("<a&b>") == "&lt;a&amp;b&gt;"
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::report {

/// The text with '?' for everything that could steer a terminal or is no UTF-8: control characters, marks that reverse the direction of
/// writing, invalid bytes. O(size).
std::string printable(std::string_view text);

/// printable(), and with the five special characters of XML and HTML as entities: safe between tags and inside quotes.
std::string escaped(std::string_view text);

/// Columns that the UTF-8 text takes: one per character, two for East Asian wide ones.
size_t display_width(std::string_view text);

/// printable(text), or its first and last characters around ".." when it is wider than `most` (at least 4) columns.
std::string shortened(std::string_view text, size_t most);

/// "conv1_1 .. pool3 (10 layers)" in at most `most` (at least 20) columns, "(10)" where that is narrow; the name alone of a single layer,
/// "-" for none.
std::string layers_text(const std::vector<std::string>& layers, size_t most);

/// Replica counts as Plan::config() joins them, with "1x16" for four and more equal ones in a row; "24 stages" where that is still wider
/// than `most` (at least 16). "8x2 chunks", of workers with several stages, stays as it is.
std::string short_config(std::string_view config, size_t most);

/// At least three significant digits: "0.0123", "4.57", "20.0", "12346".
std::string format_rate(double per_s);
/// "1 worker", "3 micro-batches".
std::string plural(int64_t count, std::string_view noun);
/// format_duration and format_bytes of a number that may be beyond 64 bits or not finite; "over 9999 h" for times that nobody waits for.
std::string duration_text(double ns);
std::string bytes_text(double bytes);
/// "12 %", "0.4 %".
std::string percent_text(double share);
/// "1.83x"; "-" when there is nothing to divide by.
std::string ratio_text(double value, double base);

}  // namespace penstock::report

// The numbers and names of the reports in words. Internal.
//
//   ratio_text(11, 6) == "1.83x";
//   percent_text(0.004) == "0.4 %"
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/util/text/plural.h"

namespace penstock::report {

using penstock::plural;

/// "conv1_1 .. pool3 (10 layers)" in at most `most` (at least 20) columns, "(10)" where that is
/// narrow; the name alone of a single layer, "-" for none.
std::string layers_text(const std::vector<std::string>& layers, size_t most);

/// Replica counts as Plan::config() joins them, with "1x16" for four and more equal ones in a row;
/// "24 stages" where that is still wider than `most` (at least 16). "8x2 chunks", of workers with
/// several stages, stays as it is.
std::string short_config(std::string_view config, size_t most);

/// format_duration and format_bytes of a number that may be beyond 64 bits or not finite; "over
/// 9999 h" for times that nobody waits for.
std::string duration_text(double ns);
std::string bytes_text(double bytes);
/// duration_text or format_bytes; "-" for what is not above 0.
std::string time_or_dash(double ns);
std::string size_or_dash(int64_t bytes);
/// "12 %", "0.4 %".
std::string percent_text(double share);
/// "1.83x"; "-" when there is nothing to divide by.
std::string ratio_text(double value, double base);

}  // namespace penstock::report

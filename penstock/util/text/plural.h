// Counts in words: plural(1, "worker") == "1 worker", plural(3, "micro-batch") == "3
// micro-batches".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace penstock {

/// With -s, or -es after "tch" and "ss".
std::string plural(int64_t count, std::string_view noun);

}  // namespace penstock

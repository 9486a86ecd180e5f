// The order of names in which people count: frame2 before frame10.
#pragma once

#include <string_view>

namespace penstock::frames {

/// True if `a` comes before `b`. Runs of digits compare as numbers of any length, all else byte by
/// byte; names that differ only in leading zeros compare byte by byte. A strict weak order.
bool is_naturally_before(std::string_view a, std::string_view b);

}  // namespace penstock::frames

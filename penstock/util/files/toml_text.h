// Writing TOML values so that they read back exactly.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace penstock {

/// `value` in quotes, in the largest unit that divides it; `units` ascend by factors of 1000.
std::string toml_quantity(int64_t value, std::initializer_list<std::string_view> units);

/// `text` in quotes, escaped for TOML.
std::string toml_string(std::string_view text);

}  // namespace penstock

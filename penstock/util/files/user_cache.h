// Where a user's files lie that cost nothing but time when they are lost.
//
//   user_cache_folder("profiles") == "/home/ada/.cache/penstock/profiles"
#pragma once

#include <filesystem>
#include <string_view>

namespace penstock {

/// "penstock/NAME" in $XDG_CACHE_HOME, else in $HOME/.cache (XDG Base Directory Specification:
/// relative paths count as none). Empty: neither is set. Makes nothing.
std::filesystem::path user_cache_folder(std::string_view name);

}  // namespace penstock

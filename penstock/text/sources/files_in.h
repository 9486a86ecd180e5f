// The files of a folder, in an order that does not depend on the file system.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::text {

/// Files directly in the folder whose names end so, sorted by name; names alone. Throws
/// ConfigError: no folder, not readable, more than a million files.
std::vector<std::string> files_in(const std::filesystem::path& folder, std::string_view ending);

/// The same of the folder and all below; paths relative to the folder, with '/'. Does not follow
/// links to folders.
std::vector<std::string> files_below(const std::filesystem::path& folder, std::string_view ending);

}  // namespace penstock::text

// Debian's packages that texts come from: which version is installed, what to type where none is.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace penstock::text {

/// The version of an installed package; empty where it is not installed, or this is no Debian.
/// Blocks while dpkg's list of packages is read.
std::string package_version(std::string_view package,
                            const std::filesystem::path& status = "/var/lib/dpkg/status");

/// "install it: apt-get install libreoffice-help-de".
std::string how_to_install(std::string_view package);

}  // namespace penstock::text

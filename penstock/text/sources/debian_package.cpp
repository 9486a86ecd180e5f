#include "penstock/text/sources/debian_package.h"

#include <fmt/format.h>

#include <algorithm>

#include "penstock/util/error.h"
#include "penstock/util/files/file_bytes.h"

namespace penstock::text {

std::string package_version(std::string_view package, const std::filesystem::path& status) {
  constexpr int64_t kMost = int64_t{1} << 28;
  constexpr std::string_view kVersion = "\nVersion: ";
  constexpr std::string_view kInstalled = "\nStatus: install ok installed\n";
  try {
    const FileBytes bytes(status, kMost);
    const std::string_view text = bytes.view();
    const std::string title = fmt::format("Package: {}\n", package);
    for (size_t at = text.find(title); at != std::string_view::npos;
         at = text.find(title, at + 1)) {
      if (at > 0 && text[at - 1] != '\n') continue;
      const std::string_view entry = text.substr(at, text.find("\n\n", at) - at);
      const size_t version = entry.find(kVersion);
      if (version == std::string_view::npos || entry.find(kInstalled) == std::string_view::npos)
        continue;
      const size_t begin = version + kVersion.size();
      return std::string(
          entry.substr(begin, std::min(entry.find('\n', begin), entry.size()) - begin));
    }
  } catch (const ConfigError&) {  // no Debian
  }
  return "";
}

std::string how_to_install(std::string_view package) {
  return fmt::format("install it: apt-get install {}", package);
}

}  // namespace penstock::text

#include "penstock/text/sources/files_in.h"

#include <fmt/format.h>

#include <algorithm>

#include "penstock/util/error.h"

namespace penstock::text {

namespace {

template <class Iterator>
std::vector<std::string> listed(const std::filesystem::path& folder, std::string_view ending) {
  constexpr size_t kMost = 1'000'000;
  std::vector<std::string> names;
  try {
    for (const auto& entry : Iterator(folder)) {
      if (!entry.is_regular_file()) continue;
      const std::string name = entry.path().lexically_relative(folder).generic_string();
      if (!name.ends_with(ending)) continue;
      if (names.size() == kMost)
        throw ConfigError(fmt::format("{}: expected at most {} files", folder.string(), kMost));
      names.push_back(name);
    }
  } catch (const std::filesystem::filesystem_error& error) {
    throw ConfigError(fmt::format("{}: expected a folder that can be read: {}", folder.string(),
                                  error.code().message()));
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

std::vector<std::string> files_in(const std::filesystem::path& folder, std::string_view ending) {
  return listed<std::filesystem::directory_iterator>(folder, ending);
}

std::vector<std::string> files_below(const std::filesystem::path& folder, std::string_view ending) {
  return listed<std::filesystem::recursive_directory_iterator>(folder, ending);
}

}  // namespace penstock::text

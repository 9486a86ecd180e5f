#include "penstock/util/files/user_cache.h"

#include <cstdlib>

namespace penstock {

std::filesystem::path user_cache_folder(std::string_view name) {
  const auto absolute = [](const char* variable) {
    const char* const value = std::getenv(variable);
    return std::filesystem::path(value != nullptr && *value == '/' ? value : "");
  };
  std::filesystem::path caches = absolute("XDG_CACHE_HOME");
  if (const auto home = absolute("HOME"); caches.empty() && !home.empty()) caches = home / ".cache";
  return caches.empty() ? caches : caches / "penstock" / name;
}

}  // namespace penstock

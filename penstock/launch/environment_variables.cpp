#include "penstock/launch/environment_variables.h"

#include <fmt/format.h>

#include <algorithm>

#include "penstock/launch/whole_number.h"
#include "penstock/util/error.h"
#include "penstock/util/text/quoted.h"

namespace penstock::launch {

namespace {

constexpr size_t kMostAddressBytes = 253;

}  // namespace

std::string Variables::text(const char* name) const {
  return has(name) ? std::string(variable_(name)) : std::string();
}

int64_t Variables::number(const char* name, int64_t least, int64_t most) const {
  return number(name, least, most, fmt::format("a whole number from {} to {}", least, most));
}

int64_t Variables::index(const char* name, std::string_view count, int64_t of) const {
  return number(name, 0, of - 1,
                fmt::format("a whole number from 0 to {} ({}={})", of - 1, count, of));
}

void Variables::missing(const char* name, std::string_view because) const {
  throw ConfigError(fmt::format("environment variable {} is missing: {}", name, because));
}

bool Variables::is_of_service(const char* name) const {
  return text(name).find("://") != std::string::npos;
}

int64_t Variables::number(const char* name, int64_t least, int64_t most,
                          const std::string& expected) const {
  if (!has(name)) missing(name, "expected " + expected);
  const std::string found = text(name);
  const auto value = whole_number(found);
  if (value && *value >= least && *value <= most) return *value;
  const char* service =
      is_of_service(name) ? ", as Kubernetes sets it for a Service of that name" : "";
  throw ConfigError(fmt::format("environment variable {}: expected {}, found {}{}", name, expected,
                                in_quotes(found), service));
}

std::string Variables::address(const char* name) const { return checked_address(name, text(name)); }

std::string Variables::checked_address(const char* name, std::string found) const {
  const bool printable = std::all_of(found.begin(), found.end(), [](char c) {
    return c > ' ' && c <= '~';  // no space
  });
  if (found.empty() || found.size() > kMostAddressBytes || !printable)
    throw ConfigError(
        fmt::format("environment variable {}: expected the name or address of rank 0's machine, "
                    "found {}",
                    name, in_quotes(found)));
  return found;
}

}  // namespace penstock::launch

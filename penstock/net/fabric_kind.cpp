#include "penstock/net/fabric_kind.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "penstock/util/error.h"
#include "penstock/util/text/printable.h"

namespace penstock::net {

namespace {

/// In the order of FabricKind.
constexpr std::array<std::string_view, 6> kFabricNames{"auto", "local", "tcp",
                                                       "gloo", "nccl",  "mpi"};

}  // namespace

std::string to_string(FabricKind kind) {
  return std::string(kFabricNames.at(static_cast<size_t>(kind)));
}

FabricKind parse_fabric(const std::string& name) {
  const auto found = std::find(kFabricNames.begin(), kFabricNames.end(), name);
  if (found != kFabricNames.end()) return static_cast<FabricKind>(found - kFabricNames.begin());
  throw ConfigError(fmt::format("unknown fabric '{}', expected one of {}", printable(name),
                                fmt::join(kFabricNames, ", ")));
}

}  // namespace penstock::net

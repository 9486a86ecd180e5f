#include "tools/penstock/fabric_choice.h"

#include <fmt/format.h>

#include <array>
#include <string_view>
#include <utility>

#include "penstock/util/error.h"
#include "penstock/util/printable.h"

namespace penstock::tool {

namespace {

constexpr std::array<std::pair<std::string_view, FabricChoice>, 6> kNames{
    {{"auto", FabricChoice::Auto},
     {"local", FabricChoice::Local},
     {"tcp", FabricChoice::Tcp},
     {"gloo", FabricChoice::Gloo},
     {"nccl", FabricChoice::Nccl},
     {"mpi", FabricChoice::Mpi}}};

}  // namespace

std::string to_string(FabricChoice choice) {
  for (const auto& [name, known] : kNames) {
    if (known == choice) return std::string(name);
  }
  return {};
}

FabricChoice parse_fabric(const std::string& name) {
  std::string names;
  for (const auto& [known, choice] : kNames) {
    if (name == known) return choice;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", known);
  }
  throw ConfigError(
      fmt::format("unknown fabric '{}' (--fabric), expected one of {}", printable(name), names));
}

}  // namespace penstock::tool

#include "penstock/cluster/device_name.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "penstock/util/error.h"
#include "penstock/util/text/printable.h"

namespace penstock::cluster {

namespace {

constexpr int kMostGpus = 1024;
constexpr size_t kMostNames = 1024;

DeviceName parse_one(const std::string& word) {
  const std::string numbered = "cuda:";
  if (word == "cpu") return {};
  if (word == "cuda") return {.kind = DeviceName::Kind::Cuda};
  if (word.starts_with(numbered)) {
    DeviceName name{.kind = DeviceName::Kind::Cuda};
    const char* const end = word.data() + word.size();
    const auto [rest, error] = std::from_chars(word.data() + numbered.size(), end, name.index);
    if (error == std::errc() && rest == end && name.index >= 0 && name.index < kMostGpus)
      return name;
  }
  throw ConfigError(fmt::format(
      "expected cpu, cuda, cuda:N or a list such as cuda:0,cuda:1, found '{}'", printable(word)));
}

}  // namespace

std::string to_string(const DeviceName& name) {
  if (name.is_cpu()) return "cpu";
  return name.index < 0 ? "cuda" : fmt::format("cuda:{}", name.index);
}

std::vector<DeviceName> parse_device_names(const std::string& text) {
  std::vector<DeviceName> names;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    names.push_back(parse_one(text.substr(begin, end - begin)));
    if (names.size() > kMostNames)
      throw ConfigError(fmt::format("expected at most {} devices, found more", kMostNames));
    begin = end + 1;
  }
  const auto all = [](const DeviceName& name) { return !name.is_cpu() && name.index < 0; };
  const auto one = [](const DeviceName& name) { return name.index >= 0; };
  if (std::any_of(names.begin(), names.end(), all) && std::any_of(names.begin(), names.end(), one))
    throw ConfigError(
        fmt::format("'{}' names all GPUs (cuda) and single ones: expected either", text));
  return names;
}

std::vector<DeviceName> expand_devices(const std::vector<DeviceName>& names, int gpus) {
  std::vector<DeviceName> devices;
  for (const DeviceName& name : names) {
    if (name.is_cpu()) {
      devices.push_back(name);
      continue;
    }
    if (gpus < 1)
      throw ConfigError(
          fmt::format("the device {} does not exist: there is no GPU", to_string(name)));
    if (name.index >= gpus) {
      throw ConfigError(fmt::format("the device {} does not exist: {}", to_string(name),
                                    gpus == 1
                                        ? "the only GPU is cuda:0"
                                        : fmt::format("the GPUs are cuda:0 to cuda:{}", gpus - 1)));
    }
    for (int index = std::max(name.index, 0); index < (name.index < 0 ? gpus : name.index + 1);
         ++index)
      devices.push_back({.kind = DeviceName::Kind::Cuda, .index = index});
  }
  return devices;
}

std::vector<DeviceName> deal_devices(const std::vector<DeviceName>& devices, int workers) {
  const auto used = std::min(devices.size(), static_cast<size_t>(std::max(workers, 0)));
  std::vector<DeviceName> dealt;
  for (size_t w = 0; std::ssize(dealt) < workers; ++w)
    dealt.push_back(devices[w * used / static_cast<size_t>(workers)]);
  return dealt;
}

}  // namespace penstock::cluster

#include "penstock/net/host_id.h"

#include <unistd.h>

#include <array>
#include <fstream>

namespace penstock::net {

std::string target_of(const char* link) {
  std::array<char, 64> target = {};
  const ssize_t length = readlink(link, target.data(), target.size());
  return length > 0 ? std::string(target.data(), static_cast<size_t>(length)) : std::string();
}

std::string host_id() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  const std::string network = target_of("/proc/self/ns/net");
  return boot.empty() || network.empty() ? std::string() : boot + " " + network;
}

}  // namespace penstock::net

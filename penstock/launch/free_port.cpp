#include "penstock/launch/free_port.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <random>

#include "penstock/launch/file_descriptor.h"
#include "penstock/launch/socket_address.h"
#include "penstock/util/error.h"
#include "penstock/util/quoted.h"

namespace penstock::launch {

namespace {

constexpr int kLeastPort = 10'000;
constexpr int kAttempts = 200;

/// 0, or the errno that keeps a process from listening there.
int why_not(const std::string& address, int port) {
  const SocketAddresses addresses = find_address(address, port);
  const FileDescriptor listener(
      socket(addresses->ai_family, SOCK_STREAM | SOCK_CLOEXEC, addresses->ai_protocol));
  const int on = 1;
  // Connections of an earlier job that are closing (TIME_WAIT) do not matter; only a process that
  // listens does, and only listen() notices every such process.
  if (!listener.is_open() ||
      setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      bind(listener.get(), addresses->ai_addr, addresses->ai_addrlen) != 0 ||
      listen(listener.get(), 1) != 0)
    return errno;
  return 0;
}

[[noreturn]] void refuse(const std::string& address, int port, int error) {
  if (error == EADDRINUSE)
    throw ConfigError(fmt::format(
        "port {} of {} is in use: another job or program listens there; name another port, or none",
        port, address));
  if (error == EADDRNOTAVAIL)
    throw ConfigError(
        fmt::format("{} is not an address of this machine; all ranks of the job run here, so "
                    "127.0.0.1 will do",
                    in_quotes(address)));
  throw ConfigError(
      fmt::format("cannot listen on port {} of {}: {}", port, address, std::strerror(error)));
}

/// The first port that the system gives to outgoing connections.
int first_ephemeral_port() {
  std::ifstream file("/proc/sys/net/ipv4/ip_local_port_range");
  int first = 0;
  return file >> first && first > 0 ? first : 32768;
}

}  // namespace

int free_port(const std::string& address) {
  const int most = std::max(first_ephemeral_port() - 1, kLeastPort + 1000);
  std::random_device random;
  std::uniform_int_distribution<int> port(kLeastPort, std::min(most, 65535));
  for (int attempt = 1;; ++attempt) {
    const int candidate = port(random);
    const int error = why_not(address, candidate);
    if (error == 0) return candidate;
    if (error != EADDRINUSE || attempt == kAttempts) refuse(address, candidate, error);
  }
}

void check_port_is_free(const std::string& address, int port) {
  const int error = why_not(address, port);
  if (error != 0) refuse(address, port, error);
}

}  // namespace penstock::launch

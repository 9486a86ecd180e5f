#include "penstock/launch/free_port.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <random>

#include "penstock/launch/file_descriptor.h"
#include "penstock/util/error.h"

namespace penstock::launch {

namespace {

constexpr int kLeastPort = 10'000;
constexpr int kAttempts = 200;

/// Of the loopback.
sockaddr_in address_of(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

/// Whether somebody accepts connections there.
bool somebody_listens(int port) {
  const sockaddr_in address = address_of(port);
  const FileDescriptor visitor(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return visitor.is_open() &&
         connect(visitor.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

/// 0, or the errno that keeps a process from listening there.
int why_not(int port) {
  const sockaddr_in address = address_of(port);
  const FileDescriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  // Connections of an earlier job that are closing (TIME_WAIT) do not matter; only a process that
  // listens does, and only listen() notices every such process.
  if (!listener.is_open() ||
      setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      listen(listener.get(), 1) != 0)
    return errno;
  return 0;
}

/// The first port that the system gives to outgoing connections.
int first_ephemeral_port() {
  std::ifstream file("/proc/sys/net/ipv4/ip_local_port_range");
  int first = 0;
  return file >> first && first > 0 ? first : 32768;
}

[[noreturn]] void refuse(int port, int error) {
  if (error == EADDRINUSE && !somebody_listens(port))
    throw ConfigError(fmt::format(
        "port {} is taken, though nobody listens there: by a connection that another program has "
        "made from it; name a port below {}, which the system gives to none, or no port",
        port, first_ephemeral_port()));
  if (error == EADDRINUSE)
    throw ConfigError(fmt::format(
        "port {} is in use: another job or program listens there; name another port, or none",
        port));
  throw ConfigError(fmt::format("cannot listen on port {}: {}", port, std::strerror(error)));
}

}  // namespace

int free_port() {
  const int most = std::max(first_ephemeral_port() - 1, kLeastPort + 1000);
  std::random_device random;
  std::uniform_int_distribution<int> port(kLeastPort, std::min(most, 65535));
  for (int attempt = 1;; ++attempt) {
    const int candidate = port(random);
    const int error = why_not(candidate);
    if (error == 0) return candidate;
    if (error != EADDRINUSE || attempt == kAttempts) refuse(candidate, error);
  }
}

void check_port_is_free(int port) {
  const int error = why_not(port);
  if (error != 0) refuse(port, error);
}

}  // namespace penstock::launch

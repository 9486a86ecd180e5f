#include "penstock/live/listening_socket.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "penstock/live/host_check.h"
#include "penstock/util/error.h"
#include "penstock/util/text/printable.h"

namespace penstock::live {
namespace {

constexpr int kWaitingConnections = 64;

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Addresses addresses_of(const std::string& host, int port) {
  if (host.empty() || host.find('\0') != host.npos)
    throw ConfigError("the page needs a host to listen on, such as 127.0.0.1; found none");
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) {
    throw ConfigError(fmt::format(
        "cannot listen at host '{}': {}; expected a name or address of this machine, such "
        "as 127.0.0.1 (this machine only) or 0.0.0.0 (everybody who can reach it)",
        printable(host), gai_strerror(error)));
  }
  return {found, &freeaddrinfo};
}

[[noreturn]] void fail(const std::string& host, int port, int error) {
  const std::string place = host_and_port(printable(host), port);
  if (error == EADDRINUSE) {
    throw ConfigError(fmt::format(
        "cannot listen at {}: another program listens there; choose another port, or 0 for "
        "any free one",
        place));
  }
  if (error == EACCES || error == EPERM) {
    throw ConfigError(fmt::format(
        "cannot listen at {}: no permission; ports below 1024 usually need a privilege: "
        "choose one from 1024 to 65535, or 0 for any free one",
        place));
  }
  if (error == EADDRNOTAVAIL) {
    throw ConfigError(
        fmt::format("cannot listen at {}: this machine does not have that address; use "
                    "127.0.0.1 (this machine only) or 0.0.0.0 (everybody who can reach it)",
                    place));
  }
  throw ConfigError(fmt::format("cannot listen at {}: {}", place, std::strerror(error)));
}

// -1 with errno if the address cannot be used.
int listen_on(const addrinfo& address) {
  const int fd = socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK,
                        address.ai_protocol);
  if (fd < 0) return -1;
  const int yes = 1;
  // A server that ended a moment ago leaves its port in use for a minute otherwise.
  if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
      bind(fd, address.ai_addr, address.ai_addrlen) == 0 && listen(fd, kWaitingConnections) == 0)
    return fd;
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

/// All zero if the system does not say.
sockaddr_storage address_of(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return {};
  return address;
}

int port_of(const sockaddr_storage& address) {
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port
                   : reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

bool is_loopback_address(const sockaddr_storage& address) {
  constexpr int kLoopbackNet = 127;
  if (address.ss_family != AF_INET6) {
    const in_addr& v4 = reinterpret_cast<const sockaddr_in*>(&address)->sin_addr;
    return ntohl(v4.s_addr) >> 24 == kLoopbackNet;
  }
  const in6_addr& v6 = reinterpret_cast<const sockaddr_in6*>(&address)->sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == kLoopbackNet);
}

}  // namespace

ListeningSocket::ListeningSocket(const std::string& host, int port) {
  if (port < 0 || port > 65535)
    throw ConfigError(
        fmt::format("expected a port from 0 (any free one) to 65535, found {}", port));
  const Addresses addresses = addresses_of(host, port);
  int error = EADDRNOTAVAIL;
  for (const addrinfo* address = addresses.get(); address; address = address->ai_next) {
    fd_ = listen_on(*address);
    if (fd_ >= 0) break;
    error = errno;
  }
  if (fd_ < 0) fail(host, port, error);
  const sockaddr_storage address = address_of(fd_);
  port_ = port_of(address);
  is_loopback_ = is_loopback_address(address);
}

ListeningSocket::~ListeningSocket() {
  if (fd_ >= 0) close(fd_);
}

int ListeningSocket::release() { return std::exchange(fd_, -1); }

}  // namespace penstock::live

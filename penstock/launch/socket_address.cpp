#include "penstock/launch/socket_address.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "penstock/util/error.h"
#include "penstock/util/quoted.h"

namespace penstock::launch {

SocketAddresses find_address(const std::string& address, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0)
    throw ConfigError(
        fmt::format("cannot find the address {}: {}", in_quotes(address),
                    error == EAI_SYSTEM ? std::strerror(errno) : gai_strerror(error)));
  return {found, freeaddrinfo};
}

}  // namespace penstock::launch

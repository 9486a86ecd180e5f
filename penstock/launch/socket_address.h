// Names and numbers of machines as what sockets take.
#pragma once

#include <netdb.h>

#include <memory>
#include <string>

namespace penstock::launch {

using SocketAddresses = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

/// At least one. May ask a name server. Throws ConfigError.
SocketAddresses find_address(const std::string& address, int port);

}  // namespace penstock::launch

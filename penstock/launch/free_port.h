// TCP ports on this machine.
#pragma once

#include <string>

namespace penstock::launch {

/// A port on which nobody listens at `address`, below those that the system gives to outgoing
/// connections: ranks connect to each other before rank 0 listens, and none of their connections
/// may take its port. Nobody else is kept from taking it meanwhile. Throws as check_port_is_free.
int free_port(const std::string& address);

/// Throws ConfigError if `address` is not one of this machine's, or somebody listens on `port`
/// there. May ask a name server.
void check_port_is_free(const std::string& address, int port);

}  // namespace penstock::launch

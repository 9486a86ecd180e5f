// TCP ports of 127.0.0.1, this machine's own address.
#pragma once

namespace penstock::launch {

/// A port on which nobody listens, below those that the system gives to outgoing
/// connections: ranks connect to each other before rank 0 listens, and none of their connections
/// may take its port. Nobody else is kept from taking it meanwhile. Throws ConfigError if it finds
/// none.
int free_port();

/// Throws ConfigError if somebody listens on `port`.
void check_port_is_free(int port);

}  // namespace penstock::launch

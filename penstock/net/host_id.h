// Which host a process is on, as far as its network goes.
#pragma once

#include <string>

namespace penstock::net {

/// The host's boot and the network namespace: equal texts mean one host. Who keeps the networks of
/// two processes apart wants them to be taken for two hosts. Empty if the system does not say.
std::string host_id();

/// Where a symbolic link leads; empty if the system does not say.
std::string target_of(const char* link);

}  // namespace penstock::net

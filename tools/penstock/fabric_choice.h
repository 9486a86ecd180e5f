// --fabric: what carries the messages between the ranks of a job.
#pragma once

#include <cstdint>
#include <string>

namespace penstock::tool {

enum class FabricChoice : uint8_t {
  Auto,   ///< connections, and the memory of the same host
  Local,  ///< nothing: a job of several ranks is refused
  Tcp,    ///< connections
  Gloo,
  Nccl,
  Mpi,
};

/// Throws ConfigError listing the names.
FabricChoice parse_fabric(const std::string& name);
std::string to_string(FabricChoice choice);

}  // namespace penstock::tool

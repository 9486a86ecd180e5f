// What may carry the messages between the ranks of a job, by name. What each kind needs and starts
// is a row of runtime/fabric/fabrics.h.
//
//   const FabricKind kind = parse_fabric("tcp");
#pragma once

#include <cstdint>
#include <string>

namespace penstock::net {

enum class FabricKind : uint8_t {
  Auto,   ///< connections, and the memory of the same host
  Local,  ///< nothing: a job of several ranks is refused
  Tcp,    ///< connections
  Gloo,
  Nccl,
  Mpi,
};

/// Throws ConfigError listing the names.
FabricKind parse_fabric(const std::string& name);
std::string to_string(FabricKind kind);

}  // namespace penstock::net

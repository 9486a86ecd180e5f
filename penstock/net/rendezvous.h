// How the ranks of a job find each other: rank 0 listens at an address that all know; the others
// go there, say who they are and where they listen themselves, and get the list of all of them.
// Then each goes to those of lower rank. Internal to net.
#pragma once

#include <asio/io_context.hpp>
#include <memory>
#include <vector>

#include "penstock/net/mesh.h"
#include "penstock/net/stream.h"

namespace penstock::net {

/// The connections to all ranks, by rank; this rank's own place is null. Runs `io` until then.
/// Throws as Mesh::connect().
std::vector<std::unique_ptr<Stream>> meet(asio::io_context& io, const MeshOptions& options);

}  // namespace penstock::net

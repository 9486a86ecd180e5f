// How fast the connections of a mesh are: measured by all ranks at once, each sending to one peer
// and receiving from one, so that what they share is shared as in training.
//
//   const LinkRate rate = measure_link(mesh, run, {.to = 1, .from = 3}, 300ms);
#pragma once

#include <chrono>
#include <cstdint>

#include "penstock/net/mesh.h"
#include "penstock/probe/measured_messages.h"

namespace penstock::probe {

/// Of what comes in.
struct LinkRate {
  int64_t bytes_per_s = 0;
  int64_t latency_ns = 0;  ///< one way, from a call of the sender to the end of the receiver's wait
};

/// Blocks for about twice the `budget`, longer where three messages of a byte take longer, or three
/// of together 56 KiB. Every rank calls it with the
/// same run, which nothing else may use and which is to be closed then, and budget; r sends to s
/// where s receives from r. A rank without a sender learns nothing (0). Throws TransportError when
/// a peer is lost, TimeoutError after a minute, RuntimeError soon after LinkPeers::stop.
LinkRate measure_link(net::Mesh& mesh, uint32_t run, const LinkPeers& peers,
                      std::chrono::milliseconds budget);

}  // namespace penstock::probe

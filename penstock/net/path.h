// A way on which the bytes of messages go to a peer and come from it. Internal to net; everything
// is called with the mesh's mutex held. All ways end a message the same: its transfer is Done, or
// Closed.
//
//   for (Path* path : paths) if (path->takes(outgoing)) return path->send(std::move(outgoing));
//   for (Path* path : paths) if (path->on_frame(header, behind)) return;
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "penstock/net/carrier.h"
#include "penstock/net/connection.h"
#include "penstock/net/host_link.h"
#include "penstock/net/mesh.h"
#include "penstock/net/mesh_mutex.h"
#include "penstock/net/message.h"
#include "penstock/net/same_host.h"

namespace penstock::net {

/// What the peers of a mesh share.
struct MeshState {
  MeshMutex mutex;
  Mesh::Handlers handlers;
  size_t piece_bytes = 0;
  bool same_host_memory = true;
  size_t same_host_bytes = 0;
  uint32_t closed_run = 0;
  /// Threads of this process that look for messages all the time.
  std::atomic<int> watchers{0};
  /// Messages of which pieces are to be copied here.
  std::atomic<int> to_copy{0};
  std::atomic<int64_t> sent{0};
  std::atomic<int64_t> received{0};
  std::atomic<int64_t> sent_by_memory{0};
  std::atomic<int64_t> received_by_memory{0};
  std::atomic<int64_t> sent_by_carrier{0};
  std::atomic<int64_t> received_by_carrier{0};
  ReadPermission permission;
  std::unique_ptr<Carrier> carrier;
  size_t carrier_bytes = 0;  ///< of the smallest part that it moves
  bool is_broken = false;    ///< a peer was lost that had not ended as it should
};

/// What a path uses of its peer.
struct PathContext {
  MeshState& state;
  Connection& connection;
  HostLink& link;  ///< for what concerns one message and is no piece
  Inbox& inbox;
  int rank = 0;
  /// Chooses a path again for a message that this one cannot bring.
  std::function<void(Outgoing outgoing)> send_again;
};

class Path {
 public:
  virtual ~Path() = default;
  Path() = default;
  Path(const Path&) = delete;
  Path& operator=(const Path&) = delete;

  /// Tells the peer what it has to know.
  virtual void introduce() {}
  /// Whether the message may go this way.
  virtual bool takes(const Outgoing& outgoing) const = 0;
  /// Its receive is posted.
  virtual void send(Outgoing outgoing) = 0;
  /// False: the frame does not belong to this path. Throws what is wrong with it.
  virtual bool on_frame(const FrameHeader& header, Bytes behind) = 0;
  /// A thread waits for what goes this way: goes on with it. Whether something moved. Throws what
  /// is wrong with what the peer does.
  virtual bool look() { return false; }
  /// Ends what it sends of this run and of earlier ones, as Closed.
  virtual void close_run(uint32_t run) = 0;
  /// The connection is lost, and all runs have been closed.
  virtual void end() {}
};

}  // namespace penstock::net

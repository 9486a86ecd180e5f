// Moves the bytes of large messages between two ranks past their connection: MPI, a process group
// of libtorch. The connection stays for everything else: it says which message goes, how large it
// is and in which piece, and notices when a rank is gone.
//
//   mesh->carry_by(std::move(carrier), 64 << 10);      // on both ranks, after start()
//   carrier.send(1, 0, {bytes, number, keep}, done);   // the mesh of rank 0, of a piece
//   carrier.receive(0, 0, {memory, number, keep}, done);  // that of rank 1, for the same piece
//
// A *lane* is a group of its own, so that what is urgent does not queue behind the rest. Between
// two ranks, in one direction and lane, both sides name the same pieces in the same order, numbered
// from 0: libraries that match by order and those that match by number both fit.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "penstock/net/bytes.h"

namespace penstock::net {

/// Lanes of a carrier: 0 for messages between stages (urgency 0 and more), 1 for gradients.
inline constexpr int kCarrierLanes = 2;

/// A piece of a message, one side of it.
template <class Span>
struct Carried {
  Span bytes = {};      ///< at least 1 byte
  uint64_t number = 0;  ///< of the pieces between these ranks, in this direction and lane
  /// Held as long as anybody may touch the bytes, which can be longer than until `done` is called.
  std::shared_ptr<const void> keep = {};
};

/// A carrier's methods are called by one thread, that of the mesh, and must not block on a peer.
class Carrier {
 public:
  /// Called once per piece, on any thread; `error` is empty when the bytes have gone, or are there.
  using Done = std::function<void(const std::string& error)>;

  virtual ~Carrier() = default;
  Carrier() = default;
  Carrier(const Carrier&) = delete;
  Carrier& operator=(const Carrier&) = delete;

  virtual void send(int peer, int lane, Carried<Bytes> piece, Done done) = 0;
  virtual void receive(int peer, int lane, Carried<Memory> piece, Done done) = 0;
  /// The peer is gone without having ended as it should: its pieces end, with an error. A piece
  /// that the library cannot give up keeps its memory until the process ends.
  virtual void lose(int peer) = 0;
  /// Ends the carrier; blocks for no peer that was lost. No `done` is called afterwards.
  /// `orderly`: no peer was lost, and all ranks do the same.
  virtual void close(bool orderly) = 0;
};

}  // namespace penstock::net

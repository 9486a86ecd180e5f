// The connections between the ranks of a job, one TCP connection per pair: short notes, and
// messages of bytes that go straight from the sender's memory into the receiver's. Between ranks of
// one host large messages go past the connection: the receiver copies them from the sender's
// memory.
//
//   auto mesh = Mesh::connect({.rank = 1, .ranks = 2, .address = "127.0.0.1", .port = 29500});
//   mesh->start({.note = ..., .lost = ...});
//   mesh->receive(0, tag, place)->wait(deadline);     // on rank 1
//   mesh->send(1, tag, {bytes}, keep);                // on rank 0
//
// A message is found by its tag, never by its place in a queue. It starts to move when the receiver
// has posted its receive, so that it always lands in its final memory and nobody stores messages
// that nobody asked for: posted receives are credits. Large messages travel in pieces; between two
// pieces notes and more urgent messages go first.
//
// A peer that closes its connection is lost at once; one that is silent for `silence` (stopped, or
// cut off) is lost then: every rank sends signs of life.
//
// A carrier (carrier.h), if there is one, moves the bytes of large messages instead.
//
// With TLS all that goes over connections is encrypted. Memory of the same host and carriers are
// past them.
//
// Between ranks of one host short messages, and what is said about others, go through memory that
// both have mapped, and need no thread but those that send and wait.
//
// Threads: one per mesh, which reads, writes, copies, and calls the handlers. Bytes on the wire:
// those of the parts, 40 per piece, 8 per part, and 80 per message (its receive, its sizes); of a
// message that is copied on the host 16 per part and 156 (its receive, its offer, the answer).
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "penstock/net/carrier.h"
#include "penstock/net/tls_choice.h"
#include "penstock/net/transfer.h"

namespace penstock::net {

struct MeshOptions {
  int rank = 0;
  int ranks = 1;
  std::string address = "127.0.0.1";  ///< of rank 0: a name or a number
  uint16_t port = 0;                  ///< of rank 0; must not be 0 when there are several ranks
  std::string token = {};             ///< the same on all ranks; at most 64 bytes
  TlsChoice tls = {};                 ///< the same kind on all ranks; a secret is the token
  std::string version = {};           ///< of the program, the same on all ranks
  /// Whether ranks may be on other machines than rank 0. Where rank 0's own name means a loopback
  /// address there (Debian's and Ubuntu's /etc/hosts), it then listens at all addresses.
  bool other_hosts = false;
  std::chrono::milliseconds patience{60'000};  ///< until all ranks must have come
  /// After which a peer is lost; noticed at most a fifth of it later.
  std::chrono::milliseconds silence{12'000};
  /// Why this process is a rank ("RANK=0 and WORLD_SIZE=4 of ..."): said as a warning where it
  /// waits for the others for some seconds, since the variables may be left over. Empty: nothing is
  /// said.
  std::string reason = {};
  std::chrono::milliseconds reason_after{4000};
  /// A pipe, or -1: when its other end is closed before all ranks have come, they will not. Stays
  /// the caller's.
  int failure_pipe = -1;
  /// Ends the waiting for other ranks as soon as it is true. Null: nothing does. Stays the
  /// caller's.
  const std::atomic<bool>* stop = nullptr;
  size_t piece_bytes = 512 << 10;
  /// Whether ranks of one host, where the kernel allows it, copy large messages straight from each
  /// other's memory; otherwise these go over the connections, as between hosts.
  bool same_host_memory = true;
  /// Of the smallest message that is copied so. Shorter ones go through shared memory.
  size_t same_host_bytes = 64 << 10;
};

/// Bytes of messages' parts (without frames, notes and signs of life) to and from all peers.
struct Traffic {
  int64_t sent = 0;
  int64_t received = 0;
  int64_t sent_by_memory = 0;      ///< of these: copied on the host, past the connections
  int64_t received_by_memory = 0;  ///< the same
  int64_t sent_by_carrier = 0;     ///< of sent and received: moved by the carrier
  int64_t received_by_carrier = 0;
};

/// How this machine's clock differs from another one's.
struct ClockOffset {
  int64_t ns = 0;        ///< the peer's steady_clock minus this one's
  int64_t error_ns = 0;  ///< at most: half of the quickest round trip
};

/// Thread-safe.
class Mesh : public ProgressEngine {
 public:
  /// Called on the mesh's thread; must neither block nor throw.
  struct Handlers {
    std::function<void(int peer, std::string note)> note;
    /// Once per peer; nothing comes from it later. `why` ends a sentence about the rank.
    std::function<void(int peer, std::string why)> lost;
  };

  /// Blocks until this rank is connected to all others. Rank 0 listens at `address`, and nowhere
  /// else (but see `other_hosts`); the others at the address from which they reach rank 0. A name
  /// that is not known yet is looked up again, because name servers learn of new machines late.
  /// Throws ConfigError for options that make no sense, files that TLS cannot use and a name that
  /// stays unknown, TransportError when the address is in use, a rank refuses another one (TLS,
  /// token, version, number of ranks, a rank that is there already) or the failure pipe is closed,
  /// TimeoutError
  /// naming who has not come, RuntimeError when `stop` ends the waiting. Strangers that connect are
  /// refused and logged as a warning.
  static std::unique_ptr<Mesh> connect(const MeshOptions& options);

  Mesh() = default;
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;

  virtual int rank() const = 0;
  virtual int ranks() const = 0;

  /// Begins to read. To be called once, before anything below.
  virtual void start(Handlers handlers) = 0;

  /// Sends a note; notes to one peer arrive in their order. Never blocks.
  virtual void tell(int peer, std::string note) = 0;

  /// From now on the carrier moves the parts of at least `smallest` bytes to and from peers that
  /// have one, too, past the connections and the memory of the same host. All ranks call it, or
  /// none; once, after start(). The carrier is closed when the mesh ends: orderly unless a peer was
  /// lost that had not ended as it should.
  virtual void carry_by(std::unique_ptr<Carrier> carrier, size_t smallest) = 0;

  /// Sends a message. The parts' memory must stay as it is until the transfer has ended; `keep` is
  /// held until then. By a carrier it is held until the library has let go of the memory: after a
  /// close that is later, and memory of which `keep` is not an owner must stay, too. Absent parts
  /// have a null pointer. Messages of a higher `urgency` go first.
  virtual std::shared_ptr<Transfer> send(int peer, Tag tag, std::vector<Bytes> parts,
                                         std::shared_ptr<const void> keep, int urgency = 0) = 0;
  /// Posts the receive of a message. `place` must own the memory that it names (a reference to
  /// tensors, say): a receive that is closed may still write there.
  virtual std::shared_ptr<Transfer> receive(int peer, Tag tag, Place place) = 0;

  /// Ends all transfers of a run, and of earlier ones, that have not ended, as Closed; later ones
  /// of these runs end at once. What peers still send for them is thrown away.
  virtual void close_run(uint32_t run) = 0;

  virtual Traffic traffic() const = 0;
  /// This rank's address as other ranks reach it; empty when there are none.
  virtual std::string own_address() const = 0;
  virtual ClockOffset clock_offset(int peer) const = 0;
};

}  // namespace penstock::net

// Messages between two ranks of one host, past the connection: each rank tells the other where it
// is and that it may look; who can read the other says so, and is then offered messages, which it
// copies itself. A sender that waits helps: it writes pieces that the receiver has not claimed.
// Internal to net.
//
//   Process ->  <- Look          the peer may be on this host
//   Reads ->                     it is: its memory has been read
//   <- Offer                     a message lies there
//   Into ->  <- Given            so much of it has been written, by the sender
//   Taken or Refused ->          it has been copied, or is to come by another path
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>

#include "penstock/net/incoming_copies.h"
#include "penstock/net/path.h"
#include "penstock/net/same_host.h"

namespace penstock::net {

/// Takes messages of at least MeshState::same_host_bytes once the peer reads this rank's memory.
class MemoryPath : public Path {
 public:
  explicit MemoryPath(PathContext& context) : context_(context), copies_(context) {}

  void introduce() override;
  bool takes(const Outgoing& outgoing) const override;
  void send(Outgoing outgoing) override;
  bool on_frame(const FrameHeader& header, Bytes behind) override;
  bool look() override { return copies_.copy_piece() || give_piece(); }
  /// The mesh's thread copies what there is.
  void go_on() { copies_.copy_later(); }
  void close_run(uint32_t run) override;
  void end() override;

  /// Whether the peer reads this rank's memory. Any thread may ask.
  bool is_read() const { return is_read_; }

 private:
  struct Offered {
    Outgoing message;
    std::unique_ptr<Seal> seal = {};  ///< the last, so that it ends before the message's `keep`
    IntoPlaces into = {};             ///< where the peer wants it
    Cursor next = {};
    uint64_t at = 0;  ///< the offset of `next`
  };

  void on_process(Bytes behind);
  void on_look();
  void on_into(const Tag& tag, Bytes behind);
  void on_answer(const Tag& tag, bool taken);
  /// Writes a piece of a message that the peer is copying; false: there is none to be written.
  bool give_piece();
  bool write_range(Offered& offered, uint64_t begin, uint64_t bytes);

  PathContext& context_;
  Seal nonce_;                            ///< what the peer has to find in this process
  std::optional<ProcessCard> peer_card_;  ///< of a peer that may be on this host
  std::optional<RemoteMemory> memory_;    ///< of the peer, once it has been read
  std::atomic<bool> is_read_{false};      ///< by the peer
  std::map<Tag, Offered> offered_;        ///< until the peer answers
  Orders orders_;
  std::map<Order, Tag> to_give_;  ///< of these, those that the peer may want help with
  IncomingCopies copies_;
};

}  // namespace penstock::net

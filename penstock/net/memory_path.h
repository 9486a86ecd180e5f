// Messages between two ranks of one host, past the connection: each rank tells the other where it
// is and that it may look; who can read the other says so, and is then offered messages, which it
// copies itself. Internal to net.
//
//   Process ->  <- Look          the peer may be on this host
//   Reads ->                     it is: its memory has been read
//   <- Offer                     a message lies there
//   Taken or Refused ->          it has been copied, or is to come by another path
#pragma once

#include <map>
#include <memory>
#include <optional>

#include "penstock/net/path.h"
#include "penstock/net/same_host.h"

namespace penstock::net {

/// Takes messages of at least MeshState::same_host_bytes once the peer reads this rank's memory.
class MemoryPath : public Path {
 public:
  explicit MemoryPath(PathContext& context) : context_(context) {}

  void introduce() override;
  bool takes(const Outgoing& outgoing) const override;
  void send(Outgoing outgoing) override;
  bool on_frame(const FrameHeader& header, Bytes behind) override;
  void look() override;
  void close_run(uint32_t run) override;
  void end() override { offered_.clear(); }

 private:
  struct Offered {
    Outgoing message;
    std::unique_ptr<Seal> seal = {};  ///< the last, so that it ends before the message's `keep`
  };
  struct ToCopy {
    Tag tag;
    Offer offer;
    uint64_t left = 0;  ///< bytes
  };

  void on_process(Bytes behind);
  void on_look();
  void on_offer(const Tag& tag, Bytes behind);
  void on_answer(const Tag& tag, bool taken);
  void copy_later();
  void copy_piece();
  /// False when the memory cannot be read.
  bool copy_some(Incoming& incoming, ToCopy& copying);

  PathContext& context_;
  Seal nonce_;                            ///< what the peer has to find in this process
  std::optional<ProcessCard> peer_card_;  ///< of a peer that may be on this host
  std::optional<RemoteMemory> memory_;    ///< of the peer, once it has been read
  bool is_read_ = false;                  ///< by the peer
  std::map<Tag, Offered> offered_;        ///< until the peer answers
  Orders orders_;
  std::map<Order, ToCopy> to_copy_;  ///< messages in the inbox that the peer has offered
  bool is_copying_ = false;          ///< the next piece is to be copied soon
};

}  // namespace penstock::net

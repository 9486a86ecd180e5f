// What travels on a connection after the hello: a header of fixed size, and for some kinds bytes
// behind it. Internal to net.
#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

#include "penstock/net/transfer.h"

namespace penstock::net {

enum class FrameKind : uint32_t {
  Note = 1,  ///< `bytes` of text behind it
  Posted,    ///< the receive of the message `tag` is posted
  Sizes,     ///< the message `tag` begins: `bytes` of uint64 behind it, one per part
  Piece,     ///< the next `bytes` of the message `tag` behind it
  Ping,      ///< sign of life; `clock` of the sender
  Pong,      ///< its answer: `clock` of the ping, and in `bytes` the answerer's
  Bye,       ///< the sender has ended as it should
  Process,   ///< `bytes` of a ProcessCard behind it: where the sender is
  Look,      ///< the receiver may try to read the sender's memory
  Reads,     ///< the sender can read the receiver's memory: messages may be offered to it
  Offer,     ///< the message `tag` lies in the sender's memory: `bytes` of an Offer behind it
  Taken,     ///< the offered message `tag` is not needed any more
  Refused,   ///< the offered message `tag` cannot be read: it is to come in pieces
  Carries,   ///< the sender has a carrier, and messages may go by it
  Carried,   ///< the next `bytes` of the message `tag` go by the carrier, in `lane`
};

struct FrameHeader {
  FrameKind kind = FrameKind::Note;
  uint32_t lane = 0;  ///< of Carried
  Tag tag = {};
  uint64_t bytes = 0;
  int64_t clock = 0;
};
static_assert(sizeof(FrameHeader) == 40);

/// Where a message lies in the memory of its sender.
struct Offer {
  int32_t urgency = 0;
  uint64_t seal_address = 0;  ///< same_host.h
  uint64_t seal = 0;
  std::vector<uint64_t> sizes = {};      ///< of the parts; kAbsent for those left out
  std::vector<uint64_t> addresses = {};  ///< of the parts, as many

  static auto members(auto& self) {
    return std::tie(self.urgency, self.seal_address, self.seal, self.sizes, self.addresses);
  }
};

}  // namespace penstock::net

// What travels on a connection after the hello: a header of fixed size, and for some kinds bytes
// behind it. Internal to net.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
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
  Bell,      ///< there are frames in the shared memory
  Whole,     ///< the message `tag` with `lane` parts: their sizes behind it, then their bytes
  Into,      ///< the sender may write the offered message `tag`, too: an IntoPlaces behind it
  Given,     ///< so much of the message `tag` has been written: a GivenBytes behind it
};

/// Those that may go through memory that two ranks share; `bytes` is then what lies behind them.
inline bool goes_through_memory(FrameKind kind) {
  return kind == FrameKind::Posted || kind == FrameKind::Offer || kind == FrameKind::Taken ||
         kind == FrameKind::Refused || kind == FrameKind::Whole || kind == FrameKind::Into ||
         kind == FrameKind::Given;
}

struct FrameHeader {
  FrameKind kind = FrameKind::Note;
  uint32_t lane = 0;  ///< of Carried
  Tag tag = {};
  uint64_t bytes = 0;
  int64_t clock = 0;
};
static_assert(sizeof(FrameHeader) == 40);

inline std::string_view text_of(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

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

/// Where an offered message goes in the memory of its receiver, so that its sender can help.
struct IntoPlaces {
  uint32_t slot = 0;                     ///< of the receiver's claims (frame_ring.h)
  uint32_t use = 0;                      ///< of the slot
  std::vector<uint64_t> addresses = {};  ///< of the parts

  static auto members(auto& self) { return std::tie(self.slot, self.use, self.addresses); }
};

/// What a sender has written of such a message.
struct GivenBytes {
  uint64_t bytes = 0;  ///< since it has last said so
  uint8_t failed = 0;  ///< they could not be written: the bytes there may be anything

  static auto members(auto& self) { return std::tie(self.bytes, self.failed); }
};

}  // namespace penstock::net

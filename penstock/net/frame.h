// What travels on a connection after the hello: a header of fixed size, and for some kinds bytes
// behind it. Internal to net.
#pragma once

#include <cstddef>
#include <cstdint>

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
};

struct FrameHeader {
  FrameKind kind = FrameKind::Note;
  uint32_t unused = 0;
  Tag tag = {};
  uint64_t bytes = 0;
  int64_t clock = 0;
};
static_assert(sizeof(FrameHeader) == 40);

}  // namespace penstock::net

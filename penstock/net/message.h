// The messages of a mesh on their way out and in, whatever way their bytes take. Internal to net.
//
//   inbox.post(tag, place, transfer);
//   inbox.begin(tag, sizes);                  // the sender has said how large it is
//   inbox.filled(tag, bytes);                 // again and again, whatever way they came
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "penstock/net/transfer.h"

namespace penstock::net {

/// A place in the parts of a message.
struct Cursor {
  size_t part = 0;
  size_t offset = 0;

  /// The rest of the first part that has one; there must be bytes left.
  template <class Span>
  Span rest(const std::vector<Span>& parts) {
    while (offset == parts[part].size()) *this = {part + 1, 0};
    return parts[part].subspan(offset);
  }
  /// Goes on by that many bytes.
  template <class Span>
  void advance(const std::vector<Span>& parts, size_t bytes) {
    while (bytes > 0) {
      const size_t count = std::min(bytes, rest(parts).size());
      offset += count;
      bytes -= count;
    }
  }
};

struct Outgoing {
  Tag tag;
  std::vector<Bytes> parts;
  std::shared_ptr<const void> keep;
  int urgency = 0;
  std::shared_ptr<Transfer> transfer;
  bool begun = false;  ///< the receiver has the sizes
  Cursor next = {};    ///< the next byte that goes
  uint64_t left = 0;   ///< bytes that have not gone

  /// As a receiver wants them: kAbsent for parts left out.
  std::vector<uint64_t> sizes() const {
    std::vector<uint64_t> sizes;
    for (const Bytes& part : parts) sizes.push_back(part.data() == nullptr ? kAbsent : part.size());
    return sizes;
  }
};

struct Incoming {
  std::shared_ptr<const Place> place;
  std::shared_ptr<Transfer> transfer;
  bool begun = false;
  std::vector<Memory> parts = {};
  Cursor next = {};
  uint64_t left = 0;       ///< bytes that are not there
  uint64_t announced = 0;  ///< of these: they do not come over the connection
};

/// Most urgent first, then first come, first served.
using Order = std::pair<int64_t, uint64_t>;

/// Makes them.
class Orders {
 public:
  Order next(int urgency) { return {-int64_t{urgency}, next_++}; }

 private:
  uint64_t next_ = 0;
};

/// The messages that a peer is to send, from the post of the receive until all bytes are there.
/// Not thread-safe.
class Inbox {
 public:
  /// `closed_run`: the last run that was closed; must outlive the inbox.
  explicit Inbox(const uint32_t& closed_run) : closed_run_(closed_run) {}

  void post(const Tag& tag, Place place, std::shared_ptr<Transfer> transfer);
  /// Throws TransportError when nobody waits for the message, or it has begun already.
  void begin(const Tag& tag, const std::vector<uint64_t>& sizes);
  /// Null: there is none, or not any more.
  Incoming* find(const Tag& tag);
  /// That of which the sender has named a piece; null when its run is closed. Throws TransportError
  /// when the message does not lack that many bytes.
  Incoming* find_for_piece(const Tag& tag, uint64_t bytes);
  /// So many bytes more are there; ends the message when all are. Not found: does nothing.
  void filled(const Tag& tag, uint64_t bytes);
  /// Ends the transfers of this run and of earlier ones as Closed.
  void close_run(uint32_t run);

 private:
  const uint32_t& closed_run_;
  std::map<Tag, Incoming> messages_;
};

}  // namespace penstock::net

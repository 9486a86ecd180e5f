// The rule by which messages share wires (docs/simulator.md, "Links"), for the simulator and for
// orders made from costs: a wire serves one message at a time, in the order in which their first
// bytes reach it; a message that is being served goes on to its next wire at once (cut-through),
// and its last byte leaves a wire when that has had the time for all bytes and the wires before
// have passed on the last one.
//
//   const auto reserve = [&](bool up, size_t level) { return reserve_wire(free, busy, now); };
//   const bool arrives = pass_wires(levels, message.hop, message.end, now, when, reserve);
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "penstock/util/numbers/arithmetic.h"

namespace penstock::schedule {

/// When a wire serves a message.
struct Service {
  int64_t begin = 0;
  int64_t end = 0;
};

/// `free`: when the wire has served all that has reached it. Saturates.
inline Service reserve_wire(int64_t& free, int64_t busy, int64_t now) {
  const int64_t begin = std::max(now, free);
  const int64_t end = saturating_add(begin, busy);
  if (busy > 0) free = end;
  return {begin, end};
}

/// Takes a message on from `now`, when its first byte reaches its next wire: those up from the
/// sender, level by level from 0, then those down. True when the last byte has left the last one,
/// at `when`; false when the next wire begins to serve it later, at `when`: call again then. `hop`:
/// wires reserved so far; `end`: when the last byte leaves these. Calls for all messages must be in
/// the order of their times. O(levels).
template <class Hop, class Reserve>
bool pass_wires(Hop levels, Hop& hop, int64_t& end, int64_t now, int64_t& when,
                const Reserve& reserve) {
  const int hops = 2 * levels;
  while (hop < hops) {
    const bool up = hop < levels;
    const Service service = reserve(up, static_cast<size_t>(up ? hop : hops - 1 - hop));
    end = std::max(end, service.end);
    if (++hop < hops && service.begin > now) {
      when = service.begin;
      return false;
    }
  }
  when = end;
  return true;
}

}  // namespace penstock::schedule

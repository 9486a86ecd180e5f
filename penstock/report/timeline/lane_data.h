// Timelines as the page carries them: columns of small numbers, compressed, in base64. page/data.js
// reads them. Internal to the reports.
//
// All numbers are LEB128 varints, signed ones zigzag. Per timeline and, unless its actions are
// those of an earlier one, in this order: op (position in `ops`), stage (less the one before),
// micro-batch (of F, B, I, W, R and messages; less the last of this op), mini-batch (less the one
// before), peer (of messages, less the stage), version (less the last of this op). Then for every
// timeline: start (less the end before), duration, and time at work (of what can wait: messages,
// SYNC, NORM) or waiting (of the others). Each column holds all workers, one after the other;
// "before" and "last" start again with each. Times are multiples of the timeline's tick, from the
// beginning of the timeline on.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/schedule/timeline.h"
#include "penstock/util/files/json.h"

namespace penstock::report {

struct LaneData {
  /// {"ops": [...], "workers": n, "lanes": [{name, tick_ns, counts: [per worker], same_as, columns:
  /// [bytes of each]}]}.
  Json header;
  std::string bytes;  ///< of all lanes' columns, one after the other; not yet compressed
};

/// Start of the first action on any worker, where the timeline is drawn from; 0 when there is none.
int64_t origin_of(const schedule::Timeline& timeline);

/// The sums of a timeline as rows of their own, one per worker, to be drawn like actions: SYNC with
/// the bucket as its version. They span the same time, so that both have one scale.
schedule::Timeline sum_rows(const schedule::Timeline& timeline);

/// The tick is the least power of ten of nanoseconds that keeps numbers below 2e8: five digits of
/// an action of a ten-thousandth of the run. O(actions).
LaneData lane_data(const std::vector<const schedule::Timeline*>& timelines);

/// In zlib's format (RFC 1950), best compression.
std::string deflated(std::string_view bytes);
std::string base64(std::string_view bytes);

}  // namespace penstock::report

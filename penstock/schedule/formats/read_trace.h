// Reads back what chrome_trace() wrote: the timelines of `penstock train --trace` and `penstock
// simulate --trace`.
//
//   std::vector<Timeline> timelines = parse_trace(read_file("trace.json"), "trace.json");
//   timelines[0].source;   // "predicted"
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "penstock/schedule/timeline.h"

namespace penstock::schedule {

/// Limits of a trace, over all of its timelines.
inline constexpr int64_t kMaxTraceEvents = 2'000'000;
inline constexpr size_t kMaxTraceTimelines = 4;
inline constexpr int64_t kMaxTraceWorkers = 4096;

/// One timeline per process of the trace, in order of their first appearance, each worker's events
/// sorted by start. Events that are neither complete ("ph":"X") nor names are skipped, and so are
/// unknown keys. Times are rounded to nanoseconds. Throws ParseError naming the event and the key
/// for text that is not JSON, not a trace or not one of our actions, for numbers out of range
/// (times beyond about 100 days, stages and micro-batches beyond 2^31) and above the limits. Reads
/// event by event: memory O(events), not O(text).
std::vector<Timeline> parse_trace(std::string_view json, std::string_view place);

}  // namespace penstock::schedule

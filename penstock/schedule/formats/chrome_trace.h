// Timelines in the Chrome trace event format, for chrome://tracing and ui.perfetto.dev.
// read_trace.h reads them back.
//
//   write_file("trace.json", chrome_trace({&predicted, &measured}));
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "penstock/schedule/timeline.h"

namespace penstock::schedule {

/// The category of the events of Timeline::sums.
inline constexpr std::string_view kSumCategory = "SUM";

/// One process per timeline, one thread per worker and one per lane of sums, complete events
/// ("ph":"X") in microseconds with stage, micro-batch, version and waiting time as arguments, and a
/// colour per kind of action. Threads are named as lane_names() has it, with the members of `teams`
/// (ScheduleShape::teams).
std::string chrome_trace(const std::vector<const Timeline*>& timelines,
                         const std::vector<int>& teams = {});

}  // namespace penstock::schedule

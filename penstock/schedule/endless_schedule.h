// A schedule without an end, for streams: its lists are made while they are read, and a short one
// of the same pattern stands for it where a whole list is needed (verifier, channels, links).
//
//   const EndlessSchedule endless = make_endless(Strategy::Online, {.replicas = {1, 1}},
//       chain_links(2));
//   LazySchedule::Cursor cursor = endless.lists.cursor(WorkerId{0});      // for ever
//   verify::verify_endless(endless);                                      // proves one period
#pragma once

#include <vector>

#include "penstock/schedule/lazy_schedule.h"
#include "penstock/schedule/schedule.h"

namespace penstock::schedule {

struct EndlessSchedule {
  LazySchedule lists;  ///< of kEndlessMicroBatches
  /// Lowered: the fill, `num_periods` periods and the drain.
  Schedule sample;
  int64_t fill = 0;  ///< micro-batches until every stage repeats itself
  int64_t num_periods = 0;
};

/// More frames than any stream has: thirty per second for a year.
inline constexpr int64_t kEndlessMicroBatches = 1'000'000'000;

/// `shape.micro_batches` is not looked at. A period is a mini-batch. Throws ConfigError like
/// LazySchedule, and for strategies that flush.
EndlessSchedule make_endless(Strategy strategy, ScheduleShape shape,
                             const std::vector<StageLink>& links);

}  // namespace penstock::schedule

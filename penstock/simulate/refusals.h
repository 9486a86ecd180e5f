// Messages that say why a schedule cannot be simulated to its end; internal to the simulator.
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/schedule/action.h"
#include "penstock/schedule/schedule.h"

namespace penstock::simulate::detail {

/// A worker that cannot continue.
struct BlockedWorker {
  int32_t worker = 0;
  schedule::Action action;
  int32_t other_end = -1;  ///< messages: the worker that holds the other end, -1 when none does
  int32_t arrived = 0;     ///< sums, teams, NORM: how many workers have arrived, of how many
  int32_t expected = 0;
  bool team = false;  ///< waits for the members of its team
};

/// At most this many of them are described.
inline constexpr int64_t kShownWorkers = 4;

/// All of these throw ConfigError. `blocked`: how many workers cannot continue, including those not
/// in `shown`.
[[noreturn]] void refuse_deadlock(const std::vector<BlockedWorker>& shown, int64_t blocked,
                                  int64_t credits);
[[noreturn]] void refuse_second_send(int32_t sender, const schedule::StageLink& link, bool backward,
                                     int64_t micro_batch);
[[noreturn]] void refuse_messages_in_flight();

}  // namespace penstock::simulate::detail

#include "penstock/model/profiling/laps.h"

#include <algorithm>

namespace penstock::model::detail {

Laps::Start Laps::start() {
  if (stream_.is_host()) return {.time = std::chrono::steady_clock::now(), .event = nullptr};
  return {.time = {}, .event = stream_.record(/*timed=*/true)};
}

void Laps::add(const Start& start, std::initializer_list<int64_t*> numbers) {
  if (!stream_.is_host()) {
    laps_.push_back({start.event, stream_.record(/*timed=*/true), numbers});
    return;
  }
  const int64_t ns = std::chrono::duration_cast<std::chrono::nanoseconds>(
                         std::chrono::steady_clock::now() - start.time)
                         .count();
  for (int64_t* const number : numbers) *number += ns;
}

void Laps::read() {
  read_launch(0);
  laps_.clear();
}

void Laps::read_launch(int64_t event_ns) {
  for (const Lap& lap : laps_) {
    lap.end->wait_on_host();
    const int64_t ns = std::max<int64_t>(lap.end->ns_since(*lap.begin) - event_ns, 0);
    for (int64_t* const number : lap.numbers) *number += ns;
  }
}

}  // namespace penstock::model::detail

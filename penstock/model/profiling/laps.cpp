#include "penstock/model/profiling/laps.h"

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
  for (const Lap& lap : laps_) {
    lap.end->wait_on_host();
    const int64_t ns = lap.end->ns_since(*lap.begin);
    for (int64_t* const number : lap.numbers) *number += ns;
  }
  laps_.clear();
}

}  // namespace penstock::model::detail

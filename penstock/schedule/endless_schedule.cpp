#include "penstock/schedule/endless_schedule.h"

#include <fmt/format.h>

#include "penstock/schedule/generate.h"
#include "penstock/util/error.h"

namespace penstock::schedule {

namespace {
constexpr int64_t kPeriods = 3;
}

EndlessSchedule make_endless(Strategy strategy, ScheduleShape shape,
                             const std::vector<StageLink>& links) {
  if (traits(strategy).flushes()) {
    throw ConfigError(fmt::format(
        "schedule {} drains before every step: it has no endless form; a stream needs one that "
        "does not, such as online",
        to_string(strategy)));
  }
  shape.micro_batches = kEndlessMicroBatches;
  LazySchedule lists(strategy, shape, links);
  // A whole number of mini-batches of which every stage has seen the first backward.
  const int64_t most = lists.most_in_flight() * lists.shape().num_workers();
  const int64_t fill = ceil_div(most, shape.accumulate) * shape.accumulate;
  shape.micro_batches = fill + kPeriods * shape.accumulate;
  Schedule sample = lower(generate(strategy, shape), links);
  return {.lists = std::move(lists),
          .sample = std::move(sample),
          .fill = fill,
          .num_periods = kPeriods};
}

}  // namespace penstock::schedule

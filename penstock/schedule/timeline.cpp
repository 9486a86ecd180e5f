#include "penstock/schedule/timeline.h"

#include <fmt/format.h>

#include <algorithm>

#include "penstock/util/check.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::schedule {

std::string SumLane::name() const {
  return worker.value >= 0 ? fmt::format("worker {}, sums", worker.value)
                           : fmt::format("server {}, sums", server);
}

int64_t Timeline::makespan_ns() const {
  bool any = false;
  int64_t first = 0;
  int64_t last = 0;
  for (const auto& events : workers) {
    for (const TimelineEvent& event : events) {
      first = any ? std::min(first, event.start_ns) : event.start_ns;
      last = any ? std::max(last, event.end_ns) : event.end_ns;
      any = true;
    }
  }
  return last - first;
}

int64_t Timeline::busy_ns(WorkerId worker) const {
  PENSTOCK_CHECK(worker.value >= 0 && worker.index() < workers.size(), worker, workers.size());
  int64_t busy = 0;
  for (const TimelineEvent& event : workers[worker.index()]) {
    const Op op = event.action.op;
    if (is_compute(op) || op == Op::SyncGradients || op == Op::NormGradients || op == Op::Step) {
      busy = saturating_add(busy, event.end_ns - event.start_ns - event.waiting_ns);
    }
  }
  return busy;
}

int64_t Timeline::active_workers() const {
  return std::count_if(workers.begin(), workers.end(),
                       [](const auto& events) { return !events.empty(); });
}

double Timeline::idle_share() const {
  const int64_t makespan = makespan_ns();
  if (makespan <= 0) return 0;
  double busy = 0;
  for (size_t w = 0; w < workers.size(); ++w)
    busy += static_cast<double>(busy_ns(WorkerId{static_cast<int32_t>(w)}));
  return 1.0 - busy / (static_cast<double>(active_workers()) * static_cast<double>(makespan));
}

}  // namespace penstock::schedule

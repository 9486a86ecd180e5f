#include "penstock/schedule/timeline_difference.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

namespace penstock::schedule {
using Events = std::vector<TimelineEvent>;

namespace {

auto identity_of(const Action& action) {
  return std::tie(action.stage, action.op, action.micro_batch, action.mini_batch, action.peer);
}

std::vector<const TimelineEvent*> by_identity(const Events& events) {
  std::vector<const TimelineEvent*> sorted;
  sorted.reserve(events.size());
  for (const TimelineEvent& event : events) sorted.push_back(&event);
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) {
    return identity_of(a->action) < identity_of(b->action);
  });
  return sorted;
}

class Comparer {
 public:
  void add_worker(const Events& predicted, const Events& measured) {
    const auto left = by_identity(predicted);
    const auto right = by_identity(measured);
    size_t l = 0;
    size_t r = 0;
    while (l < left.size() && r < right.size()) {
      const auto a = identity_of(left[l]->action);
      const auto b = identity_of(right[r]->action);
      if (a == b) {
        add_pair(*left[l++], *right[r++]);
      } else if (a < b) {
        ++l;
        ++comparison_.only_predicted;
      } else {
        ++r;
        ++comparison_.only_measured;
      }
    }
    comparison_.only_predicted += static_cast<int64_t>(left.size() - l);
    comparison_.only_measured += static_cast<int64_t>(right.size() - r);
  }

  TimelineComparison take() {
    for (const auto& [key, row] : rows_) comparison_.rows.push_back(row);
    std::stable_sort(comparison_.rows.begin(), comparison_.rows.end(),
                     [](const TimelineDifference& a, const TimelineDifference& b) {
                       return std::fabs(a.more_with_waiting_ns()) >
                              std::fabs(b.more_with_waiting_ns());
                     });
    return std::move(comparison_);
  }

 private:
  static double work_ns(const TimelineEvent& event) {
    return static_cast<double>(event.end_ns - event.start_ns - event.waiting_ns);
  }

  void add_pair(const TimelineEvent& predicted, const TimelineEvent& measured) {
    TimelineDifference& row = rows_[{predicted.action.stage, predicted.action.op}];
    row.op = predicted.action.op;
    row.stage = predicted.action.stage;
    ++row.count;
    row.predicted_ns += work_ns(predicted);
    row.measured_ns += work_ns(measured);
    row.predicted_waiting_ns += static_cast<double>(predicted.waiting_ns);
    row.measured_waiting_ns += static_cast<double>(measured.waiting_ns);
    ++comparison_.matched;
  }

  std::map<std::pair<StageId, Op>, TimelineDifference> rows_;
  TimelineComparison comparison_;
};

}  // namespace

TimelineComparison compare(const Timeline& predicted, const Timeline& measured) {
  Comparer comparer;
  const Events none;
  for (size_t w = 0; w < std::max(predicted.workers.size(), measured.workers.size()); ++w) {
    comparer.add_worker(w < predicted.workers.size() ? predicted.workers[w] : none,
                        w < measured.workers.size() ? measured.workers[w] : none);
  }
  return comparer.take();
}

}  // namespace penstock::schedule

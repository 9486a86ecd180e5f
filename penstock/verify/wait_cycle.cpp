#include "penstock/verify/wait_cycle.h"

#include <algorithm>

namespace penstock::verify {
namespace {

constexpr int64_t kMaxSearchSteps = 5'000'000;

/// Breadth-first searches over the waits, one from each blocked worker, with marks that need no clearing in between.
class CycleSearch {
 public:
  CycleSearch(const Execution& execution, int32_t num_workers)
      : execution_(execution), visited_by_(static_cast<size_t>(num_workers), -1), parent_(static_cast<size_t>(num_workers), -1) {}

  std::vector<WorkerId> find() {
    for (size_t w = 0; w < visited_by_.size() && steps_ < kMaxSearchSteps; ++w) {
      const WorkerId start{static_cast<int32_t>(w)};
      if (execution_.is_blocked(start)) search_from(start);
    }
    return best_;
  }

 private:
  void search_from(WorkerId start) {
    std::vector<WorkerId> frontier{start};
    std::vector<WorkerId> next;
    visited_by_[start.index()] = start.value;
    for (size_t length = 1; !frontier.empty() && (best_.empty() || length < best_.size()); ++length) {
      next.clear();
      for (const WorkerId worker : frontier) {
        steps_ += execution_.wait_search_cost(worker);
        if (steps_ > kMaxSearchSteps) return;
        for (const WorkerId other : execution_.waits_for(worker)) {
          if (other == start) {
            take_cycle(start, worker);
            return;
          }
          if (visited_by_[other.index()] == start.value || !execution_.is_blocked(other)) continue;
          visited_by_[other.index()] = start.value;
          parent_[other.index()] = worker.value;
          next.push_back(other);
        }
      }
      frontier.swap(next);
    }
  }

  void take_cycle(WorkerId start, WorkerId last) {
    best_.clear();
    for (WorkerId worker = last; worker != start; worker = WorkerId{parent_[worker.index()]}) best_.push_back(worker);
    best_.push_back(start);
    std::reverse(best_.begin(), best_.end());
  }

  const Execution& execution_;
  std::vector<int32_t> visited_by_;  // by worker: the start of the last search that reached it
  std::vector<int32_t> parent_;
  std::vector<WorkerId> best_;
  int64_t steps_ = 0;
};

}  // namespace

std::vector<WorkerId> shortest_wait_cycle(const Execution& execution, int32_t num_workers) {
  return CycleSearch(execution, num_workers).find();
}

}  // namespace penstock::verify

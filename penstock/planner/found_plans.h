// Which plans a search had, and when: each that was faster than all before.
//
//   FoundPlans found(begin);
//   found.note(plan::Strategy::GPipe, 120.0);
//   found.note(plan::Strategy::ZbV, 150.0);  // found.list() has both
#pragma once

#include <chrono>
#include <utility>
#include <vector>

#include "penstock/plan/strategy.h"
#include "penstock/planner/time_limit.h"

namespace penstock::planner {

struct FoundPlan {
  std::chrono::nanoseconds after{0};  ///< since the search began
  plan::Strategy strategy = plan::Strategy::OneFOneB;
  double samples_per_s = 0;  ///< as predicted then; of kinds that flush by two steps
};

/// Nothing that is searched depends on it. Not thread-safe.
class FoundPlans {
 public:
  using Clock = TimeLimit::Clock;

  explicit FoundPlans(Clock::time_point begin) : begin_(begin) {}

  /// Since the search began.
  std::chrono::nanoseconds now() const { return Clock::now() - begin_; }
  /// One that may be the answer.
  void note(plan::Strategy strategy, double samples_per_s) {
    if (is_closed_ || (!list_.empty() && samples_per_s <= list_.back().samples_per_s)) return;
    list_.push_back({now(), strategy, samples_per_s});
  }
  /// The answer is known: what comes is for tables.
  void close() { is_closed_ = true; }
  std::vector<FoundPlan> take() { return std::move(list_); }

 private:
  Clock::time_point begin_;
  bool is_closed_ = false;
  std::vector<FoundPlan> list_;
};

}  // namespace penstock::planner

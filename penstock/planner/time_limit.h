// How long planning may take. Searches look at the clock between cut states, which are done in
// milliseconds; whoever has an answer by then returns it, and says how far from the optimum it may
// be.
//
//   const TimeLimit time(std::chrono::seconds(10));
//   search(problem, time.share(0.5));  // throws OutOfTime after five seconds
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>

#include "penstock/planner/search_ended.h"

namespace penstock::planner {

/// The time is over before there was an answer. Never leaves make_plan().
class OutOfTime : public SearchEnded {
 public:
  OutOfTime() : SearchEnded("the time limit was reached") {}
};

/// Immutable, so thread-safe. Without a limit the clock is not read.
class TimeLimit {
 public:
  using Clock = std::chrono::steady_clock;

  TimeLimit() = default;  ///< none
  /// From now on; 0 or less: none.
  explicit TimeLimit(std::chrono::nanoseconds length) {
    if (length.count() > 0) end_ = Clock::now() + length;
  }

  bool exists() const { return end_.has_value(); }
  bool is_over() const { return end_ && Clock::now() >= *end_; }
  /// For what has to be done after it: whether it has been over for so long.
  bool is_over_by(std::chrono::nanoseconds length) const {
    return end_ && Clock::now() >= *end_ + length;
  }
  /// Throws OutOfTime when it is over.
  void check() const {
    if (is_over()) throw OutOfTime();
  }
  /// 0 where it is over. There must be a limit.
  std::chrono::nanoseconds left() const {
    return std::max(std::chrono::nanoseconds(0),
                    std::chrono::duration_cast<std::chrono::nanoseconds>(*end_ - Clock::now()));
  }
  /// A limit that ends when this share of the time left is over.
  TimeLimit share(double share) const {
    if (!end_) return {};
    const auto now = Clock::now();
    const std::chrono::duration<double, Clock::period> left = *end_ - now;
    TimeLimit part;
    part.end_ = now + std::chrono::duration_cast<Clock::duration>(left * share);
    return part;
  }

 private:
  std::optional<Clock::time_point> end_;
};

}  // namespace penstock::planner

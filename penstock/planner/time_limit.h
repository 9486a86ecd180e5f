// How long planning may take. Searches look at the clock between cut states, which are done in
// milliseconds; whoever has an answer by then returns it, and says how far from the optimum it may
// be.
//
//   const TimeLimit time(std::chrono::seconds(10));
//   search(problem, time.share(0.5));  // throws OutOfTime after five seconds
//
// Where several families are searched, each has a turn:
//
//   SearchTime time(limit);
//   const SearchTime::Turn turn(time, 0.1);
//   search(problem, time.share(0.5));  // ends after a twentieth of the limit
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

/// The steady clock. Tests may count instead, so that nothing depends on how fast a machine is.
class SearchClock {
 public:
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<SearchClock, duration>;
  static constexpr bool is_steady = true;

  /// Until its end each look at the clock of this thread takes as long, and nothing else any time.
  /// There may be one at a time.
  class Counting {
   public:
    explicit Counting(duration per_look) : per_look_(per_look) { counting() = this; }
    Counting(const Counting&) = delete;
    Counting& operator=(const Counting&) = delete;
    ~Counting() { counting() = nullptr; }

   private:
    friend class SearchClock;
    duration per_look_;
    duration now_{0};
  };

  static time_point now() {
    if (Counting* const by = counting()) return time_point(by->now_ += by->per_look_);
    return time_point(
        std::chrono::duration_cast<duration>(std::chrono::steady_clock::now().time_since_epoch()));
  }

 private:
  static Counting*& counting() {
    static thread_local Counting* by = nullptr;
    return by;
  }
};

/// Without a limit the clock is not read.
class TimeLimit {
 public:
  using Clock = SearchClock;

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
  void lengthen(std::chrono::nanoseconds length) {
    if (end_) *end_ += length;
  }

 private:
  std::optional<Clock::time_point> end_;
};

/// The time of a whole search. Within a turn its questions are about the turn. Not thread-safe.
class SearchTime {
 public:
  explicit SearchTime(TimeLimit whole) : whole_(whole) {}

  /// Until its end a part of the time is the limit. There may be one at a time.
  class Turn {
   public:
    /// That share of the time left. Keeps a reference.
    Turn(SearchTime& time, double share) : time_(time) { time.turn_ = time.whole_.share(share); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    ~Turn() { time_.turn_.reset(); }

   private:
    SearchTime& time_;
  };

  bool exists() const { return whole_.exists(); }
  const TimeLimit& whole() const { return whole_; }
  bool in_turn() const { return turn_ && turn_->exists(); }
  bool is_over() const { return now().is_over(); }
  void check() const { now().check(); }
  std::chrono::nanoseconds left() const { return now().left(); }
  TimeLimit share(double share) const { return now().share(share); }
  /// What was found is priced for so long after the end; in a turn not at all, others wait.
  bool is_over_by(std::chrono::nanoseconds length) const {
    return in_turn() ? turn_->is_over() : whole_.is_over_by(length);
  }
  /// The turn ends so much later, for it did what others use, too.
  void lengthen_turn(std::chrono::nanoseconds length) {
    if (in_turn()) turn_->lengthen(length);
  }

 private:
  const TimeLimit& now() const { return turn_ ? *turn_ : whole_; }

  TimeLimit whole_;
  std::optional<TimeLimit> turn_;
};

}  // namespace penstock::planner

// How long a rank waits for the others to come, and what ends that early. Internal to net.
//
//   Waiting waiting(io, Clock::now() + options.patience, options.stop);
//   if (!waiting.until([&] { return gate.is_complete(); })) ...  // the time is over
#pragma once

#include <algorithm>
#include <asio/io_context.hpp>
#include <atomic>
#include <chrono>
#include <functional>

namespace penstock::net {

/// Not thread-safe. Everything that waits runs `io`, and throws what its handlers throw.
class Waiting {
 public:
  using Clock = std::chrono::steady_clock;

  /// `stop`, which may be null, must outlive the object.
  Waiting(asio::io_context& io, Clock::time_point deadline, const std::atomic<bool>* stop)
      : io_(io), deadline_(deadline), stop_(stop) {}

  asio::io_context& io() const { return io_; }
  Clock::time_point deadline() const { return deadline_; }
  /// The same with an earlier deadline: after `time`, if that comes before.
  Waiting at_most(std::chrono::milliseconds time) const {
    return {io_, std::min(deadline_, Clock::now() + time), stop_};
  }
  /// The same with a later deadline.
  Waiting longer(std::chrono::milliseconds time) const { return {io_, deadline_ + time, stop_}; }

  /// Runs until `done`; false when the deadline comes first. `io` must have work. Calls `look`, if
  /// there is one, from time to time. Throws RuntimeError soon after `stop`.
  bool until(const std::function<bool()>& done, const std::function<void()>& look = {}) const;
  /// Lets time pass, the deadline or not. Throws as until().
  void pause(std::chrono::milliseconds time) const;

 private:
  asio::io_context& io_;
  Clock::time_point deadline_;
  const std::atomic<bool>* stop_;
};

}  // namespace penstock::net

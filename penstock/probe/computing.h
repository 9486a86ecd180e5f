// Threads that compute beside what is measured, and how much each has done; internal.
//
//   const Computing computing(2, [] { return [kernel = Kernel()]() mutable { kernel.run(); }; });
//   const Reading from = computing.read();
//   ...
//   std::vector<double> per_second = rates(from, computing.read());
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

namespace penstock::probe {

using Clock = std::chrono::steady_clock;

/// Until the last messages of the others have arrived.
inline constexpr std::chrono::milliseconds kSettling{2};

/// How much each thread has done by a moment.
struct Reading {
  Clock::time_point at;
  std::vector<int64_t> done;
};

double seconds(const Reading& from, const Reading& to);
/// By thread, per second.
std::vector<double> rates(const Reading& from, const Reading& to);

/// Threads that compute until they are destroyed.
class Computing {
 public:
  /// `make` is called on each thread; what it returns is a piece of work. Blocks until each has
  /// done one.
  Computing(int threads, const std::function<std::function<void()>()>& make);

  Reading read() const;

 private:
  struct alignas(64) Count {
    std::atomic<int64_t> done{0};
  };
  std::deque<Count> counts_;
  std::vector<std::jthread> threads_;
};

}  // namespace penstock::probe

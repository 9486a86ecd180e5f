// One measured quantity: the median of many samples and how far they lie apart.
//
//   const Measurement latency = sample(Seconds(0.5), [&] { return round_trip_ns() / 2; });
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

namespace penstock::probe {

using Seconds = std::chrono::duration<double>;

struct Measurement {
  double median = 0;
  double low = 0;   ///< first quartile
  double high = 0;  ///< third quartile
  int samples = 0;

  /// The distance of the quartiles as a share of the median.
  double spread() const { return median > 0 ? (high - low) / median : 0; }
  bool operator==(const Measurement&) const = default;
};

/// Of any number of samples; all zero without one.
Measurement measurement_of(std::vector<double> samples);

inline constexpr int kFewestSamples = 3;
inline constexpr int kMostSamples = 4096;

/// Decides when a measurement that repeats itself is over: warm-up for a fifth of the time (at
/// least one repetition), then samples for the rest, at least kFewestSamples and at most
/// kMostSamples whatever the time. Not thread-safe.
class Repetition {
 public:
  explicit Repetition(Seconds budget);
  bool more() const;
  /// Takes the result of one repetition.
  void add(double value);
  const std::vector<double>& samples() const { return samples_; }

 private:
  std::chrono::steady_clock::time_point warm_;
  std::chrono::steady_clock::time_point end_;
  bool warmed_up_ = false;
  std::vector<double> samples_;
};

/// Repeats `measure` as Repetition says. Takes `budget` and at most a few calls more.
Measurement sample(Seconds budget, const std::function<double()>& measure);

/// Nanoseconds that `work` takes, at least 1.
template <class Work>
double time_ns(Work work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  const auto elapsed = std::chrono::steady_clock::now() - start;
  const auto ns =
      static_cast<double>(std::chrono::duration_cast<std::chrono::nanoseconds>(elapsed).count());
  return ns < 1 ? 1 : ns;
}

}  // namespace penstock::probe

#include "penstock/probe/measurement.h"

#include <algorithm>

namespace penstock::probe {

namespace {

using Clock = std::chrono::steady_clock;

Clock::time_point after(Clock::time_point start, Seconds time) {
  return start + std::chrono::duration_cast<Clock::duration>(time);
}

}  // namespace

Measurement measurement_of(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::sort(samples.begin(), samples.end());
  const auto quartile = [&](size_t quarters) {
    return samples[(samples.size() - 1) * quarters / 4];
  };
  return {quartile(2), quartile(1), quartile(3), static_cast<int>(samples.size())};
}

Repetition::Repetition(Seconds budget)
    : warm_(after(Clock::now(), budget / 5)), end_(after(Clock::now(), budget)) {}

bool Repetition::more() const {
  if (samples_.size() < kFewestSamples) return true;
  return samples_.size() < kMostSamples && Clock::now() < end_;
}

void Repetition::add(double value) {
  if (warmed_up_) samples_.push_back(value);
  warmed_up_ = warmed_up_ || Clock::now() >= warm_;
}

Measurement sample(Seconds budget, const std::function<double()>& measure) {
  Repetition repetition(budget);
  while (repetition.more()) repetition.add(measure());
  return measurement_of(repetition.samples());
}

}  // namespace penstock::probe

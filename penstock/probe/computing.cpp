#include "penstock/probe/computing.h"

#include <algorithm>

namespace penstock::probe {

double seconds(const Reading& from, const Reading& to) {
  return std::max(std::chrono::duration<double>(to.at - from.at).count(), 1e-9);
}

std::vector<double> rates(const Reading& from, const Reading& to) {
  std::vector<double> rates;
  rates.reserve(to.done.size());
  for (size_t t = 0; t < to.done.size(); ++t)
    rates.push_back(static_cast<double>(to.done[t] - from.done[t]) / seconds(from, to));
  return rates;
}

Computing::Computing(int threads, const std::function<std::function<void()>()>& make) {
  for (int t = 0; t < threads; ++t) {
    Count& count = counts_.emplace_back();
    threads_.emplace_back([&count, make](const std::stop_token& stop) {
      const std::function<void()> work = make();
      while (!stop.stop_requested()) {
        work();
        count.done.fetch_add(1, std::memory_order_relaxed);
      }
    });
  }
  while (std::any_of(counts_.begin(), counts_.end(),
                     [](const Count& count) { return count.done.load() == 0; }))
    std::this_thread::yield();
}

Reading Computing::read() const {
  Reading reading{.at = Clock::now(), .done = {}};
  reading.done.reserve(counts_.size());
  for (const Count& count : counts_)
    reading.done.push_back(count.done.load(std::memory_order_relaxed));
  return reading;
}

}  // namespace penstock::probe

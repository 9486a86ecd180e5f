#include "penstock/net/waiting.h"

#include <algorithm>
#include <asio/steady_timer.hpp>

#include "penstock/util/error.h"

namespace penstock::net {

namespace {

/// After how long a signal, or a rank that has gone, is noticed.
constexpr std::chrono::milliseconds kLookEvery{100};

}  // namespace

bool Waiting::until(const std::function<bool()>& done, const std::function<void()>& look) const {
  Clock::time_point next_look = Clock::now();
  while (!done()) {
    if (stop_ != nullptr && stop_->load())
      throw RuntimeError("interrupted while the ranks of the job waited for each other");
    const auto now = Clock::now();
    if (now >= deadline_) return false;
    if (now >= next_look) {
      if (look) look();
      next_look = now + kLookEvery;
    }
    io_.restart();
    io_.run_one_until(std::min(deadline_, next_look));
  }
  return true;
}

void Waiting::pause(std::chrono::milliseconds time) const {
  bool over = false;
  asio::steady_timer timer(io_, time);
  timer.async_wait([&over](const asio::error_code&) { over = true; });
  Waiting(io_, Clock::time_point::max(), stop_).until([&over] { return over; });
}

}  // namespace penstock::net

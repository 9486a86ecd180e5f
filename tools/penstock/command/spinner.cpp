#include "tools/penstock/command/spinner.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <iostream>
#include <string_view>
#include <utility>

namespace penstock::tool {

Spinner::Spinner(std::string label) : label_(std::move(label)) {
  if (isatty(STDERR_FILENO) == 1) thread_ = std::thread([this]() { draw(); });
}

Spinner::~Spinner() {
  if (!thread_.joinable()) return;
  {
    const MutexLock lock(mutex_);
    stop_ = true;
  }
  stopped_.notify_all();
  thread_.join();
}

void Spinner::detail(std::string text) {
  const MutexLock lock(mutex_);
  detail_ = std::move(text);
}

void Spinner::draw() {
  constexpr std::string_view kTurns = "|/-\\";
  const auto start = std::chrono::steady_clock::now();
  auto next = start + std::chrono::seconds(1);
  bool drawn = false;
  const MutexLock lock(mutex_);
  for (size_t turn = 0;
       !stopped_.wait_until(mutex_, next, [this]() REQUIRES(mutex_) { return stop_; }); ++turn) {
    const auto seconds =
        std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - start)
            .count();
    std::cerr << fmt::format("\r\x1b[K{} {}{}{}, {} s", kTurns[turn % kTurns.size()], label_,
                             detail_.empty() ? "" : ": ", detail_, seconds)
              << std::flush;
    drawn = true;
    next += std::chrono::milliseconds(200);
  }
  if (drawn) std::cerr << "\r\x1b[K" << std::flush;
}

}  // namespace penstock::tool

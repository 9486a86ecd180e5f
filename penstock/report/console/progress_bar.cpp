#include "penstock/report/console/progress_bar.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>

#include "penstock/util/text/units.h"

namespace penstock::report {

namespace {

constexpr int kBarWidth = 24;

int terminal_columns() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20) return size.ws_col;
  return 100;
}

std::string bar(int64_t done, int64_t total) {
  const auto filled =
      static_cast<size_t>(total > 0 ? std::min<int64_t>(kBarWidth, done * kBarWidth / total) : 0);
  return fmt::format("[{}{}]", std::string(filled, '#'), std::string(kBarWidth - filled, '.'));
}

}  // namespace

ProgressBar::ProgressBar(std::string label)
    : label_(std::move(label)),
      terminal_(isatty(STDERR_FILENO) == 1),
      start_(std::chrono::steady_clock::now()),
      last_drawn_(start_) {}

void ProgressBar::update(int64_t done, int64_t total, const std::string& detail) {
  if (first_done_ < 0) {
    first_done_ = done;
    start_ = std::chrono::steady_clock::now();
  }
  done_ = done;
  total_ = total;
  detail_ = detail;
  pending_ = true;
  const auto now = std::chrono::steady_clock::now();
  const auto interval =
      terminal_ ? std::chrono::milliseconds(100) : std::chrono::milliseconds(5000);
  if (now - last_drawn_ < interval) return;
  last_drawn_ = now;
  draw(eta(now));
}

std::string ProgressBar::eta(std::chrono::steady_clock::time_point now) const {
  if (done_ <= first_done_ || done_ >= total_) return "";
  const auto elapsed = std::chrono::duration_cast<std::chrono::nanoseconds>(now - start_);
  return ", ETA " + format_duration(static_cast<int64_t>(static_cast<double>(elapsed.count()) /
                                                         static_cast<double>(done_ - first_done_) *
                                                         static_cast<double>(total_ - done_)));
}

void ProgressBar::draw(const std::string& eta) {
  pending_ = false;
  std::string line = fmt::format("{} {} {}/{}{}{}{}", label_, bar(done_, total_), done_, total_,
                                 detail_.empty() ? "" : "  ", detail_, eta);
  if (terminal_) {
    line.resize(std::min(line.size(), static_cast<size_t>(terminal_columns() - 1)));
    std::cerr << "\r\x1b[K" << line << std::flush;  // tidy: allow(printing) that is its work
    dirty_ = true;
  } else {
    std::cerr << line << std::endl;  // tidy: allow(printing) the same
  }
}

void ProgressBar::finish() {
  if (pending_) draw("");
  if (dirty_) std::cerr << std::endl;  // tidy: allow(printing) the same
  dirty_ = false;
}

}  // namespace penstock::report

// Collects violations up to the limit; text is made only for those that it keeps.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "penstock/schedule/formats/text_format.h"
#include "penstock/verify/values.h"

namespace penstock::verify {

class Report {
 public:
  explicit Report(int64_t max_violations) : max_violations_(max_violations) {}

  bool full() const { return static_cast<int64_t>(violations_.size()) >= max_violations_; }
  size_t size() const { return violations_.size(); }

  /// A violation by an action of a worker.
  template <class... Args>
  void add(std::string_view rule, WorkerId worker, const schedule::Action& action,
           fmt::format_string<Args...> format, Args&&... args) {
    if (full()) return;
    const std::string text = to_text(action);
    std::string message = fmt::format("worker {}, {}: ", worker.value, text) +
                          fmt::format(format, std::forward<Args>(args)...);
    violations_.push_back({std::string(rule), worker, text, std::move(message)});
  }
  /// A violation by a worker's list (worker -1: by the schedule).
  template <class... Args>
  void add(std::string_view rule, WorkerId worker, fmt::format_string<Args...> format,
           Args&&... args) {
    if (full()) return;
    std::string message =
        worker.value >= 0 ? fmt::format("worker {}: ", worker.value) : std::string();
    message += fmt::format(format, std::forward<Args>(args)...);
    violations_.push_back({std::string(rule), worker, std::string(), std::move(message)});
  }

  std::vector<Violation> take() { return std::move(violations_); }

 private:
  int64_t max_violations_;
  std::vector<Violation> violations_;
};

}  // namespace penstock::verify

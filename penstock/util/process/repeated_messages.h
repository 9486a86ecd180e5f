// Messages of one kind that may come in a flood: the first few are said at once, the others counted
// and said as one line every few seconds. Not thread-safe.
//
//   RepeatedMessages refusals("connections refused");
//   if (const auto line = refusals.add("refused 10.0.0.7: a stranger", now)) log_warning(*line);
//   if (const auto line = refusals.due(now)) log_warning(*line);   // from time to time
//   if (const auto line = refusals.rest()) log_warning(*line);     // at the end
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace penstock {

class RepeatedMessages {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr int kAtOnce = 5;
  static constexpr std::chrono::seconds kInterval{5};

  /// `what` follows the number of those that were only counted.
  explicit RepeatedMessages(std::string what) : what_(std::move(what)) {}

  /// What to say now: the message itself, or the line about all since the last one; or nothing.
  std::optional<std::string> add(std::string message, Time now);
  /// The line about those that were only counted, when the last line is kInterval old.
  std::optional<std::string> due(Time now);
  /// The same at any time.
  std::optional<std::string> rest();

 private:
  std::string what_;
  int said_ = 0;  // one by one
  int64_t counted_ = 0;
  std::string last_;
  Time last_line_{};
};

}  // namespace penstock

#include "penstock/util/process/repeated_messages.h"

#include <fmt/format.h>

#include <utility>

namespace penstock {

std::optional<std::string> RepeatedMessages::add(std::string message, Time now) {
  if (said_ < kAtOnce) {
    ++said_;
    last_line_ = now;
    return message;
  }
  ++counted_;
  last_ = std::move(message);
  return due(now);
}

std::optional<std::string> RepeatedMessages::due(Time now) {
  if (now - last_line_ < kInterval) return std::nullopt;
  last_line_ = now;
  return rest();
}

std::optional<std::string> RepeatedMessages::rest() {
  const int64_t count = std::exchange(counted_, 0);
  if (count == 0) return std::nullopt;
  std::string last = std::exchange(last_, {});
  return count == 1 ? last : fmt::format("{} more {}, the last one: {}", count, what_, last);
}

}  // namespace penstock

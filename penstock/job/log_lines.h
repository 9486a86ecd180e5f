// Lines of a log for machines and for people who read them later: with the time and the rank, as
// text or as one JSON object each.
//
//   log_line(LogForm::Json, now, 0, {.level = "info", .message = "epoch 1 is over"});
//   // {"time":"2026-01-31T12:00:00.000Z","rank":0,"level":"info","message":"epoch 1 is over"}
//
// Pure; thread-safe.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "penstock/options/request.h"
#include "penstock/util/files/json.h"

namespace penstock::job {

struct LogRecord {
  std::string_view level = "info";  ///< or "warning", "error"
  std::string message;              ///< one line or more
  Json fields = {};                 ///< an object with what else JSON shows; null: nothing
};

/// "2026-01-31T12:00:00.000Z".
std::string utc_text(std::chrono::system_clock::time_point time);

/// With newlines. As text each line of the message is one of its own, empty ones are left out. The
/// console's form is the message alone.
std::string log_line(options::LogForm form, std::chrono::system_clock::time_point time, int rank,
                     const LogRecord& record);

}  // namespace penstock::job

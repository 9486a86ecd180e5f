// Log messages of the library: it never prints, it passes them to a sink. If the program sets no
// sink, they go to stderr. Every function may be called from any thread.
//
//   set_log_sink([&](LogLevel, std::string_view message) { window.append(message); });
//   log_info("profiling layer 3 of 16");
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

namespace penstock {

enum class LogLevel : uint8_t { Info, Warning };

/// Receives one message without a trailing newline. It runs on the thread that logs, possibly on
/// several threads at once, and must not throw.
using LogSink = std::function<void(LogLevel, std::string_view)>;

/// Replaces the sink for all messages that begin after the call; an empty one restores stderr.
void set_log_sink(LogSink sink);

void log_info(std::string_view message);
void log_warning(std::string_view message);

}  // namespace penstock

#include "penstock/util/process/log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <memory>
#include <utility>

#include "penstock/util/process/mutex.h"

namespace penstock {

namespace {

struct SinkSlot {
  Mutex mutex;
  std::shared_ptr<const LogSink> sink GUARDED_BY(mutex);  // null: stderr
};

SinkSlot& sink_slot() {
  static SinkSlot slot;
  return slot;
}

std::shared_ptr<spdlog::logger> make_stderr_logger() {
  auto logger = std::make_shared<spdlog::logger>("penstock",
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern("%n: %l: %v");
  logger->flush_on(spdlog::level::info);
  return logger;
}

spdlog::logger& stderr_logger() {
  static const std::shared_ptr<spdlog::logger> logger = make_stderr_logger();
  return *logger;
}

void log(LogLevel level, std::string_view message) {
  std::shared_ptr<const LogSink> sink;
  {
    SinkSlot& slot = sink_slot();
    const MutexLock lock(slot.mutex);
    sink = slot.sink;
  }
  // Called outside the lock, so that a sink may itself log or be replaced while it runs.
  if (sink) return (*sink)(level, message);
  const auto spdlog_level = level == LogLevel::Warning ? spdlog::level::warn : spdlog::level::info;
  stderr_logger().log(spdlog_level, spdlog::string_view_t(message.data(), message.size()));
}

}  // namespace

void set_log_sink(LogSink sink) {
  auto replacement = sink ? std::make_shared<const LogSink>(std::move(sink)) : nullptr;
  SinkSlot& slot = sink_slot();
  const MutexLock lock(slot.mutex);
  slot.sink.swap(replacement);
}

void log_info(std::string_view message) { log(LogLevel::Info, message); }
void log_warning(std::string_view message) { log(LogLevel::Warning, message); }

}  // namespace penstock

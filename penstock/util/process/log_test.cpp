#include "penstock/util/process/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace penstock {
namespace {

/// Collects messages while it exists, then restores stderr.
class Log : public ::testing::Test {
 protected:
  Log() {
    set_log_sink([this](LogLevel level, std::string_view message) {
      const std::lock_guard lock(mutex_);
      messages_.emplace_back(level, message);
    });
  }
  ~Log() override { set_log_sink({}); }

  std::mutex mutex_;
  std::vector<std::pair<LogLevel, std::string>> messages_;
};

TEST_F(Log, MessagesReachTheSinkWithTheirLevel) {
  log_info("layer 3 of {}");
  log_warning("slow");
  using Message = std::pair<LogLevel, std::string>;
  EXPECT_THAT(messages_, ::testing::ElementsAre(Message(LogLevel::Info, "layer 3 of {}"),
                                                Message(LogLevel::Warning, "slow")));
}

TEST_F(Log, MessagesOfManyThreadsAllArrive) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([] {
      for (int k = 0; k < 100; ++k) log_info("x");
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(messages_.size(), 400U);
}

TEST_F(Log, ASinkMayReplaceItselfAndLog) {
  int calls = 0;
  set_log_sink([&](LogLevel, std::string_view) {
    ++calls;
    set_log_sink([&](LogLevel, std::string_view) { calls += 10; });
    log_info("inner");
  });
  log_info("outer");
  EXPECT_EQ(calls, 11);
}

TEST_F(Log, WithoutASinkMessagesGoToStderr) {
  set_log_sink({});
  ::testing::internal::CaptureStderr();
  log_warning("disk {} nearly full");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "penstock: warning: disk {} nearly full\n");
  EXPECT_TRUE(messages_.empty());
}

}  // namespace
}  // namespace penstock

// Who does the additions: the service's thread, or one that waits for a sum.
#include "penstock/runtime/fabric/mesh/sum_service.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace penstock::runtime {
namespace {

using Length = SumService::Length;

SumService::Task notes_thread(std::atomic<std::thread::id>& where) {
  return [&where] {
    where = std::this_thread::get_id();
    where.notify_all();
  };
}

TEST(SumServiceTest, ItsThreadAddsWhereNobodyHelps) {
  std::atomic<std::thread::id> where{};
  SumService service([](const std::exception_ptr&) {});
  service.add(0, notes_thread(where), Length::Short);
  where.wait({});
  EXPECT_NE(where.load(), std::this_thread::get_id());
}

TEST(SumServiceTest, WhatIsShortWaitsForTheHelper) {
  std::atomic<std::thread::id> where{};
  SumService service([](const std::exception_ptr&) {});
  // The thread has begun to wait once it has done something.
  service.add(0, notes_thread(where));
  where.wait({});
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  where = std::thread::id();
  service.begin_help();
  EXPECT_FALSE(service.help());
  service.add(0, notes_thread(where), Length::Short);
  EXPECT_TRUE(service.help());
  EXPECT_EQ(where.load(), std::this_thread::get_id());
  service.end_help();
}

TEST(SumServiceTest, WhatIsLongWakesTheThread) {
  std::atomic<std::thread::id> where{};
  SumService service([](const std::exception_ptr&) {});
  service.begin_help();
  service.add(0, notes_thread(where), Length::Long);
  where.wait({});
  EXPECT_NE(where.load(), std::this_thread::get_id());
  service.end_help();
}

TEST(SumServiceTest, WhatAHelperLeavesIsDoneAllTheSame) {
  std::atomic<std::thread::id> where{};
  SumService service([](const std::exception_ptr&) {});
  service.begin_help();
  service.begin_help();
  service.end_help();
  service.add(0, notes_thread(where), Length::Short);
  service.end_help();
  where.wait({});
  EXPECT_NE(where.load(), std::thread::id());
}

TEST(SumServiceTest, AHelperDoesTheMostUrgentFirst) {
  std::vector<int> done;
  SumService service([](const std::exception_ptr&) {});
  service.begin_help();
  const std::thread::id own = std::this_thread::get_id();
  for (const int urgency : {1, 3, 2, 3}) {
    service.add(
        urgency,
        [&done, urgency, own] {
          if (std::this_thread::get_id() == own) done.push_back(urgency);
        },
        Length::Short);
  }
  while (service.help()) continue;
  service.end_help();
  service.stop();
  // Its thread may have taken some, but no helper goes back.
  EXPECT_TRUE(std::ranges::is_sorted(done, std::greater<>()));
}

TEST(SumServiceTest, AFailureOfAHelpersTaskIsTold) {
  std::string failure;
  SumService service([&failure](const std::exception_ptr& error) {
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& found) {
      failure = found.what();
    }
  });
  service.begin_help();
  service.add(
      0, [] { throw std::runtime_error("no room"); }, Length::Short);
  while (service.help()) continue;
  service.end_help();
  service.stop();
  EXPECT_EQ(failure, "no room");
}

TEST(SumServiceTest, TheEndWaitsForWhatAHelperDoes) {
  SumService service([](const std::exception_ptr&) {});
  std::atomic<bool> begun = false;
  std::atomic<bool> done = false;
  std::jthread helper([&] {
    service.begin_help();
    while (!service.help() && !begun) std::this_thread::yield();
    service.end_help();
  });
  service.add(
      0,
      [&] {
        begun = true;
        begun.notify_all();
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        done = true;
      },
      Length::Short);
  begun.wait(false);
  service.stop();
  EXPECT_TRUE(done);
  EXPECT_FALSE(service.help());
  service.add(0, [] { ADD_FAILURE() << "added after the end"; });
  EXPECT_FALSE(service.help());
}

}  // namespace
}  // namespace penstock::runtime

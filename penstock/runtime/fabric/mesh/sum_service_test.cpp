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

#include "penstock/runtime/fabric/mesh/sum_engine.h"

namespace penstock::runtime {
namespace {

using Length = SumService::Length;

SumService::Task notes_thread(std::atomic<std::thread::id>& where) {
  return [&where] {
    where = std::this_thread::get_id();
    where.notify_all();
  };
}

/// Who waits looks up once per second without being woken.
constexpr std::chrono::milliseconds kWoken{600};

/// Which thread it was, once it is noted; none when it is not soon.
std::thread::id noted_soon(const std::atomic<std::thread::id>& where,
                           std::chrono::milliseconds patience = kWoken) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (where.load() == std::thread::id() && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return where;
}

/// Returns when the thread of the service waits for something to do.
void let_it_fall_asleep(SumService& service) {
  // It has begun to wait once it has done something.
  std::atomic<std::thread::id> where{};
  service.add(0, [&where] { where = std::this_thread::get_id(); });
  EXPECT_NE(noted_soon(where, std::chrono::seconds(20)), std::thread::id());
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
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
  let_it_fall_asleep(service);
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
  let_it_fall_asleep(service);
  service.begin_help();
  service.add(0, notes_thread(where), Length::Long);
  EXPECT_NE(noted_soon(where), std::thread::id()) << "nobody has woken it";
  service.end_help();
}

TEST(SumServiceTest, WhatAHelperLeavesIsDoneAllTheSame) {
  std::atomic<std::thread::id> where{};
  SumService service([](const std::exception_ptr&) {});
  let_it_fall_asleep(service);
  service.begin_help();
  service.begin_help();
  service.end_help();
  service.add(0, notes_thread(where), Length::Short);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(where.load(), std::thread::id()) << "one still helps";
  service.end_help();
  EXPECT_NE(noted_soon(where), std::thread::id()) << "nobody has woken it";
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

/// Counts who watches it.
class CountsWatchers : public net::ProgressEngine {
 public:
  bool look() override { return false; }
  bool begin_watch() override { return ++watchers_ > 0; }
  void end_watch(bool /*sleeps*/) override { --watchers_; }
  int watchers() const { return watchers_; }

 private:
  int watchers_ = 0;
};

TEST(SumEngineTest, WhoAddsForLongDoesNotWatchMeanwhile) {
  SumService service([](const std::exception_ptr&) {});
  std::atomic<bool> busy = false;
  std::atomic<bool> goes_on = false;
  service.add(0, [&] {
    busy = true;
    busy.notify_all();
    goes_on.wait(false);
  });
  busy.wait(false);
  // From here on this thread alone helps.
  CountsWatchers mesh;
  SumEngine engine(mesh, service);
  engine.begin_watch();
  for (const Length length : {Length::Long, Length::Short}) {
    int watchers = -1;
    service.add(
        0, [&] { watchers = mesh.watchers(); }, length);
    EXPECT_TRUE(engine.look());
    EXPECT_EQ(watchers, length == Length::Long ? 0 : 1);
    EXPECT_EQ(mesh.watchers(), 1);
  }
  EXPECT_FALSE(engine.look());
  engine.end_watch(false);
  EXPECT_EQ(mesh.watchers(), 0);
  goes_on = true;
  goes_on.notify_all();
}

}  // namespace
}  // namespace penstock::runtime

#include "penstock/net/mesh_mutex.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace penstock::net {
namespace {

TEST(MeshMutexTest, TasksAreDoneAtOnceInTheirOrderWhereNobodyHasIt) {
  MeshMutex mutex;
  std::vector<int> done;
  mutex.add([&] {
    done.push_back(1);
    // As what the end of a message calls.
    mutex.add([&] { done.push_back(3); });
    EXPECT_TRUE(mutex.settle());
  });
  mutex.add([&] { done.push_back(2); });
  EXPECT_TRUE(mutex.settle());
  EXPECT_EQ(done, (std::vector{1, 2, 3}));
}

TEST(MeshMutexTest, WhoHasItDoesTheTasksOfOthersWhenItLetsGo) {
  MeshMutex mutex;
  int done = 0;
  mutex.lock();
  std::jthread([&] {
    mutex.add([&] { ++done; });
    EXPECT_TRUE(mutex.settle());
  }).join();
  EXPECT_EQ(done, 0);
  mutex.unlock();
  EXPECT_EQ(done, 1);
}

TEST(MeshMutexTest, TasksComeBeforeWhatWaitsForTheMutex) {
  MeshMutex mutex;
  int done = 0;
  mutex.add([&] { ++done; });
  mutex.lock();
  EXPECT_EQ(done, 1);
  mutex.unlock();
}

TEST(MeshMutexTest, AThreadThatHasOneTakesNoOther) {
  MeshMutex first;
  MeshMutex second;
  int done = 0;
  first.lock();
  EXPECT_FALSE(second.try_lock());
  second.add([&] { ++done; });
  EXPECT_FALSE(second.settle());
  EXPECT_EQ(done, 0);
  first.unlock();
  EXPECT_TRUE(second.settle());
  EXPECT_EQ(done, 1);
}

TEST(MeshMutexTest, NoTaskIsLeftWhenAllThreadsHaveSettled) {
  MeshMutex mutex;
  constexpr int kTasks = 20'000;
  int done = 0;  // with the mutex held
  const auto add = [&] {
    for (int i = 0; i < kTasks; ++i) {
      mutex.add([&] { ++done; });
      EXPECT_TRUE(mutex.settle());
    }
  };
  std::jthread other(add);
  add();
  other.join();
  EXPECT_TRUE(mutex.settle());
  EXPECT_EQ(done, 2 * kTasks);
}

}  // namespace
}  // namespace penstock::net

#include "penstock/util/process/core_needs.h"

#include <gtest/gtest.h>

namespace penstock {

TEST(CoreNeed, CountsAsLongAsItLives) {
  const auto cores = static_cast<int64_t>(std::thread::hardware_concurrency());
  EXPECT_TRUE(have_cores());
  {
    const CoreNeed all(CoreNeed::Kind::Thread, cores);
    EXPECT_TRUE(have_cores());
    const CoreNeed one_more(CoreNeed::Kind::Thread, 1);
    EXPECT_FALSE(have_cores());
  }
  EXPECT_TRUE(have_cores());
}

TEST(CoreNeed, OtherProcessesWantAsManyEach) {
  const auto cores = static_cast<int64_t>(std::thread::hardware_concurrency());
  const CoreNeed others(CoreNeed::Kind::OtherProcess, cores - 1);
  EXPECT_TRUE(have_cores());
  const CoreNeed one(CoreNeed::Kind::Thread, 1);
  EXPECT_TRUE(have_cores());
  const CoreNeed two(CoreNeed::Kind::Thread, 1);
  EXPECT_FALSE(have_cores());
}

}  // namespace penstock

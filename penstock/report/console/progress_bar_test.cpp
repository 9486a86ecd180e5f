#include "penstock/report/console/progress_bar.h"

#include <gtest/gtest.h>

#include <string>

namespace penstock::report {
namespace {

std::string shown(void (*work)(ProgressBar& bar)) {
  testing::internal::CaptureStderr();
  {
    ProgressBar bar("steps");
    work(bar);
  }
  return testing::internal::GetCapturedStderr();
}

TEST(ProgressBar, EndsWithTheLastStateAndNoEta) {
  EXPECT_EQ(shown([](ProgressBar& bar) {
              bar.update(1, 4);
              bar.update(2, 4, "loss 1.0");
            }),
            "steps [############............] 2/4  loss 1.0\n");
}

TEST(ProgressBar, WithoutAnUpdateShowsNothing) {
  EXPECT_EQ(shown([](ProgressBar&) {}), "");
}

}  // namespace
}  // namespace penstock::report

#include "penstock/runtime/fabric/local/norm_table.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

namespace penstock::runtime::testing {
namespace {

TEST(NormTableTest, GradientsAreNotKeptAfterwards) {
  NormTable table(1, {{.copies = 2, .weight = 0}}, 1);
  const at::Tensor gradient = at::ones({3});
  NormTotals totals;
  Wait wait = wait_for(std::chrono::seconds(5));
  EXPECT_EQ(
      table.combine({.tied = {{0, 0, gradient}, {0, 1, gradient}}, .wanted = {0}}, totals, wait),
      WaitResult::Ready);
  EXPECT_EQ(totals.tied_sums.at(0).sum().item<float>(), 6.0f);
  EXPECT_NEAR(totals.norm * totals.norm, 12, 1e-9);
  EXPECT_EQ(gradient.use_count(), 1u);
  EXPECT_EQ(table.combine({.mini_batch = MiniBatchId{1}, .wanted = {0}}, totals, wait),
            WaitResult::Ready);
  EXPECT_FALSE(totals.tied_sums.at(0).defined());
}

TEST(NormTableTest, NobodyMeetsAfterATimeout) {
  NormTable table(2, {}, 1);
  NormTotals totals;
  Wait wait = wait_for(std::chrono::milliseconds(20));
  EXPECT_EQ(table.combine({}, totals, wait), WaitResult::TimedOut);
  EXPECT_GT(wait.waited_ns, 0);
  Wait longer = wait_for(std::chrono::seconds(5));
  EXPECT_EQ(table.combine({}, totals, longer), WaitResult::Closed);
}

}  // namespace
}  // namespace penstock::runtime::testing

#include "penstock/runtime/global_gradients.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <limits>

namespace penstock::runtime::testing {
namespace {

TEST(GlobalGradientsTest, TheSquaresDoNotDependOnTheLayout) {
  for (const int64_t rows : {7, 130, 333}) {
    const at::Tensor plain = (at::arange(rows * 211, at::kFloat) * 0.7311).sin().view({rows, 211}) *
                             at::arange(1, rows + 1).view({rows, 1});
    const at::Tensor transposed = plain.t().contiguous().t();
    ASSERT_FALSE(transposed.is_contiguous());
    EXPECT_EQ(sum_of_squares(plain), sum_of_squares(transposed));
  }
  EXPECT_EQ(sum_of_squares(at::Tensor()), 0.0);
}

TEST(GlobalGradientsTest, DroppedGradientsAreNotKept) {
  GlobalGradients global(1, {2}, 1);
  const at::Tensor gradient = at::ones({3});
  global.put(0, 0, gradient);
  global.put(0, 1, gradient);
  EXPECT_EQ(global.tied_sum(0).sum().item<float>(), 6.0f);
  global.drop(0, 0);
  global.drop(0, 1);
  EXPECT_EQ(gradient.use_count(), 1u);
  EXPECT_FALSE(global.tied_sum(0).defined());
}

TEST(GlobalGradientsTest, NobodyMeetsAfterATimeout) {
  GlobalGradients global(2, {}, 1);
  int64_t waiting_ns = 0;
  EXPECT_EQ(
      global.meet(std::chrono::steady_clock::now() + std::chrono::milliseconds(20), waiting_ns),
      WaitResult::TimedOut);
  EXPECT_EQ(global.meet(std::chrono::steady_clock::now() + std::chrono::seconds(5), waiting_ns),
            WaitResult::Closed);
}

TEST(ClipFactorTest, IsOneUpToTheLimit) {
  EXPECT_EQ(clip_factor(3, 0), 1.0);
  EXPECT_EQ(clip_factor(3, 3), 1.0);
  EXPECT_EQ(clip_factor(0, 3), 1.0);
  EXPECT_EQ(clip_factor(std::numeric_limits<double>::quiet_NaN(), 3), 1.0);
  EXPECT_EQ(clip_factor(4, 3), 3 / (4 + 1e-6));
}

}  // namespace
}  // namespace penstock::runtime::testing

#include "penstock/runtime/fabric/gradient_norm.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <limits>

namespace penstock::runtime::testing {
namespace {

TEST(SumOfSquares, DoesNotDependOnTheLayout) {
  for (const int64_t rows : {7, 130, 333}) {
    const at::Tensor plain = (at::arange(rows * 211, at::kFloat) * 0.7311).sin().view({rows, 211}) *
                             at::arange(1, rows + 1).view({rows, 1});
    const at::Tensor transposed = plain.t().contiguous().t();
    ASSERT_FALSE(transposed.is_contiguous());
    EXPECT_EQ(sum_of_squares(plain), sum_of_squares(transposed));
  }
  EXPECT_EQ(sum_of_squares(at::Tensor()), 0.0);
}

TEST(ClipFactor, IsOneUpToTheLimit) {
  EXPECT_EQ(clip_factor(3, 0), 1.0);
  EXPECT_EQ(clip_factor(3, 3), 1.0);
  EXPECT_EQ(clip_factor(0, 3), 1.0);
  EXPECT_EQ(clip_factor(std::numeric_limits<double>::quiet_NaN(), 3), 1.0);
  EXPECT_EQ(clip_factor(4, 3), 3 / (4 + 1e-6));
}

}  // namespace
}  // namespace penstock::runtime::testing

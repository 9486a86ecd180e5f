#include "penstock/util/numbers/orthonormal_basis.h"

#include <gtest/gtest.h>

#include <tuple>

namespace penstock {
namespace {

TEST(OrthonormalBasis, ColumnsHaveLengthOneAndRightAngles) {
  for (const auto& [width, rank] : {std::tuple{1, 1}, {8, 8}, {50, 7}}) {
    const std::vector<float> basis = orthonormal_basis(width, rank);
    ASSERT_EQ(basis.size(), static_cast<size_t>(width * rank));
    for (int a = 0; a < rank; ++a) {
      for (int b = 0; b < rank; ++b) {
        double product = 0;
        for (int i = 0; i < width; ++i)
          product += double{basis[static_cast<size_t>(i * rank + a)]} *
                     basis[static_cast<size_t>(i * rank + b)];
        EXPECT_NEAR(product, a == b ? 1 : 0, 1e-6) << width << " " << a << " " << b;
      }
    }
  }
}

TEST(OrthonormalBasis, ASmallerRankHasTheFirstColumnsOfALargerOne) {
  const std::vector<float> large = orthonormal_basis(20, 6);
  const std::vector<float> small = orthonormal_basis(20, 2);
  for (size_t i = 0; i < 20; ++i) {
    EXPECT_EQ(small[2 * i], large[6 * i]);
    EXPECT_EQ(small[2 * i + 1], large[6 * i + 1]);
  }
}

}  // namespace
}  // namespace penstock

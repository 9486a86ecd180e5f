#include "penstock/model/layers/blocked_product.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "penstock/model/layers/linear_product.h"
#include "penstock/model/layers/testing_trial.h"

namespace penstock::model {
namespace {

at::Tensor floats(const Shape& sizes, uint64_t seed) {
  return random(sizes, seed).to(at::kFloat).requires_grad_();
}

/// Values and gradients of detail::blocked_linear() against those of at::linear().
void expect_equal_to_linear(const Shape& input_sizes, int64_t features, bool has_bias,
                            bool transposed) {
  const at::Tensor input = floats(input_sizes, 1);
  const int64_t in = input_sizes.back();
  const at::Tensor stored = transposed ? floats({in, features}, 2) : floats({features, in}, 2);
  const at::Tensor weight = transposed ? stored.t() : stored;
  const at::Tensor bias = has_bias ? floats({features}, 3) : at::Tensor();
  const at::Tensor wanted = at::linear(input, weight, bias);
  const at::Tensor found = detail::blocked_linear(input, weight, bias);
  ASSERT_EQ(found.sizes(), wanted.sizes());
  EXPECT_TRUE(found.is_contiguous());
  const double rounding = 2e-6 * static_cast<double>(in);
  EXPECT_TRUE(at::allclose(found, wanted, 1e-4, rounding));
  Tensors leaves = {input, stored};
  if (has_bias) leaves.push_back(bias);
  const at::Tensor gradient = random(wanted.sizes().vec(), 4).to(at::kFloat);
  const auto expected = torch::autograd::grad({wanted}, leaves, {gradient});
  const auto gradients = torch::autograd::grad({found}, leaves, {gradient});
  for (size_t i = 0; i < leaves.size(); ++i) {
    ASSERT_EQ(gradients[i].sizes(), leaves[i].sizes()) << i;
    EXPECT_TRUE(at::allclose(gradients[i], expected[i], 1e-4, rounding)) << i;
  }
}

TEST(BlockedProduct, HasTheValuesAndGradientsOfLinear) {
  if (!detail::has_blocked_product()) GTEST_SKIP() << "no oneDNN product in this libtorch";
  for (const bool has_bias : {false, true}) {
    expect_equal_to_linear({6, 40}, 24, has_bias, false);
    expect_equal_to_linear({3, 5, 33}, 17, has_bias, false);
    expect_equal_to_linear({6, 40}, 24, has_bias, true);
    expect_equal_to_linear({128, 512}, 257, has_bias, false);
  }
}

TEST(BlockedProduct, MakesWhatCanBeChangedInPlace) {
  if (!detail::has_blocked_product()) GTEST_SKIP() << "no oneDNN product in this libtorch";
  const at::Tensor weight = floats({9, 20}, 2);
  at::Tensor found = detail::blocked_linear(floats({4, 7, 20}, 1), weight, at::Tensor());
  found.mul_(2);
  const auto gradients = torch::autograd::grad({found.sum()}, {weight});
  EXPECT_EQ(gradients[0].sizes(), weight.sizes());
}

TEST(BlockedProduct, TakesInputsWithGapsBetweenTheirRows) {
  if (!detail::has_blocked_product()) GTEST_SKIP() << "no oneDNN product in this libtorch";
  const at::Tensor wide = floats({4, 7, 60}, 1);
  const at::Tensor weight = floats({9, 20}, 2);
  const at::Tensor input = wide.narrow(2, 20, 20);
  EXPECT_TRUE(at::allclose(detail::blocked_linear(input, weight, {}), at::linear(input, weight),
                           1e-4, 1e-5));
}

TEST(BlockedProduct, MakesOnlyTheGradientsThatAreAskedFor) {
  if (!detail::has_blocked_product()) GTEST_SKIP() << "no oneDNN product in this libtorch";
  const at::Tensor input = floats({8, 16}, 1);
  const at::Tensor weight = floats({4, 16}, 2);
  const at::Tensor bias = floats({4}, 3);
  const at::Tensor found = detail::blocked_linear(input, weight, bias);
  const at::Tensor ones = at::ones({8, 4});
  const auto of_input = torch::autograd::grad({found}, {input}, {ones}, /*retain_graph=*/true);
  const auto of_weights = torch::autograd::grad({found}, {weight, bias}, {ones});
  EXPECT_TRUE(at::allclose(of_input[0], ones.mm(weight.detach()), 1e-4, 1e-5));
  EXPECT_TRUE(at::allclose(of_weights[0], ones.t().mm(input.detach()), 1e-4, 1e-5));
  EXPECT_TRUE(at::allclose(of_weights[1], at::full({4}, 8.0)));
}

TEST(BlockedProduct, IsOnlyForLargeProductsOfFloatsOnTheCpu) {
  const at::Tensor large = at::ones({256, 512});
  const at::Tensor weight = at::ones({128, 512});
  const at::Tensor small = at::ones({255, 512});
  EXPECT_FALSE(detail::is_faster_blocked(small, weight, {}));
  EXPECT_FALSE(detail::is_faster_blocked(large.to(at::kDouble), weight.to(at::kDouble), {}));
  EXPECT_FALSE(detail::is_faster_blocked(large.to(at::kBFloat16), weight.to(at::kBFloat16), {}));
  EXPECT_FALSE(detail::is_faster_blocked(large, weight, at::ones({1})));
  EXPECT_FALSE(detail::is_faster_blocked(large, at::ones({0, 512}), {}));
  EXPECT_FALSE(detail::is_faster_blocked(large, at::ones({512}), {}));
}

TEST(BlockedProduct, IsWhatLinearTakesWhereItIsFaster) {
  const at::Tensor input = floats({256, 512}, 1);
  const at::Tensor weight = floats({128, 512}, 2);
  const bool expected = detail::is_faster_blocked(input, weight, {});
  const std::string name = linear(input, weight, at::Tensor()).grad_fn()->name();
  EXPECT_EQ(name.find("BlockedProduct") != std::string::npos, expected) << name;
}

}  // namespace
}  // namespace penstock::model

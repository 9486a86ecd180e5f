#include "penstock/model/layers/int8_product.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/types.h>

namespace penstock::model {
namespace {

at::Tensor unpacked(const at::Tensor& packed, int64_t columns, at::ScalarType type = at::kFloat) {
  return unpack_int8(packed, columns, type, 0, packed.size(0));
}

TEST(Int8Product, EachNumberIsWithinHalfAStepOfItsBlock) {
  torch::manual_seed(1);
  for (const int64_t columns : {5, 64, 192, 384}) {
    const at::Tensor weight = torch::randn({7, columns});
    weight[2].zero_();
    const at::Tensor packed = pack_int8(weight);
    EXPECT_EQ(packed.scalar_type(), at::kChar);
    EXPECT_EQ(packed.sizes(), at::IntArrayRef({7, int8_row_bytes(columns)}));
    const at::Tensor blocks = weight.view({7, -1, int8_block(columns)});
    const at::Tensor step = blocks.abs().amax(-1, true) / 127;
    const at::Tensor far = (unpacked(packed, columns).view_as(blocks) - blocks).abs();
    EXPECT_TRUE((far <= step * 0.501).all().item<bool>()) << columns;
    EXPECT_FALSE(unpacked(packed, columns)[2].any().item<bool>());
  }
}

TEST(Int8Product, ARowHasItsNumbersAndAScalePerBlock) {
  EXPECT_EQ(int8_row_bytes(1024), 1024 + 4 * 8);
  EXPECT_EQ(int8_row_bytes(64), 64 + 4);
  EXPECT_EQ(int8_row_bytes(100), 100 + 4);
}

/// Of what is packed, in one slice or in several.
void expect_products(int64_t rows, int64_t columns, at::ScalarType type, double tolerance) {
  torch::manual_seed(2);
  const at::Tensor packed = pack_int8(torch::randn({rows, columns}).to(type));
  const at::Tensor weight = unpacked(packed, columns, type);
  at::Tensor input = torch::randn({2, 3, columns}).to(type).requires_grad_();
  at::Tensor bias = torch::randn({rows}).to(type).requires_grad_();
  at::Tensor same = input.detach().clone().requires_grad_();
  const at::Tensor found = int8_linear(input, packed, bias);
  const at::Tensor expected = at::linear(same, weight, bias.detach());
  EXPECT_EQ(found.scalar_type(), type);
  EXPECT_TRUE(found.allclose(expected, tolerance, tolerance));
  const at::Tensor gradient = torch::randn_like(found);
  found.backward(gradient);
  expected.backward(gradient);
  const double large = same.grad().abs().max().item<double>();
  EXPECT_LE((input.grad() - same.grad()).abs().max().item<double>(), tolerance * large);
  EXPECT_TRUE(
      bias.grad().allclose(gradient.sum(at::IntArrayRef({0, 1})), tolerance, 10 * tolerance));
}

TEST(Int8Product, IsTheOneWithTheUnpackedWeight) {
  expect_products(7, 5, at::kFloat, 1e-5);
  expect_products(48, 128, at::kFloat, 1e-5);
  expect_products(48, 128, at::kBFloat16, 2e-2);
}

TEST(Int8Product, OfSeveralSlicesIsTheSame) {
  expect_products(2100, 1024, at::kFloat, 1e-4);
  expect_products(2100, 1024, at::kBFloat16, 5e-2);
}

TEST(Int8Product, NeedsNoBiasAndNoGradient) {
  torch::manual_seed(3);
  const at::Tensor packed = pack_int8(torch::randn({4, 6}));
  const at::Tensor input = torch::randn({3, 6});
  const at::Tensor found = int8_linear(input, packed, {});
  EXPECT_FALSE(found.requires_grad());
  EXPECT_TRUE(found.allclose(input.mm(unpacked(packed, 6).t())));
}

}  // namespace
}  // namespace penstock::model

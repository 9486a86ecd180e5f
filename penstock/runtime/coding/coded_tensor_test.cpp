#include "penstock/runtime/coding/coded_tensor.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "penstock/runtime/coding/subspace.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/orthonormal_basis.h"

namespace penstock::runtime {
namespace {

using plan::parse_boundary;

TensorLayout layout_of(const at::Tensor& tensor) {
  return {.sizes = tensor.sizes().vec(), .type = tensor.scalar_type()};
}

const char* const kNames[] = {"float32", "bfloat16", "float16", "int8", "subspace:3"};

TEST(CodedTensor, TravelsAsItsLayoutSaysAndComesBackInItsOwn) {
  const at::Tensor tokens = at::randn({2, 5, 70});
  for (const char* name : kNames) {
    for (const at::Tensor& tensor :
         {tokens, tokens.transpose(0, 1), tokens.to(at::kBFloat16), tokens.to(at::kHalf),
          tokens.to(at::kLong), at::randn({3}), at::empty({0, 70})}) {
      const plan::BoundaryCoding coding = parse_boundary(name);
      const at::Tensor coded = encode(tensor, coding, {});
      EXPECT_EQ(layout_of(coded), coded_layout(layout_of(tensor), coding)) << name;
      const at::Tensor back = decode(coded, layout_of(tensor), coding);
      EXPECT_EQ(layout_of(back), layout_of(tensor)) << name;
    }
  }
}

TEST(CodedTensor, OnlyFloatingPointNumbersAreCoded) {
  const at::Tensor tokens = at::arange(6);
  for (const char* name : kNames)
    EXPECT_TRUE(encode(tokens, parse_boundary(name), 1).is_same(tokens)) << name;
  const at::Tensor narrow = at::randn({4, 8}).to(at::kBFloat16);
  EXPECT_TRUE(encode(narrow, parse_boundary("float16"), {}).is_same(narrow));
}

TEST(CodedTensor, ErrorsAreThoseOfEachCoding) {
  const at::Tensor tensor = at::randn({16, 64});
  const auto error = [&](const char* name) {
    const plan::BoundaryCoding coding = parse_boundary(name);
    const at::Tensor back = decode(encode(tensor, coding, {}), layout_of(tensor), coding);
    return ((back - tensor).abs() / tensor.abs().amax()).max().item<double>();
  };
  EXPECT_EQ(error("float32"), 0);
  EXPECT_LT(error("bfloat16"), 0x1p-8);
  EXPECT_LT(error("float16"), 0x1p-11);
  EXPECT_LT(error("int8"), 0.5 / 127 * 1.01);
  EXPECT_GT(error("int8"), 0);
}

TEST(CodedTensor, ABasisThatWouldTakeMinutesIsRefusedAtOnce) {
  try {
    encode(at::zeros({1, 16'384}), parse_boundary("subspace:2048"), {});
    FAIL() << "the basis was made";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("of tokens of width 16384"));
    EXPECT_THAT(error.what(), ::testing::HasSubstr("a rank of at most 1024"));
  }
  EXPECT_THROW(prepare_subspace(16'384, 1025), ConfigError);
}

TEST(CodedTensor, ASubspaceKeepsWhatLiesInItAndDropsTheRest) {
  std::vector<float> numbers = orthonormal_basis(32, 3);
  const at::Tensor basis = at::from_blob(numbers.data(), {32, 3}, at::kFloat);
  const plan::BoundaryCoding coding = parse_boundary("subspace:3");
  const at::Tensor inside = at::matmul(at::randn({4, 6, 3}), basis.t());
  const at::Tensor kept = decode(encode(inside, coding, {}), layout_of(inside), coding);
  EXPECT_TRUE(at::allclose(kept, inside, 1e-5, 1e-6));
  const at::Tensor any = at::randn({4, 6, 32});
  const at::Tensor part = decode(encode(any, coding, {}), layout_of(any), coding);
  EXPECT_TRUE(at::allclose(at::matmul(any - part, basis), at::zeros({4, 6, 3}), 1e-5, 1e-5));
  EXPECT_LT(part.norm().item<double>(), 0.6 * any.norm().item<double>());
}

}  // namespace
}  // namespace penstock::runtime

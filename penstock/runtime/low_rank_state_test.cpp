#include "penstock/runtime/low_rank_state.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <vector>

#include "penstock/plan/low_rank.h"
#include "penstock/runtime/fabric/fabric.h"
#include "penstock/runtime/fabric/weight_shares.h"
#include "penstock/runtime/low_rank.h"

namespace penstock::runtime {
namespace {

/// How far a^T a is from the identity.
double from_orthonormal(const at::Tensor& a) {
  return (at::matmul(a.t(), a) - at::eye(a.size(1))).abs().max().item<double>();
}

TEST(LowRank, ColumnsBecomeOrthonormalAndKeepWhatTheySpan) {
  at::Tensor columns = at::randn({50, 4});
  columns.select(1, 1).mul_(1e-6);  // however short
  const at::Tensor before = columns.clone();
  EXPECT_TRUE(orthogonalize(columns).empty());
  EXPECT_LT(from_orthonormal(columns), 1e-6);
  const at::Tensor left = before - at::matmul(columns, at::matmul(columns.t(), before));
  EXPECT_LT(left.abs().max().item<double>(), 1e-5);
}

TEST(LowRank, AColumnThatDependsOnOthersAddsNothingAndIsDrawnAnew) {
  at::Tensor columns = at::randn({50, 3});
  columns.select(1, 2).copy_(columns.select(1, 0) - 2 * columns.select(1, 1));
  at::Tensor drawn = columns.clone();
  EXPECT_EQ(orthogonalize(columns), std::vector<size_t>{2});
  EXPECT_EQ(columns.select(1, 2).abs().max().item<double>(), 0);
  orthogonalize(drawn, 7);
  EXPECT_LT(from_orthonormal(drawn), 1e-6);
  EXPECT_TRUE(drawn.narrow(1, 0, 2).equal(columns.narrow(1, 0, 2)));
  EXPECT_TRUE(random_columns(9, 3, 5).equal(random_columns(9, 3, 5)));
  EXPECT_FALSE(random_columns(9, 3, 5).equal(random_columns(9, 3, 6)));
  at::Tensor diverged = at::full({5, 2}, NAN);
  orthogonalize(diverged, 1);
  EXPECT_TRUE(at::isnan(diverged).all().item<bool>());
}

const std::vector<LowRankWeight> kWeights{{.shape = {20, 3, 5}, .seed = 1},
                                          {.shape = {20}, .seed = 2},
                                          {.shape = {20, 15}, .seed = 3, .is_copy = true},
                                          {.shape = {6, 30}, .seed = 4, .is_shared = true},
                                          {.shape = {3, 2}, .seed = 5}};

TEST(LowRank, WhatIsSummedHasTheNumbersOfTheFormula) {
  const StageWeights sums = low_rank_sums(kWeights, 2);
  EXPECT_EQ(sums.bucket_ends, (std::vector<size_t>{5, 10}));
  int64_t numbers = 0;
  for (const int64_t count : numbers_of(sums.shapes)) numbers += count;
  EXPECT_EQ(numbers, 2 * (20 + 15) + 20 + 6 * 30 + 3 * 2);
  EXPECT_EQ(plan::summed_numbers(plan::matrix_sizes(kWeights[0].shape), 2), 2 * (20 + 15));
}

/// A step of replicas in this thread; the sum that all of them make.
at::Tensor step_of(std::vector<LowRankState>& replicas, const at::Tensor& gradient, int64_t step) {
  const auto sum = [](const std::vector<model::Tensors>& parts) {
    model::Tensors sums = parts.front();
    for (size_t k = 1; k < parts.size(); ++k) sums[0] = sums[0] + parts[k][0];
    return sums;
  };
  std::vector<model::Tensors> parts;
  for (LowRankState& replica : replicas)
    parts.push_back(replica.begin({gradient.clone(), {}, {}, {}, {}}));
  const model::Tensors first = sum(parts);
  parts.clear();
  for (LowRankState& replica : replicas) parts.push_back(replica.project(first));
  const model::Tensors second = sum(parts);
  const at::Tensor result = replicas[0].finish(first, second, step)[0];
  EXPECT_TRUE(replicas[1].finish(first, second, step)[0].equal(result));
  return result;
}

TEST(LowRank, ErrorsBringAllOfAGradientInTime) {
  std::vector<LowRankState> replicas;
  for (int k = 0; k < 2; ++k) replicas.emplace_back(kWeights, 2, FloatType::Float32);
  const at::Tensor gradient = at::randn({20, 3, 5});
  at::Tensor sum = at::zeros_like(gradient);
  for (int64_t step = 0; step < 10; ++step) {
    sum += step_of(replicas, gradient, step);
    const at::Tensor left = replicas[0].errors()[0] + replicas[1].errors()[0];
    const at::Tensor due = 2 * (static_cast<double>(step) + 1) * gradient;
    EXPECT_LT((sum + left - due).abs().max().item<double>(), 1e-4);
  }
  EXPECT_EQ(replicas[0].factors()[1].numel(), 0);
}

}  // namespace
}  // namespace penstock::runtime

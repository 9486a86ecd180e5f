// Results that come shard by shard.
#include "penstock/runtime/fabric/mesh/bucket_results.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <chrono>

namespace penstock::runtime {
namespace {

TEST(BucketResults, WhatNoShardBringsIsZero) {
  const std::vector<Shard> shards{{.bucket = 0, .owner = 0, .ranges = {{0, 0, 3}}},
                                  {.bucket = 0, .owner = 1, .ranges = {{0, 3, 5}, {1, 0, 2}}}};
  BucketResults results({{8}, {2}}, {2}, 1, shards, FloatType::Float32);
  ASSERT_EQ(results.begin(0, 0, model::Tensors(2)), 0U);
  // Memory that is used again is not zero.
  at::full({8}, 7.F);
  results.put(0, 0, {at::full({3}, 5.F)});
  results.put(0, 1, {at::Tensor(), at::Tensor()});
  BucketSum sum;
  Wait wait = wait_for(std::chrono::seconds(1));
  ASSERT_EQ(results.finish(0, 0, sum, wait), WaitResult::Ready);
  EXPECT_TRUE(at::equal(sum.sums[0], at::cat({at::full({3}, 5.F), at::zeros({5})})));
  EXPECT_FALSE(sum.sums[1].defined());
  EXPECT_EQ(results.begin(0, 0, model::Tensors(2)), 1U);
}

}  // namespace
}  // namespace penstock::runtime

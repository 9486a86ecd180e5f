// How gradients are cut into buckets and shards.
#include "penstock/runtime/fabric/gradient_shards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <numeric>

namespace penstock::runtime {
namespace {

using ::testing::ElementsAre;

int64_t size_of(const Shard& shard) {
  int64_t size = 0;
  for (const ShardRange& range : shard.ranges) size += range.length;
  return size;
}

TEST(GradientShardsTest, SmallLayersShareABucket) {
  EXPECT_THAT(make_buckets({}, {}), ElementsAre(0));
  EXPECT_THAT(make_buckets({10, 10, 10}, {1, 3}), ElementsAre(3));
  EXPECT_THAT(make_buckets({10, kBucketNumbers, 10, 20}, {1, 2, 4}), ElementsAre(2, 4));
  EXPECT_THAT(make_buckets({kBucketNumbers, 5, kBucketNumbers}, {2, 2, 3}), ElementsAre(2, 3));
}

TEST(GradientShardsTest, LargeBucketsAreSharedOutExactly) {
  const int64_t numbers = 9 * kShardNumbers;
  const std::vector<Shard> shards = make_shards({numbers}, {1}, {0.1, 0.1, 0.1, 0.1, 0.3, 0.3});
  std::map<size_t, int64_t> load;
  for (const Shard& shard : shards) {
    load[shard.owner] += size_of(shard);
    EXPECT_LE(size_of(shard), kShardNumbers);
  }
  for (size_t owner = 0; owner < 6; ++owner)
    EXPECT_NEAR(static_cast<double>(load[owner]) / static_cast<double>(numbers),
                owner < 4 ? 0.1 : 0.3, 1e-6);
}

TEST(GradientShardsTest, SmallerShardsHaveTheSameOwners) {
  const int64_t numbers = 9 * kShardNumbers + 7;
  const std::vector<double> shares{0.1, 0.3, 0.6};
  const auto load_of = [&](int64_t most_numbers) {
    std::vector<int64_t> load(shares.size(), 0);
    for (const Shard& shard : make_shards({numbers}, {1}, shares, most_numbers)) {
      EXPECT_LE(size_of(shard), most_numbers);
      load[shard.owner] += size_of(shard);
    }
    return load;
  };
  EXPECT_EQ(load_of(kServerShardNumbers), load_of(kShardNumbers));
}

TEST(GradientShardsTest, OwnersHaveTheirShareAtEveryPlace) {
  const std::vector<double> shares{0.1, 0.1, 0.4, 0.4};
  const int64_t numbers = 200 * kShardNumbers;
  std::vector<int64_t> load(shares.size(), 0);
  int64_t total = 0;
  for (const Shard& shard : make_shards({numbers}, {1}, shares)) {
    load[shard.owner] += size_of(shard);
    total += size_of(shard);
    for (size_t o = 0; o < shares.size(); ++o) {
      EXPECT_NEAR(static_cast<double>(load[o]), shares[o] * static_cast<double>(total),
                  2.0 * kShardNumbers);
    }
  }
  EXPECT_EQ(total, numbers);
}

TEST(GradientShardsTest, SmallBucketsGoToWhoHasLeast) {
  const std::vector<Shard> shards =
      make_shards({100, 100, 100, 100}, {1, 2, 3, 4}, {0, 0.5, 0.25, 0.25});
  ASSERT_EQ(shards.size(), 4U);
  std::map<size_t, int> count;
  for (const Shard& shard : shards) ++count[shard.owner];
  EXPECT_EQ(count[0], 0);
  EXPECT_EQ(count[1], 2);
  EXPECT_EQ(count[2], 1);
  EXPECT_EQ(count[3], 1);
}

RC_GTEST_PROP(GradientShardsTest, EveryNumberIsInOneShard, ()) {
  std::vector<int64_t> numbers;
  std::vector<size_t> layer_ends;
  const auto layers = *rc::gen::inRange<size_t>(0, 8);
  for (size_t l = 0; l < layers; ++l) {
    const auto weights = *rc::gen::inRange<size_t>(0, 4);
    for (size_t w = 0; w < weights; ++w)
      numbers.push_back(*rc::gen::element<int64_t>(0, 1, 7, 1000, 5000, 70'000, 3'000'000));
    layer_ends.push_back(numbers.size());
  }
  const auto owners = *rc::gen::inRange<size_t>(1, 7);
  std::vector<double> shares(owners, 0);
  for (double& share : shares) share = *rc::gen::inRange(0, 4);
  if (std::accumulate(shares.begin(), shares.end(), 0.0) == 0) shares.back() = 1;

  const std::vector<size_t> ends = make_buckets(numbers, layer_ends);
  RC_ASSERT(ends.back() == numbers.size());
  std::vector<std::map<int64_t, int64_t>> found(numbers.size());  // per weight: begin, length
  size_t last_bucket = 0;
  for (const Shard& shard : make_shards(numbers, ends, shares)) {
    RC_ASSERT(shard.bucket >= last_bucket);
    last_bucket = shard.bucket;
    RC_ASSERT(shares[shard.owner] > 0);
    RC_ASSERT(size_of(shard) > 0 && size_of(shard) <= kShardNumbers);
    for (const ShardRange& range : shard.ranges) {
      RC_ASSERT(range.weight < ends[shard.bucket]);
      RC_ASSERT(range.weight >= (shard.bucket == 0 ? 0 : ends[shard.bucket - 1]));
      RC_ASSERT(range.length > 0 && found[range.weight].emplace(range.begin, range.length).second);
    }
  }
  for (size_t w = 0; w < numbers.size(); ++w) {
    int64_t next = 0;
    for (const auto& [begin, length] : found[w]) {
      RC_ASSERT(begin == next);
      next += length;
    }
    RC_ASSERT(next == numbers[w]);
  }
}

}  // namespace
}  // namespace penstock::runtime

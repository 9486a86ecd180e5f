// The gradients of a mini-batch: one order of summation for any order of arrival, and no more sets
// than that order needs.
#include "penstock/runtime/gradient_buffer.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>

#include "penstock/schedule/gradient_sets.h"
#include "penstock/util/error.h"

namespace penstock::runtime::testing {
namespace {

TEST(GradientBufferTest, SumsAndLeavesSharedTensorsAlone) {
  GradientBuffer buffer(2, {.accumulate = 3, .micro_batches = 4});
  const at::Tensor shared = at::ones({3});
  buffer.add(MicroBatchId{0}, {shared, at::Tensor()});
  buffer.add(MicroBatchId{1}, {at::ones({3}), at::Tensor()});
  buffer.add(MicroBatchId{2}, {at::ones({3}), at::Tensor()});
  Partials partials = buffer.take(MiniBatchId{0});
  ASSERT_EQ(partials.size(), 1u);
  EXPECT_EQ(partials[0].sums[0].sum().item<float>(), 9.0f);
  EXPECT_FALSE(partials[0].sums[1].defined());
  EXPECT_EQ(shared.sum().item<float>(), 3.0f);
  buffer.add(MicroBatchId{3}, {shared, shared});
  partials = buffer.take_exclusive(MiniBatchId{1});
  partials[0].sums[0].add_(1);
  EXPECT_EQ(shared.sum().item<float>(), 3.0f);
  EXPECT_TRUE(buffer.take(MiniBatchId{1}).empty());
  EXPECT_FALSE(sum_of({}, 2)[0].defined());
}

TEST(GradientBufferTest, TheGradientOfALinearLayerIsNotCopied) {
  const at::Tensor weight = at::ones({5, 3}).requires_grad_(true);
  const at::Tensor loss = at::linear(at::ones({2, 3}), weight).sum();
  model::Tensors gradients = torch::autograd::grad({loss}, {weight});
  const void* memory = gradients[0].data_ptr();
  GradientBuffer buffer(1, {});
  buffer.add(MicroBatchId{0}, std::move(gradients));
  EXPECT_EQ(buffer.take_exclusive(MiniBatchId{0})[0].sums[0].data_ptr(), memory);
}

TEST(GradientBufferTest, TheOrderOfArrivalDoesNotMatter) {
  // 1e8 + 1 - 1e8 is 0 or 1, depending on the order.
  const std::vector<float> values = {1e8f, 1.0f, -1e8f, 3.0f, 1e-3f, 1.0f};
  const auto sum = [&](const std::vector<int64_t>& order, int64_t groups) {
    GradientBuffer buffer(1, {.groups = groups, .accumulate = 6});
    for (const int64_t b : order)
      buffer.add(MicroBatchId{6 + b}, {at::full({1}, values[static_cast<size_t>(b)])});
    return sum_of(buffer.take(MiniBatchId{1}), 1)[0].item<float>();
  };
  for (const int64_t groups : {1, 2, 4, 100}) {
    SCOPED_TRACE(groups);
    const float expected = sum({0, 1, 2, 3, 4, 5}, groups);
    EXPECT_EQ(sum({5, 4, 3, 2, 1, 0}, groups), expected);
    EXPECT_EQ(sum({2, 0, 5, 1, 4, 3}, groups), expected);
  }
  EXPECT_NE(sum({0, 1, 2, 3, 4, 5}, 1), sum({0, 1, 2, 3, 4, 5}, 2));
}

TEST(GradientBufferTest, WhatIsMadeIsAddedInPlaceWhereItIsItsTurn) {
  for (const int64_t groups : {1, 3}) {
    SCOPED_TRACE(groups);
    GradientBuffer buffer(3, {.groups = groups, .accumulate = 3});
    buffer.add(MicroBatchId{0}, {at::ones({4}), at::ones({2}), at::Tensor()});
    model::Tensors list = {at::Tensor(), at::ones({4}), at::ones({2}), at::Tensor()};
    buffer.add_made(MicroBatchId{1}, {0, 2}, list, 1);
    EXPECT_FALSE(list[1].defined());
    EXPECT_TRUE(list[2].defined());
    buffer.add(MicroBatchId{1}, {list[1], list[2], list[3]});
    EXPECT_EQ(buffer.num_sets(), 1);
    buffer.add(MicroBatchId{2}, {at::Tensor(), at::Tensor(), at::Tensor()});
    const Partials sums = buffer.take(MiniBatchId{0});
    EXPECT_TRUE(sums[0].sums[0].equal(at::full({4}, 2.0f)));
    EXPECT_TRUE(sums[0].sums[1].equal(at::full({2}, 2.0f)));
    EXPECT_FALSE(sums[0].sums[2].defined());
  }
}

TEST(GradientBufferTest, WhatComesEarlyWaitsThoughItIsMade) {
  GradientBuffer buffer(1, {.accumulate = 2});
  model::Tensors list = {at::ones({4})};
  buffer.add_made(MicroBatchId{1}, {0}, list);
  EXPECT_TRUE(list[0].defined());
  buffer.add(MicroBatchId{1}, std::move(list));
  buffer.add(MicroBatchId{0}, {at::ones({4})});
  EXPECT_TRUE(buffer.take(MiniBatchId{0})[0].sums[0].equal(at::full({4}, 2.0f)));
}

/// The largest number of sets held while the micro-batches of one replica come in order, mini-batch
/// after mini-batch.
int64_t most_sets(const Grouping& grouping) {
  GradientBuffer buffer(1, grouping);
  int64_t most = 0;
  for (int64_t b = 0; b < grouping.micro_batches; ++b) {
    if (b % grouping.replicas == grouping.replica) buffer.add(MicroBatchId{b}, {at::ones({1})});
    most = std::max(most, buffer.num_sets());
    if ((b + 1) % grouping.accumulate == 0 || b + 1 == grouping.micro_batches)
      buffer.take(MiniBatchId{b / grouping.accumulate});
  }
  EXPECT_EQ(buffer.num_sets(), 0);
  return most;
}

TEST(GradientBufferTest, AStageWithOneReplicaKeepsOneSetWhereGroupsHaveOneMicroBatch) {
  EXPECT_EQ(most_sets({.groups = 15, .accumulate = 15, .micro_batches = 15 * 3}), 1);
  EXPECT_EQ(most_sets({.groups = 15, .accumulate = 15, .micro_batches = 15 * 3 + 4}), 1);
  EXPECT_EQ(most_sets({.groups = 12, .accumulate = 4, .micro_batches = 26}), 1);
  EXPECT_EQ(most_sets({.groups = 1, .accumulate = 7, .micro_batches = 20}), 1);
}

TEST(GradientBufferTest, OtherwiseThereIsOneSetPerGroup) {
  EXPECT_EQ(most_sets({.groups = 5, .accumulate = 10, .micro_batches = 30}), 5);
  EXPECT_EQ(
      most_sets({.groups = 6, .accumulate = 6, .micro_batches = 18, .replica = 1, .replicas = 2}),
      3);
  EXPECT_EQ(
      most_sets({.groups = 6, .accumulate = 2, .micro_batches = 18, .replica = 0, .replicas = 2}),
      1);
}

// The number of sets that the planner and the simulator assume.
TEST(GradientBufferTest, KeepsNoMoreSetsThanPlanned) {
  for (const int replicas : {1, 2, 3, 5}) {
    for (const int64_t own : {1, 2, 4}) {
      for (int64_t accumulate = 1; accumulate <= 24; ++accumulate) {
        const int64_t groups = own * replicas;
        int64_t most = 1;
        for (int replica = 0; replica < replicas; ++replica) {
          most = std::max(most, most_sets({.groups = groups,
                                           .accumulate = accumulate,
                                           .micro_batches = 3 * accumulate,
                                           .replica = replica,
                                           .replicas = replicas}));
        }
        const int64_t planned = schedule::gradient_sets(groups, replicas, accumulate);
        EXPECT_LE(most, planned) << groups << ' ' << replicas << ' ' << accumulate;
        if (accumulate >= 2 * groups) {
          EXPECT_EQ(most, planned) << groups << ' ' << replicas << ' ' << accumulate;
        }
      }
    }
  }
}

RC_GTEST_PROP(GradientBufferProperty, FoldsGroupsFromTheLeftOverAllReplicas, ()) {
  const int replicas = *rc::gen::inRange(1, 5);
  Grouping grouping{.groups = replicas * *rc::gen::inRange<int64_t>(1, 6),
                    .accumulate = *rc::gen::inRange<int64_t>(1, 30)};
  if (*rc::gen::inRange(0, 8) == 0) grouping.groups = INT64_MAX / replicas * replicas;
  grouping.micro_batches = *rc::gen::inRange<int64_t>(1, 70);
  grouping.replicas = replicas;
  std::mt19937 random(*rc::gen::arbitrary<uint32_t>());
  std::vector<float> values;
  for (int64_t b = 0; b < grouping.micro_batches; ++b) {
    const float number = static_cast<float>(random() % 1000) / 7 - 70;
    values.push_back(random() % 3 == 0 ? number * 1e6f : number);
  }
  for (int64_t t = 0; t * grouping.accumulate < grouping.micro_batches; ++t) {
    std::map<int64_t, float> groups;
    std::vector<int64_t> order;
    for (int64_t b = t * grouping.accumulate;
         b < std::min((t + 1) * grouping.accumulate, grouping.micro_batches); ++b) {
      const auto [entry, inserted] =
          groups.try_emplace(b % grouping.groups, values[static_cast<size_t>(b)]);
      if (!inserted) entry->second += values[static_cast<size_t>(b)];
      order.push_back(b);
    }
    std::optional<float> expected;
    for (const auto& [group, value] : groups) expected = expected ? *expected + value : value;

    if (random() % 2 == 0) std::shuffle(order.begin(), order.end(), random);
    Partials partials;
    for (grouping.replica = 0; grouping.replica < replicas; ++grouping.replica) {
      GradientBuffer buffer(1, grouping);
      for (const int64_t b : order) {
        if (b % replicas != grouping.replica) continue;
        model::Tensors gradients = {at::full({1}, values[static_cast<size_t>(b)])};
        if (random() % 2 == 0) buffer.add_made(MicroBatchId{b}, {0}, gradients);
        buffer.add(MicroBatchId{b}, std::move(gradients));
      }
      for (GroupGradients& partial : buffer.take(MiniBatchId{t}))
        partials.push_back(std::move(partial));
    }
    std::sort(partials.begin(), partials.end(),
              [](const auto& a, const auto& b) { return a.group < b.group; });
    RC_ASSERT(sum_of(std::move(partials), 1)[0].item<float>() == expected.value());
  }
}

TEST(GradientBufferTest, AMissingMicroBatchIsAnInternalError) {
  GradientBuffer buffer(1, {.accumulate = 3});
  buffer.add(MicroBatchId{1}, {at::ones({1})});
  EXPECT_THROW(buffer.take(MiniBatchId{0}), InternalError);
  GradientBuffer last(1, {.accumulate = 3});
  last.add(MicroBatchId{0}, {at::ones({1})});
  last.add(MicroBatchId{1}, {at::ones({1})});
  EXPECT_THROW(last.take(MiniBatchId{0}), InternalError);
  GradientBuffer twice(1, {.groups = 2, .accumulate = 3});
  twice.add(MicroBatchId{0}, {at::ones({1})});
  EXPECT_THROW(twice.add(MicroBatchId{0}, {at::ones({1})}), InternalError);
}

}  // namespace
}  // namespace penstock::runtime::testing

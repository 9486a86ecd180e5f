#include "penstock/train/data/prefetch.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <numeric>

#include "penstock/util/error.h"

namespace penstock::train {
namespace {

/// Micro-batch b is the number b; counts who asks for what, and may be slow or fail.
class Numbers : public runtime::BatchSource {
 public:
  explicit Numbers(int64_t count) : asked_(static_cast<size_t>(count)) {}
  model::Tensors inputs(MicroBatchId b) const override {
    const int64_t now = ++working_;
    int64_t most = most_working_.load();
    while (now > most && !most_working_.compare_exchange_weak(most, now)) {
    }
    if (takes_.count() > 0) std::this_thread::sleep_for(takes_);
    ++asked_[static_cast<size_t>(b.value)];
    ++made_;
    --working_;
    if (b.value == fails_at_) throw ParseError("image.png", 0, "damaged");
    return {at::full({1}, static_cast<double>(b.value))};
  }
  at::Tensor targets(MicroBatchId) const override { return {}; }
  int64_t samples(MicroBatchId) const override { return 1; }
  int64_t mini_batch_samples(MiniBatchId) const override { return 1; }
  uint64_t seed(MicroBatchId) const override { return 1; }

  std::chrono::milliseconds takes_{0};
  int64_t fails_at_ = -1;
  mutable std::vector<std::atomic<int>> asked_;
  mutable std::atomic<int64_t> made_{0};
  mutable std::atomic<int64_t> working_{0};
  mutable std::atomic<int64_t> most_working_{0};
};

std::vector<MicroBatchId> first(int64_t count, int64_t step = 1) {
  std::vector<MicroBatchId> order;
  for (int64_t b = 0; b < count; b += step) order.push_back(MicroBatchId{b});
  return order;
}

double number(const model::Tensors& inputs) { return inputs.at(0).item<double>(); }

/// Waits until `count` are made, and a little longer for one that is too many.
void wait_until_made(const Numbers& numbers, int64_t count) {
  for (int i = 0; i < 2000 && numbers.made_ < count; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

TEST(Prefetch, GivesEveryMicroBatchOnceAndInAnyOrder) {
  for (const int threads : {1, 3}) {
    const Numbers numbers(100);
    const PrefetchedBatches ahead(numbers, {.order = first(100), .threads = threads, .ahead = 4});
    for (int64_t b = 0; b < 100; b += 2) {
      EXPECT_EQ(number(ahead.inputs(MicroBatchId{b + 1})), static_cast<double>(b + 1));
      EXPECT_EQ(number(ahead.inputs(MicroBatchId{b})), static_cast<double>(b));
    }
    for (const auto& asked : numbers.asked_) EXPECT_EQ(asked, 1);
    EXPECT_EQ(number(ahead.inputs(MicroBatchId{7})), 7.0) << "again";
    EXPECT_EQ(numbers.asked_[7], 2);
  }
}

TEST(Prefetch, StaysWithinItsBoundAndLeavesOutWhatIsNotForIt) {
  Numbers numbers(20);
  numbers.takes_ = std::chrono::milliseconds(1);
  const PrefetchedBatches ahead(numbers, {.order = first(20, 2), .threads = 2, .ahead = 3});
  wait_until_made(numbers, 3);
  EXPECT_EQ(numbers.made_, 3) << "before the first is asked for";
  EXPECT_EQ(number(ahead.inputs(MicroBatchId{0})), 0.0);
  wait_until_made(numbers, 4);
  EXPECT_EQ(numbers.made_, 4);
  EXPECT_EQ(numbers.asked_[1], 0) << "another rank's";
  EXPECT_EQ(number(ahead.inputs(MicroBatchId{1})), 1.0) << "asked for all the same";
  EXPECT_LE(numbers.most_working_, 3);
}

TEST(Prefetch, SeveralWorkersAsk) {
  const Numbers numbers(200);
  const PrefetchedBatches ahead(numbers, {.order = first(200), .threads = 2, .ahead = 4});
  std::atomic<int64_t> sum{0};
  {
    std::vector<std::jthread> workers;
    for (int64_t r = 0; r < 4; ++r) {
      workers.emplace_back([&ahead, &sum, r] {
        for (int64_t b = r; b < 200; b += 4)
          sum += static_cast<int64_t>(number(ahead.inputs(MicroBatchId{b})));
      });
    }
  }
  EXPECT_EQ(sum, 199 * 100);
}

TEST(Prefetch, AFailureIsThatOfItsMicroBatch) {
  Numbers numbers(10);
  numbers.fails_at_ = 2;
  const PrefetchedBatches ahead(numbers, {.order = first(10), .threads = 1, .ahead = 4});
  EXPECT_EQ(number(ahead.inputs(MicroBatchId{0})), 0.0);
  EXPECT_EQ(number(ahead.inputs(MicroBatchId{1})), 1.0);
  EXPECT_THROW(ahead.inputs(MicroBatchId{2}), ParseError);
  EXPECT_EQ(number(ahead.inputs(MicroBatchId{3})), 3.0);
}

TEST(Prefetch, WorkGoesOnWhileTheFirstStageComputes) {
  Numbers numbers(12);
  numbers.takes_ = std::chrono::milliseconds(8);
  const PrefetchedBatches ahead(numbers, {.order = first(12), .threads = 1, .ahead = 4});
  wait_until_made(numbers, 4);
  const auto start = std::chrono::steady_clock::now();
  for (int64_t b = 0; b < 4; ++b) ahead.inputs(MicroBatchId{b});
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(8))
      << "four that would take 32 ms";
}

}  // namespace
}  // namespace penstock::train

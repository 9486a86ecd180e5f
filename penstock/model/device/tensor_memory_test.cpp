#include "penstock/model/device/tensor_memory.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <thread>

namespace penstock::model {
namespace {

constexpr int64_t kMiB = 1 << 20;
constexpr int64_t kSlack = kMiB / 4;  // what allocators add

TEST(TensorMemory, FollowsTensorsOnAllThreads) {
  count_tensor_memory();
  count_tensor_memory();
  const int64_t before = tensor_memory().now;
  at::Tensor kept = at::empty({3 * kMiB}, at::kByte);
  EXPECT_NEAR(tensor_memory().now - before, 3 * kMiB, kSlack);
  reset_tensor_memory_peak();
  EXPECT_EQ(tensor_memory().peak, tensor_memory().now);
  std::thread([&] {
    at::Tensor passing = at::empty({8 * kMiB}, at::kByte);
    kept = at::Tensor();
  }).join();
  EXPECT_NEAR(tensor_memory().now - before, 0, kSlack);
  EXPECT_NEAR(tensor_memory().peak - before, 11 * kMiB, kSlack);
}

TEST(TensorMemory, OfAViewIsThatOfItsBaseAlone) {
  count_tensor_memory();
  const at::Tensor base = at::zeros({2, kMiB}, at::kByte);
  const int64_t before = tensor_memory().now;
  const at::Tensor view = base.slice(1, 0, 10);
  EXPECT_EQ(tensor_memory().now, before);
  EXPECT_EQ(base.sum().item<int64_t>() + view.sum().item<int64_t>(), 0);
}

}  // namespace
}  // namespace penstock::model

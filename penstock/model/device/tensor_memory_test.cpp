#include "penstock/model/device/tensor_memory.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

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

TEST(TensorMemory, IsOfTheKindThatItsThreadSays) {
  count_tensor_memory();
  reset_tensor_memory_peak();
  const MemoryBytes before = tensor_memory_peak();
  at::Tensor weights;
  {
    const MemoryScope scope(MemoryKind::Weights);
    weights = at::empty({3 * kMiB}, at::kByte);
  }
  const at::Tensor other = at::empty({2 * kMiB}, at::kByte);
  const MemoryBytes peak = tensor_memory_peak();
  EXPECT_NEAR(peak[MemoryKind::Weights] - before[MemoryKind::Weights], 3 * kMiB, kSlack);
  EXPECT_NEAR(peak[MemoryKind::Other] - before[MemoryKind::Other], 2 * kMiB, kSlack);
  EXPECT_EQ(peak.sum(), tensor_memory().peak);
}

TEST(TensorMemory, OfAPassIsWorkingMemoryUntilItEnds) {
  count_tensor_memory();
  const WorkerId worker{11};
  const MemoryOwner owner(worker);
  reset_tensor_memory_peak();
  at::Tensor kept;
  {
    const MemoryPass pass(MemoryKind::Activations);
    kept = at::empty({3 * kMiB}, at::kByte);
    const at::Tensor passing = at::empty({2 * kMiB}, at::kByte);
    EXPECT_NEAR(tensor_memory_peak(worker)[MemoryKind::Working], 5 * kMiB, kSlack);
  }
  // At the peak, what is left was there already.
  EXPECT_NEAR(tensor_memory_peak(worker)[MemoryKind::Activations], 3 * kMiB, kSlack);
  EXPECT_NEAR(tensor_memory_peak(worker)[MemoryKind::Working], 2 * kMiB, kSlack);
  // Another pass frees it.
  {
    const MemoryPass pass(MemoryKind::Gradients);
    const at::Tensor gradient = at::empty({6 * kMiB}, at::kByte);
    kept = at::Tensor();
  }
  const MemoryBytes peak = tensor_memory_peak(worker);
  EXPECT_NEAR(peak[MemoryKind::Activations], 3 * kMiB, kSlack);
  EXPECT_NEAR(peak[MemoryKind::Working], 6 * kMiB, kSlack);
  EXPECT_NEAR(peak.sum(), 9 * kMiB, kSlack);
  reset_tensor_memory_peak();
  EXPECT_NEAR(tensor_memory_peak(worker).sum(), 0, kSlack);
}

TEST(TensorMemory, ChangesItsKindAndItsOwner) {
  count_tensor_memory();
  const WorkerId first{12};
  const WorkerId second{13};
  at::Tensor tensor;
  {
    const MemoryOwner owner(first);
    tensor = at::empty({4 * kMiB}, at::kByte);
  }
  const MemoryOwner owner(second);
  set_memory_kind(tensor.slice(0, 0, 10), MemoryKind::Messages);
  reset_tensor_memory_peak();
  EXPECT_EQ(tensor_memory_peak(first).sum(), 0);
  EXPECT_NEAR(tensor_memory_peak(second)[MemoryKind::Messages], 4 * kMiB, kSlack);
  // Memory that is not libtorch's own has no kind.
  std::vector<float> numbers(4);
  set_memory_kind(at::from_blob(numbers.data(), {4}), MemoryKind::Messages);
  set_memory_kind(at::Tensor(), MemoryKind::Messages);
  set_memory_kind(at::empty({0}), MemoryKind::Messages);
  tensor = at::Tensor();
  reset_tensor_memory_peak();
  EXPECT_EQ(tensor_memory_peak(second).sum(), 0);
}

TEST(TensorMemory, TheProcessIsLookedAtWhereItIsLargest) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's allocator does not say what it holds";
#endif
  count_tensor_memory();
  reset_tensor_memory_peak();
  const int64_t before = tensor_memory().now;
  {
    const MemoryScope scope(MemoryKind::Inputs);
    const at::Tensor written = at::ones({64 * kMiB}, at::kByte);
    EXPECT_EQ(written.numel(), 64 * kMiB);
  }
  const ProcessMemory process = process_memory_peak();
  EXPECT_NEAR(process.tensors[MemoryKind::Inputs], 64 * kMiB, kSlack);
  EXPECT_NEAR(process.tensors.sum() - before, 64 * kMiB, kSlack);
  EXPECT_GT(process.libraries, 0);
  EXPECT_LE(process.named(), process.resident + kMiB);
  EXPECT_GE(process.named(), process.resident - process.resident / 20);
}

}  // namespace
}  // namespace penstock::model

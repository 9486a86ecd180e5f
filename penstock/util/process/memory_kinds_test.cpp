#include "penstock/util/process/memory_kinds.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <set>
#include <string_view>
#include <vector>

#include "penstock/util/process/freed_memory.h"

namespace penstock {
namespace {

constexpr int64_t kMiB = 1 << 20;

/// Written, so that it has pages.
std::unique_ptr<char[]> written(int64_t bytes) {
  auto memory = std::make_unique<char[]>(static_cast<size_t>(bytes));
  std::memset(memory.get(), 1, static_cast<size_t>(bytes));
  return memory;
}

}  // namespace

TEST(MemoryKinds, HaveNamesOfTheirOwn) {
  std::set<std::string_view> names;
  for (size_t k = 0; k < kNumMemoryKinds; ++k) names.insert(to_string(static_cast<MemoryKind>(k)));
  EXPECT_EQ(names.size(), kNumMemoryKinds);
  EXPECT_EQ(to_string(MemoryKind::Weights), "weights");
  EXPECT_EQ(to_string(MemoryKind::Other), "other");
}

TEST(MemoryKinds, AddUp) {
  ProcessMemory process{.libraries = 100, .objects = 20, .slack = 3};
  process.tensors[MemoryKind::Gradients] = 4000;
  process.tensors[MemoryKind::Inputs] = 50'000;
  EXPECT_EQ(process.tensors.sum(), 54'000);
  EXPECT_EQ(process.named(), 54'123);
}

TEST(HeapState, FollowsWhatIsTakenAndGivenBack) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's allocator does not say what it holds";
#endif
  const HeapState before = heap_state();
  EXPECT_GT(before.resident, before.shared);
  auto memory = written(64 * kMiB);
  const HeapState more = heap_state();
  EXPECT_NEAR(more.in_use - before.in_use, 64 * kMiB, kMiB);
  EXPECT_NEAR(more.resident - before.resident, 64 * kMiB, 4 * kMiB);
  memory.reset();
  EXPECT_NEAR(heap_state().in_use - before.in_use, 0, kMiB);
}

TEST(FreedMemory, GoesBackToTheSystem) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's allocator keeps freed memory";
#endif
  give_back_freed_memory();
  const HeapState before = heap_state();
  // Smaller than what glibc maps alone, with something above them that stays.
  std::vector<std::unique_ptr<char[]>> pieces;
  for (int i = 0; i < 512; ++i) pieces.push_back(written(100'000));
  const auto above = written(1000);
  pieces.clear();
  give_back_freed_memory();
  EXPECT_LT(heap_state().resident - before.resident, 8 * kMiB);
}

}  // namespace penstock

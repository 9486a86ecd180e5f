// A program of its own: it replaces operator new, to count.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "penstock/frames/frame_queue.h"
#include "penstock/frames/sources/generated_source.h"
#include "penstock/frames/testing_frames.h"

namespace {

std::atomic<int64_t> allocations{0};

}  // namespace

// Not inlined: GCC would take free() for the wrong partner of new.
[[gnu::noinline]] void* operator new(size_t bytes) {
  ++allocations;
  if (void* const memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace penstock::frames {
namespace {

TEST(FrameMemory, NothingIsAllocatedAfterTheFirstFrames) {
  for (const bool waits : {true, false}) {
    const GeneratedOptions options{.size = {32, 24, kRgb}, .label_every = 3};
    FrameQueue queue(std::make_unique<GeneratedSource>(options), {.waits_when_full = waits});
    Frame frame;
    const auto take = [&](int frames) {
      int taken = 0;
      while (taken < frames && queue.take(frame, soon()) == Next::Ready) ++taken;
      return taken;
    };
    ASSERT_EQ(take(200), 200);
    const int64_t before = allocations;
    ASSERT_EQ(take(200), 200);
    EXPECT_EQ(allocations - before, 0) << "waits " << waits;
  }
}

}  // namespace
}  // namespace penstock::frames

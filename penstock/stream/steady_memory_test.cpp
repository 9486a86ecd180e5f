#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <vector>

#include "penstock/stream/testing_stream.h"
#include "penstock/util/process/freed_memory.h"

namespace penstock::stream {
namespace {

int64_t page_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

// Tensors of more than 128 KiB, which glibc would otherwise map and give back for every frame: some
// 500 faults each. The heap may still grow once when more of them happen to live at the same time,
// so what counts is the median of the looks, not the sum.
TEST(SteadyMemory, AfterTheFirstFramesNoPageComesAnew) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's allocator keeps freed memory from being used again";
#endif
  keep_freed_memory();
  constexpr frames::FrameSize kSize{.width = 80, .height = 60, .channels = frames::kRgb};
  constexpr int64_t kWarm = 100;
  constexpr int64_t kFrames = 1000;
  frames::FrameQueue queue(std::make_unique<frames::GeneratedSource>(frames::GeneratedOptions{
                               .size = kSize, .classes = testing::kClasses, .frames = kFrames}),
                           {.waits_when_full = true});
  const model::Model model = model::make_model(
      {.name = "partime",
       .input_shape = {kSize.channels, kSize.height, kSize.width},
       .classes = frames::outputs_of(frames::Task::Pixels, {.classes = testing::kClasses}),
       .width = 8,
       .depth = 3,
       .kernel = 3,
       .per_pixel = true});
  struct Seen {
    int64_t frames = 0;
    int64_t faults = 0;
  };
  Seen last;
  std::vector<double> faults_per_frame;
  OnlineLoop loop(model, queue,
                  {.task = frames::Task::Pixels,
                   .plan = testing::plan_of(model, 2),
                   .between_looks = std::chrono::milliseconds(20),
                   .on_look = [&](const StreamLook& look) {
                     const Seen seen{look.whole.processed, page_faults()};
                     if (last.frames >= kWarm && seen.frames > last.frames) {
                       faults_per_frame.push_back(static_cast<double>(seen.faults - last.faults) /
                                                  static_cast<double>(seen.frames - last.frames));
                     }
                     last = seen;
                   }});
  EXPECT_EQ(loop.run().numbers.processed, kFrames);
  ASSERT_GE(faults_per_frame.size(), 5) << "too few looks";
  const auto middle = faults_per_frame.begin() + std::ssize(faults_per_frame) / 2;
  std::ranges::nth_element(faults_per_frame, middle);
  EXPECT_LT(*middle, 1) << "in " << faults_per_frame.size() << " looks";
}

}  // namespace
}  // namespace penstock::stream

#include "penstock/profile/processor_text.h"

#include <gtest/gtest.h>

namespace penstock::profile {
namespace {

bool is_processor(const std::string& device, const std::string& source = "measured") {
  Profile profile;
  profile.device = device;
  profile.source = source;
  return is_of_processor(profile);
}

TEST(ProcessorText, IsRecognisedWhateverTheProcessorIsCalled) {
  EXPECT_EQ(processor_text("AMD EPYC", 1), "AMD EPYC, 1 thread");
  EXPECT_EQ(processor_text("Some CPU, 2 GHz", 12), "Some CPU, 2 GHz, 12 threads");
  EXPECT_TRUE(is_processor(processor_text("AMD EPYC", 1)));
  EXPECT_TRUE(is_processor(processor_text("Some CPU, 2 GHz", 12)));
}

TEST(ProcessorText, IsNoneOfAGpuOrOfAnEstimate) {
  EXPECT_FALSE(is_processor("NVIDIA H200"));
  EXPECT_FALSE(is_processor("NVIDIA H200, 139 GiB"));
  EXPECT_FALSE(is_processor("a card, threads"));
  EXPECT_FALSE(is_processor(""));
  EXPECT_FALSE(is_processor(processor_text("AMD EPYC", 1), "analytic"));
}

}  // namespace
}  // namespace penstock::profile

#include "penstock/plan/sync_precision.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/util/error.h"

namespace penstock::plan {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(SyncPrecisionTest, NamesAreReadBack) {
  for (const FloatType precision : kSyncPrecisions)
    EXPECT_EQ(parse_sync_precision(to_string(precision)), precision);
  for (const char* name : {"", "float64", "half", "bf16", "Float16"}) {
    EXPECT_THAT([&] { parse_sync_precision(name); },
                ThrowsMessage<ConfigError>(HasSubstr("float32, bfloat16, float16")));
  }
}

TEST(SyncPrecisionTest, SixteenBitsAreHalfOfTheBytes) {
  EXPECT_EQ(wire_bytes(400, FloatType::Float32), 400);
  EXPECT_EQ(wire_bytes(400, FloatType::BFloat16), 200);
  EXPECT_EQ(wire_bytes(401, FloatType::Float16), 201);
  EXPECT_EQ(wire_bytes(INT64_MAX, FloatType::Float16), INT64_MAX / 2 + 1);
  EXPECT_EQ(gradient_rate(7, FloatType::Float32), 7);
  EXPECT_EQ(gradient_rate(7, FloatType::BFloat16), 14);
  EXPECT_EQ(gradient_rate(INT64_MAX, FloatType::BFloat16), INT64_MAX);
}

TEST(SyncPrecisionTest, ChangesOfWeightsTravelInFloat32) {
  for (const GradientSync sync : kGradientSyncs) {
    EXPECT_NO_THROW(check_sync_precision(sync, FloatType::Float32));
    if (sync == GradientSync::Asynchronous) continue;
    EXPECT_NO_THROW(check_sync_precision(sync, FloatType::Float16));
  }
  EXPECT_THAT([] { check_sync_precision(GradientSync::Asynchronous, FloatType::BFloat16); },
              ThrowsMessage<ConfigError>(HasSubstr("expected the sync precision float32")));
}

}  // namespace
}  // namespace penstock::plan

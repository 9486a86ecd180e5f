#include "penstock/model/mixing.h"

#include <gtest/gtest.h>

#include "penstock/model/zoo.h"

namespace penstock::model {
namespace {

// 16 matrices of 17 GB: nobody makes them to look at samples.
TEST(Mixing, LooksAtNoModelThatWouldTakeTooLong) {
  const Model large = make_model({.name = "mlp", .width = 65536, .depth = 16});
  EXPECT_TRUE(is_too_large_to_compare(large));
  EXPECT_FALSE(mixes_samples(large));
  EXPECT_FALSE(is_too_large_to_compare(make_model({.name = "mlp"})));
}

}  // namespace
}  // namespace penstock::model

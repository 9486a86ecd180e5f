#include "penstock/util/ids.h"

#include <gtest/gtest.h>

#include <sstream>
#include <type_traits>
#include <unordered_set>

namespace penstock {
namespace {

static_assert(!std::is_convertible_v<int, StageId>, "an index is made explicitly");
static_assert(!std::is_convertible_v<StageId, WorkerId>, "one kind of index is not another");
static_assert(!std::is_constructible_v<WorkerId, StageId>);
static_assert(sizeof(StageId) == sizeof(int32_t) && sizeof(MicroBatchId) == sizeof(int64_t));

TEST(Id, ComparesByValue) {
  EXPECT_EQ(StageId{2}, StageId{2});
  EXPECT_LT(StageId{1}, StageId{2});
  EXPECT_EQ(StageId{}, StageId{0});
}

TEST(Id, PrintsItsValue) {
  std::ostringstream out;
  out << StageId{3} << ' ' << WeightVersion{-1};
  EXPECT_EQ(out.str(), "3 -1");
}

TEST(Id, IsHashable) {
  const std::unordered_set<MicroBatchId> set = {MicroBatchId{1}, MicroBatchId{1}, MicroBatchId{2}};
  EXPECT_EQ(set.size(), 2U);
}

}  // namespace
}  // namespace penstock

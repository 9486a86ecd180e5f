#include "penstock/util/text/near_names.h"

#include <gtest/gtest.h>

namespace penstock {
namespace {

using Names = std::vector<std::string>;

TEST(NearNames, TheMostSimilarComesFirst) {
  EXPECT_EQ(near_names("q_prj", {"down", "k_proj", "q_proj"}), (Names{"q_proj", "k_proj", "down"}));
  EXPECT_EQ(near_names("abc", {"ab", "abcd", "xbc", "abc"}), (Names{"abc", "ab", "abcd", "xbc"}));
}

TEST(NearNames, AreSoManyAtMost) {
  EXPECT_EQ(near_names("a", {"b", "c", "a"}, 1), Names{"a"});
  EXPECT_EQ(near_names("a", {}, 3), Names{});
  EXPECT_EQ(near_names("", {"bb", "c"}), (Names{"c", "bb"}));
}

}  // namespace
}  // namespace penstock

#include "penstock/frames/natural_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace penstock::frames {
namespace {

TEST(NaturalOrder, NumbersCompareAsNumbers) {
  std::vector<std::string> names = {"frame10.png",
                                    "frame2.png",
                                    "frame1.png",
                                    "a",
                                    "frame02.png",
                                    "frame.png",
                                    "b2c10",
                                    "b2c9",
                                    "",
                                    "frame2b.png",
                                    "99999999999999999999999",
                                    "99999999999999999999998"};
  std::sort(names.begin(), names.end(), is_naturally_before);
  EXPECT_EQ(names,
            (std::vector<std::string>{"", "99999999999999999999998", "99999999999999999999999", "a",
                                      "b2c9", "b2c10", "frame.png", "frame1.png", "frame02.png",
                                      "frame2.png", "frame2b.png", "frame10.png"}));
}

TEST(NaturalOrder, IsAStrictOrder) {
  const std::vector<std::string> names = {"",  "0",   "00",   "1",    "01", "a0", "a00",
                                          "a", "a1b", "a01b", "\xff", "0a", "00a"};
  for (const std::string& a : names) {
    EXPECT_FALSE(is_naturally_before(a, a));
    for (const std::string& b : names) {
      if (a != b) {
        EXPECT_NE(is_naturally_before(a, b), is_naturally_before(b, a)) << a << b;
      }
      for (const std::string& c : names) {
        if (is_naturally_before(a, b) && is_naturally_before(b, c)) {
          EXPECT_TRUE(is_naturally_before(a, c)) << a << ' ' << b << ' ' << c;
        }
      }
    }
  }
}

}  // namespace
}  // namespace penstock::frames

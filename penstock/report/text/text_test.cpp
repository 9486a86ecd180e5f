#include "penstock/report/text/text.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <limits>

#include "penstock/report/text/table.h"
#include "penstock/util/text/printable.h"

namespace penstock::report {
namespace {

TEST(Text, LayersNameTheFirstTheLastAndTheirNumber) {
  EXPECT_EQ(layers_text({}, 30), "-");
  EXPECT_EQ(layers_text({"fc"}, 30), "fc");
  EXPECT_EQ(layers_text({"conv1_1", "relu", "pool3"}, 40), "conv1_1 .. pool3 (3 layers)");
  EXPECT_EQ(layers_text({"conv1_1", "relu", "pool3"}, 24), "conv1_1 .. pool3 (3)");
  EXPECT_EQ(layers_text({"a", std::string(40, 'b')}, 24), "a .. bbbbbbb..bbbbbb (2)");
}

RC_GTEST_PROP(Text, LayersFitTheirWidth, (const std::string& first, const std::string& last)) {
  const auto most = *rc::gen::inRange<size_t>(20, 80);
  RC_ASSERT(display_width(layers_text({first, "x", last}, most)) <= most);
}

TEST(Text, ConfigsJoinLongRuns) {
  EXPECT_EQ(short_config("15-1", 20), "15-1");
  EXPECT_EQ(short_config("1-1-1", 20), "1-1-1");
  EXPECT_EQ(short_config("2-1-1-1-1-1-3", 20), "2-1x5-3");
  EXPECT_EQ(short_config("1-2-1-2-1-2-1-2-1-2-1-2", 16), "12 stages");
  EXPECT_EQ(short_config("", 16), "-");
}

TEST(Text, NumbersBeyondAllBoundsAreStillText) {
  EXPECT_EQ(duration_text(1e300), "over 9999 h");
  EXPECT_EQ(duration_text(std::nan("")), "0 ns");
  EXPECT_EQ(bytes_text(-1), "0 B");
  EXPECT_EQ(percent_text(0.123), "12 %");
  EXPECT_EQ(percent_text(0.0123), "1.2 %");
  EXPECT_EQ(percent_text(0), "0 %");
  EXPECT_EQ(ratio_text(1, 0), "-");
  EXPECT_EQ(ratio_text(3, 2), "1.50x");
}

TEST(Text, TablesLineUpWideCharacters) {
  Table table({{"layer", Align::Left}, {"time"}});
  table.add({"層", "1"});
  table.add({"a\x1b", "22"});
  EXPECT_EQ(table.text(), "layer  time\n層        1\na?       22\n");
}

}  // namespace
}  // namespace penstock::report

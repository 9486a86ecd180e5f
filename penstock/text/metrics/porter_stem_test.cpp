#include "penstock/text/metrics/porter_stem.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

namespace penstock::text {
namespace {

// tests/data/text/make_meteor.py wrote words and stems, with NLTK 3.10.4.
TEST(PorterStem, IsThatOfNltk) {
  std::ifstream file(PENSTOCK_TEST_DATA "/porter_stems.txt");
  int words = 0;
  for (std::string word, stem; file >> word >> stem; ++words) EXPECT_EQ(porter_stem(word), stem);
  EXPECT_GT(words, 1500);
}

// The examples of Porter 1980, where NLTK has not departed from it.
TEST(PorterStem, FollowsThePaper) {
  EXPECT_EQ(porter_stem("caresses"), "caress");
  EXPECT_EQ(porter_stem("hopping"), "hop");
  EXPECT_EQ(porter_stem("conflated"), "conflat");
  EXPECT_EQ(porter_stem("generalizations"), "gener");
  EXPECT_EQ(porter_stem("oscillators"), "oscil");
}

TEST(PorterStem, TakesAnyBytes) {
  EXPECT_EQ(porter_stem(""), "");
  EXPECT_EQ(porter_stem("\xff"), "\xff");
  EXPECT_EQ(porter_stem("eed"), "eed");
  EXPECT_EQ(porter_stem("ying"), "ying");
  EXPECT_EQ(porter_stem(std::string(5000, 'y')).size(), 5000u);
}

}  // namespace
}  // namespace penstock::text

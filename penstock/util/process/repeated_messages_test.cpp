#include "penstock/util/process/repeated_messages.h"

#include <gtest/gtest.h>

#include <vector>

namespace penstock {
namespace {

using std::chrono::milliseconds;

TEST(RepeatedMessages, TheFirstAreSaidAtOnceTheOthersCountedInALineEveryFewSeconds) {
  RepeatedMessages refusals("connections refused");
  const RepeatedMessages::Time begin{std::chrono::hours(1)};
  std::vector<std::string> said;
  const auto keep = [&](const std::optional<std::string>& line) {
    if (line) said.push_back(*line);
  };
  for (int i = 0; i < 12'000; ++i)  // one every millisecond
    keep(refusals.add("no. " + std::to_string(i), begin + milliseconds(i)));
  keep(refusals.rest());
  keep(refusals.rest());
  EXPECT_EQ(said,
            (std::vector<std::string>{"no. 0", "no. 1", "no. 2", "no. 3", "no. 4",
                                      "5000 more connections refused, the last one: no. 5004",
                                      "5000 more connections refused, the last one: no. 10004",
                                      "1995 more connections refused, the last one: no. 11999"}));
}

TEST(RepeatedMessages, WhatWasCountedIsSaidWhenItIsDue) {
  RepeatedMessages refusals("connections refused");
  const RepeatedMessages::Time begin{std::chrono::hours(1)};
  for (int i = 0; i < RepeatedMessages::kAtOnce; ++i) EXPECT_EQ(refusals.add("a", begin), "a");
  EXPECT_EQ(refusals.add("b", begin), std::nullopt);
  EXPECT_EQ(refusals.due(begin + milliseconds(4999)), std::nullopt);
  EXPECT_EQ(refusals.due(begin + milliseconds(5000)), "b");
  EXPECT_EQ(refusals.due(begin + milliseconds(10'000)), std::nullopt);
}

}  // namespace
}  // namespace penstock

#include "penstock/plan/strategy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "penstock/util/error.h"

namespace penstock::plan {
namespace {

using ::testing::HasSubstr;

std::string options_refusal(std::optional<Strategy> choice, std::optional<int64_t> chunks,
                            std::optional<int64_t> slack) {
  try {
    check_schedule_options(choice, chunks, slack);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST(Strategies, HaveNamesOfTheirOwnThatParseBack) {
  std::set<std::string_view> names;
  for (size_t i = 0; i < kNumStrategies; ++i) {
    const auto strategy = static_cast<Strategy>(i);
    EXPECT_TRUE(names.insert(to_string(strategy)).second) << strategy;
    EXPECT_EQ(find_strategy(to_string(strategy)), strategy);
    EXPECT_NE(traits(strategy).summary, "") << strategy;
  }
  EXPECT_EQ(find_strategy("1F1B"), std::nullopt);
  EXPECT_EQ(find_strategy(""), std::nullopt);
  EXPECT_EQ(find_strategy("auto"), std::nullopt);
}

TEST(Strategies, AreScheduledWhereTheyHaveASchedule) {
  for (const Strategy strategy : scheduled_strategies())
    EXPECT_EQ(parse_scheduled_strategy(to_string(strategy)), strategy);
  EXPECT_THROW(parse_scheduled_strategy("hybrid"), ConfigError);
  EXPECT_THROW(parse_scheduled_strategy("auto"), ConfigError);
  for (const Strategy strategy : scheduled_strategies())
    EXPECT_EQ(traits(strategy).runs_as, strategy);
  EXPECT_EQ(traits(Strategy::Hybrid).runs_as, Strategy::OneFOneBFlush);
}

TEST(Strategies, AreChosenByNameOrLeftToThePlanner) {
  for (const Strategy strategy : training_strategies())
    EXPECT_EQ(parse_strategy_choice(to_string(strategy)), strategy);
  EXPECT_EQ(parse_strategy_choice("auto"), std::nullopt);
  EXPECT_EQ(to_string(std::optional<Strategy>()), "auto");
  EXPECT_THROW(parse_strategy_choice("forward-only"), ConfigError);
  try {
    parse_strategy_choice("magic");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("unknown strategy 'magic', expected one of auto, serial, dp, mp"));
  }
}

TEST(Strategies, RowsAgreeWithThemselves) {
  for (size_t i = 0; i < kNumStrategies; ++i) {
    const StrategyTraits& row = traits(static_cast<Strategy>(i));
    ASSERT_FALSE(row.policies.empty()) << row.strategy;
    ASSERT_NE(row.most_kept, nullptr) << row.strategy;
    EXPECT_TRUE(supports(row.strategy, default_policy(row.strategy)));
    // Several stages on one worker take flush; a rule for a whole list knows neither them nor W.
    if (row.is_chunked()) {
      EXPECT_TRUE(row.flushes()) << row.strategy;
      EXPECT_TRUE(row.split_by_simulation) << row.strategy;
    }
    if (row.is_chunked() || row.splits_backward) {
      EXPECT_EQ(row.in_flight, InFlight::NoRule) << row.strategy;
    }
    EXPECT_EQ(row.chunks > 1, row.placement == Placement::Loop || row.placement == Placement::V)
        << row.strategy;
    if (row.auto_may_choose) {
      EXPECT_TRUE(row.flushes()) << row.strategy;
    }
    // What is lighter leads to something that knows nothing lighter.
    Strategy lightest = row.strategy;
    for (size_t step = 0; step < kNumStrategies; ++step) lightest = traits(lightest).lighter;
    EXPECT_EQ(traits(lightest).lighter, lightest) << row.strategy;
  }
}

TEST(Strategies, KeepAHalfAndAThirdOfWhatZbVKeeps) {
  const auto kept = [](Strategy strategy, int64_t workers) {
    return traits(strategy).most_kept({.workers = workers, .chunks = 2, .micro_batches = 64});
  };
  for (int64_t p = 2; p <= 64; ++p) {
    EXPECT_EQ(kept(Strategy::ZbV, p), 2 * p);
    EXPECT_EQ(kept(Strategy::VHalf, p), 2 * ((p + 2) / 2));
    EXPECT_EQ(kept(Strategy::VMin, p), 2 * ((p + 4) / 3));
  }
}

TEST(ScheduleOptions, AreCheckedForEveryCommandAlike) {
  EXPECT_EQ(options_refusal(std::nullopt, 4, 3), "");
  EXPECT_EQ(options_refusal(Strategy::Interleaved, 2, std::nullopt), "");
  EXPECT_EQ(options_refusal(Strategy::ZbV, 2, std::nullopt), "");
  EXPECT_EQ(options_refusal(Strategy::EagerOneFOneB, std::nullopt, 0), "");
  EXPECT_THAT(options_refusal(Strategy::Interleaved, 1, std::nullopt),
              HasSubstr("chunks must lie between 2 and 1000, found 1"));
  EXPECT_THAT(options_refusal(std::nullopt, 1'000'000'000, std::nullopt),
              HasSubstr("chunks must lie"));
  EXPECT_EQ(options_refusal(Strategy::ZbV, 3, std::nullopt),
            "only strategy interleaved, interleaved-zb has a choice of chunks, found 3 for zb-v");
  EXPECT_EQ(options_refusal(Strategy::OneFOneB, std::nullopt, 1),
            "only strategy eager-1f1b has slack, found 1 for 1f1b");
  EXPECT_THAT(options_refusal(std::nullopt, std::nullopt, -1), HasSubstr("slack must lie"));
}

}  // namespace penstock::plan

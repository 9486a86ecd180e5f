#include "penstock/schedule/generate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/schedule/text_format.h"
#include "penstock/util/error.h"

namespace penstock::schedule {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// The workers' lists as text, without stage numbers: "F0 B0".
std::vector<std::string> lists_of(const Schedule& schedule) {
  std::vector<std::string> lists;
  for (const auto& actions : schedule.workers) {
    std::string text;
    for (const Action& action : actions) {
      text += (text.empty() ? "" : " ") + std::string(to_string(action.op)) + std::to_string(action.micro_batch.value);
    }
    lists.push_back(text);
  }
  return lists;
}

std::string refusal_of(Kind kind, const ScheduleShape& shape) {
  try {
    generate(kind, shape);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST(Serial, RunsForwardAndBackwardInTurn) {
  EXPECT_THAT(lists_of(generate(Kind::Serial, {.replicas = {1}, .micro_batches = 3})), ElementsAre("F0 B0 F1 B1 F2 B2"));
}

TEST(DataParallel, DealsMicroBatchesOutInTurn) {
  EXPECT_THAT(lists_of(generate(Kind::DataParallel, {.replicas = {3}, .micro_batches = 5, .accumulate = 5})),
              ElementsAre("F0 B0 F3 B3", "F1 B1 F4 B4", "F2 B2"));
}

TEST(ModelParallel, HasOneMicroBatchInFlight) {
  EXPECT_THAT(lists_of(generate(Kind::ModelParallel, {.replicas = {1, 1}, .micro_batches = 2, .accumulate = 2})),
              ElementsAre("F0 B0 F1 B1", "F0 B0 F1 B1"));
}

TEST(GPipe, RunsAllForwardsOfAMiniBatchFirst) {
  EXPECT_THAT(lists_of(generate(Kind::GPipe, {.replicas = {1, 2}, .micro_batches = 6, .accumulate = 4})),
              ElementsAre("F0 F1 F2 F3 B0 B1 B2 B3 F4 F5 B4 B5", "F0 F2 B0 B2 F4 B4", "F1 F3 B1 B3 F5 B5"));
}

TEST(OneFOneB, WarmsUpThenAlternatesThenDrains) {
  EXPECT_THAT(
      lists_of(generate(Kind::OneFOneB, {.replicas = {1, 1, 1}, .micro_batches = 5, .accumulate = 1, .policy = WeightPolicy::Stash})),
      ElementsAre("F0 F1 F2 B0 F3 B1 F4 B2 B3 B4", "F0 F1 B0 F2 B1 F3 B2 F4 B3 B4", "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4"));
}

TEST(OneFOneB, ReplicasTakeTurns) {
  EXPECT_THAT(lists_of(generate(Kind::OneFOneB, {.replicas = {2, 1}, .micro_batches = 6, .accumulate = 2, .policy = WeightPolicy::Stash})),
              ElementsAre("F0 F2 B0 F4 B2 B4", "F1 F3 B1 F5 B3 B5", "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5"));
}

TEST(OneFOneB, HasFewerMicroBatchesThanStagesOrReplicas) {
  EXPECT_THAT(
      lists_of(generate(Kind::OneFOneB, {.replicas = {3, 1, 1}, .micro_batches = 2, .accumulate = 1, .policy = WeightPolicy::Stash})),
      ElementsAre("F0 B0", "F1 B1", "", "F0 F1 B0 B1", "F0 B0 F1 B1"));
}

TEST(OneFOneBFlush, DrainsBeforeEachStep) {
  EXPECT_THAT(lists_of(generate(Kind::OneFOneBFlush, {.replicas = {1, 1}, .micro_batches = 5, .accumulate = 3})),
              ElementsAre("F0 F1 B0 F2 B1 B2 F3 F4 B3 B4", "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4"));
}

TEST(TwoBuffered, HasTheOrderOfOneFOneB) {
  const std::vector<int> replicas = {1, 1, 1};
  EXPECT_EQ(
      generate(Kind::TwoBuffered, {.replicas = replicas, .micro_batches = 9, .accumulate = 3, .policy = WeightPolicy::TwoBuffered}).workers,
      generate(Kind::OneFOneB, {.replicas = replicas, .micro_batches = 9, .accumulate = 3, .policy = WeightPolicy::Stash}).workers);
}

TEST(ForwardOnly, HasNoBackward) {
  EXPECT_THAT(lists_of(generate(Kind::ForwardOnly, {.replicas = {1, 2}, .micro_batches = 3})), ElementsAre("F0 F1 F2", "F0 F2", "F1"));
}

TEST(Generate, RefusesWhatAKindCannotRun) {
  EXPECT_THAT(refusal_of(Kind::Serial, {.replicas = {2}}), HasSubstr("runs on 1 worker"));
  EXPECT_THAT(refusal_of(Kind::DataParallel, {.replicas = {1, 1}}), HasSubstr("found 2 stages"));
  EXPECT_THAT(refusal_of(Kind::OneFOneB, {.replicas = {1, 1}}), HasSubstr("cannot run with weight policy flush; its own is stash"));
  EXPECT_THAT(refusal_of(Kind::GPipe, {.replicas = {1, 1}, .policy = WeightPolicy::Stash}),
              HasSubstr("cannot run with weight policy stash"));
  EXPECT_THAT(refusal_of(Kind::GPipe, {.replicas = {1, 1}, .micro_batches = INT64_MAX}), HasSubstr("more than"));
}

TEST(Generate, ManyIdleReplicasCostNothing) {
  // A loop over mini-batches for every worker would take 10^10 steps here.
  const ScheduleShape shape{.replicas = {100'000}, .micro_batches = 100'000, .accumulate = 1};
  EXPECT_EQ(generate(Kind::GPipe, shape).num_actions(), 200'000);
  EXPECT_THROW(lower(generate(Kind::GPipe, shape), {}), ConfigError);
}

TEST(Kinds, HaveNamesThatParseBack) {
  for (const Kind kind : all_kinds()) {
    EXPECT_EQ(parse_kind(to_string(kind)), kind);
    EXPECT_TRUE(supports(kind, default_policy(kind)));
    EXPECT_NE(describe(kind), "");
  }
  EXPECT_THROW(parse_kind("1F1B"), ConfigError);
  for (const auto policy :
       {WeightPolicy::Flush, WeightPolicy::Stash, WeightPolicy::VerticalSync, WeightPolicy::TwoBuffered, WeightPolicy::Latest}) {
    EXPECT_EQ(parse_weight_policy(to_string(policy)), policy);
  }
  EXPECT_THROW(parse_weight_policy("none"), ConfigError);
}

TEST(DefaultAccumulate, SuitsTheReplicasAndTheDepth) {
  EXPECT_EQ(default_accumulate(Kind::GPipe, {.replicas = {1, 1}, .micro_batches = 12}), 12);
  EXPECT_EQ(default_accumulate(Kind::GPipe, {.replicas = {1, 1}, .micro_batches = 0}), 1);
  EXPECT_EQ(default_accumulate(Kind::OneFOneB, {.replicas = {2, 3, 1}}), 6);
  EXPECT_EQ(default_accumulate(Kind::TwoBuffered, {.replicas = {1, 1, 1, 1}}), 4);
  EXPECT_EQ(default_accumulate(Kind::TwoBuffered, {.replicas = {2, 1, 1}}), 4);
  EXPECT_THROW(default_accumulate(Kind::OneFOneB, {.replicas = {9999991, 9999973, 9999971}}), ConfigError);
}

}  // namespace penstock::schedule

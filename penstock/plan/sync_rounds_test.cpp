#include "penstock/plan/sync_rounds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "penstock/util/error.h"
#include "tests/support/mutate.h"

namespace penstock::plan {
namespace {

using ::testing::HasSubstr;

constexpr const char* kNothing = "(nothing was thrown)";

std::string refusal_of_rounds(const std::function<void(Plan&)>& change) {
  Plan plan;
  plan.sync = GradientSync::DiLoCo;
  plan.sync_every = 100;
  plan.micro_batches = 4;
  plan.stages = {{.layers = {"a"}, .replicas = 2}, {.layers = {"b"}, .replicas = 2}};
  change(plan);
  return tests::message_of<ConfigError>([&] { check_rounds(plan); });
}

TEST(SyncRounds, CopiesOfAPipelineTrainByThemselves) {
  EXPECT_EQ(refusal_of_rounds([](Plan&) {}), kNothing);
  EXPECT_EQ(refusal_of_rounds([](Plan& p) { p.micro_batches = 2; }), kNothing);
  EXPECT_EQ(refusal_of_rounds([](Plan& p) {
              p.stages[0].replicas = p.stages[1].replicas = p.micro_batches = 1;
              p.stages[0].tensor = 2;
            }),
            kNothing);
}

TEST(SyncRounds, WhatIsNoCopyIsRefused) {
  EXPECT_THAT(refusal_of_rounds([](Plan& p) { p.stages[1].replicas = 1; }),
              HasSubstr("diloco:100 each copy of the pipeline trains by itself for 100 step(s): "
                        "expected as many replicas of every stage, found 2-1"));
  EXPECT_THAT(refusal_of_rounds([](Plan& p) { p.micro_batches = 1; }),
              HasSubstr("each of the 2 replicas steps by itself: expected at least as many "
                        "micro-batches per step, found 1"));
  EXPECT_THAT(refusal_of_rounds([](Plan& p) { p.stages[1].shard_optimizer = true; }),
              HasSubstr("expected a plan without shared-out states, found stage 1 with it"));
  EXPECT_THAT(refusal_of_rounds([](Plan& p) { p.stages[0].tensor = 2; }),
              HasSubstr("expected a plan without teams, found stage 0 with it"));
}

TEST(SyncRounds, OtherMethodsAddEveryStep) {
  const auto refusal = [](GradientSync sync, int64_t every) {
    return refusal_of_rounds([&](Plan& p) {
      p.sync = sync;
      p.sync_every = every;
    });
  };
  EXPECT_EQ(refusal(GradientSync::Ring, 1), kNothing);
  EXPECT_THAT(refusal(GradientSync::Ring, 2), HasSubstr("ring every 2 steps: expected 1 step"));
  EXPECT_THAT(refusal(GradientSync::DiLoCo, 0), HasSubstr("diloco every 0 steps"));
}

}  // namespace
}  // namespace penstock::plan

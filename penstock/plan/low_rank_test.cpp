#include "penstock/plan/low_rank.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "penstock/util/error.h"
#include "tests/support/mutate.h"

namespace penstock::plan {
namespace {

using ::testing::HasSubstr;

constexpr const char* kNoRefusal = "(nothing was thrown)";

int64_t numbers_of(const std::vector<int64_t>& shape, int64_t rank) {
  return summed_numbers(matrix_sizes(shape), rank);
}

TEST(LowRank, FactorsAreSummedWhereTheyAreSmaller) {
  EXPECT_EQ(numbers_of({100, 50}, 4), 4 * 150);
  EXPECT_EQ(numbers_of({1000, 64, 3, 3}, 4), 4 * (1000 + 576));  // the first dimension against all
  EXPECT_EQ(numbers_of({100, 50}, 0), 5000);                     // no factors
  EXPECT_EQ(numbers_of({100, 50}, 40), 5000);                    // 6000 would be more
  EXPECT_EQ(numbers_of({4, 4}, 2), 16);                          // as many pay nothing
  EXPECT_EQ(numbers_of({7}, 1), 7);
  EXPECT_EQ(numbers_of({}, 1), 1);
  EXPECT_FALSE(is_factored(matrix_sizes(std::vector<int64_t>{1, 100}), 1));
}

std::string refusal_of(const std::function<void(Plan&)>& change) {
  Plan plan;
  plan.set_sync_method({GradientSync::PowerSgd, 1, 4});
  plan.stages = {{.layers = {"a"}, .replicas = 2}, {.layers = {"b"}}};
  change(plan);
  return tests::message_of<ConfigError>([&] { check_low_rank(plan); });
}

TEST(LowRank, PlansWhoseReplicasStepAllWeightsAreTaken) {
  EXPECT_EQ(refusal_of([](Plan&) {}), kNoRefusal);
  EXPECT_EQ(refusal_of([](Plan& p) { p.stages[1].tensor = 2; }), kNoRefusal);
  EXPECT_EQ(refusal_of([](Plan& p) { p.set_sync_method(GradientSync::Ring); }), kNoRefusal);
  EXPECT_THAT(refusal_of([](Plan& p) { p.stages[0].shard_optimizer = true; }),
              HasSubstr("powersgd:4 each replica makes whole gradients out of the factors, and "
                        "steps all weights of its stage: expected a plan without shared-out "
                        "states, found stage 0 with it"));
  EXPECT_THAT(refusal_of([](Plan& p) { p.stages[0].tensor = 2; }),
              HasSubstr("expected a plan without teams, found stage 0 with it"));
  EXPECT_THAT(refusal_of([](Plan& p) { p.sync_rank = 0; }), HasSubstr("powersgd in rank 0"));
  EXPECT_THAT(refusal_of([](Plan& p) { p.sync = GradientSync::Ring; }),
              HasSubstr("ring in rank 4: expected rank 0"));
}

}  // namespace
}  // namespace penstock::plan

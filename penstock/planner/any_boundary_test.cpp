#include "penstock/planner/any_boundary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/plan/boundaries.h"
#include "penstock/planner/planner.h"

namespace penstock::planner {
namespace {

using plan::Coding;
using ::testing::Contains;
using ::testing::HasSubstr;

/// Four equal layers; what the second one makes is large.
profile::Profile chain_profile() {
  profile::Profile profile;
  std::vector<graph::LayerNode> nodes;
  for (int l = 0; l < 4; ++l) {
    nodes.push_back({.name = "l" + std::to_string(l),
                     .kind = "test",
                     .inputs = {l == 0 ? graph::ValueRef::model_input(0)
                                       : graph::ValueRef{LayerId{l - 1}, 0}}});
    profile.costs.push_back({.forward_ns = 1'000'000,
                             .backward_ns = 2'000'000,
                             .output_bytes = {l == 1 ? 4'000'000 : 4'000},
                             .weight_bytes = 400});
  }
  profile.graph = graph::ModelGraph::build(1, std::move(nodes), {{LayerId{3}, 0}});
  profile.model = "chain";
  profile.source = "test";
  profile.batch_size = 4;
  profile.pass.error = 0.05;
  return profile;
}

cluster::Cluster cluster_of(int64_t bytes_per_s) {
  cluster::Cluster cluster;
  cluster.levels = {{.name = "net", .count = 4, .bandwidth_bytes_per_s = bytes_per_s}};
  return cluster;
}

plan::Plan straight_plan(int64_t bytes_per_s, std::optional<plan::BoundaryCoding> boundary) {
  const PlanResult result = make_plan(chain_profile(), cluster_of(bytes_per_s),
                                      {.strategy = plan::Strategy::OneFOneBFlush,
                                       .boundary = boundary,
                                       .straight = true,
                                       .micro_batches = 16});
  EXPECT_TRUE(result.plan.has_value()) << result.reason;
  return *result.plan;
}

TEST(AnyBoundary, SmallMessagesAreFasterOverSlowLinksAndAutoTakesThemThereAlone) {
  constexpr int64_t kSlow = 100'000'000;
  const plan::Plan exact = straight_plan(kSlow, plan::BoundaryCoding{});
  const plan::Plan half = straight_plan(kSlow, plan::parse_boundary("bfloat16"));
  const plan::Plan small = straight_plan(kSlow, plan::parse_boundary("int8"));
  const plan::Plan chosen = straight_plan(kSlow, std::nullopt);
  const auto rate = [](const plan::Plan& plan) { return plan.prediction.throughput_samples_per_s; };
  EXPECT_GT(rate(half), 1.5 * rate(exact));
  EXPECT_GT(rate(small), 1.5 * rate(half));
  EXPECT_LT(small.prediction.bottleneck_ns, half.prediction.bottleneck_ns);
  EXPECT_LT(small.prediction.bytes_per_sample.front(),
            0.3 * exact.prediction.bytes_per_sample.front());
  EXPECT_GT(rate(chosen), 0.99 * rate(small));
  ASSERT_EQ(chosen.links.size(), 3U);
  EXPECT_EQ(chosen.links[0].coding.kind, Coding::Float32);
  EXPECT_EQ(chosen.links[1].coding.kind, Coding::Int8);
  EXPECT_EQ(chosen.links[2].coding.kind, Coding::Float32);
  EXPECT_THAT(chosen.explanation.notes, Contains(HasSubstr("travel as float32 and int8")));
}

/// What the links of a straight plan over one level send for a sample.
double linked_bytes(const plan::Plan& plan) {
  double bytes = 0;
  for (const plan::Link& link : plan.links) {
    const plan::SentOver sent = plan::sent_over(link, plan.precision);
    bytes += static_cast<double>(sent.bytes + sent.bytes_back);
  }
  return bytes / static_cast<double>(plan.micro_batch_size);
}

TEST(AnyBoundary, PredictionsOfAMixedPlanAreThoseOfItsLinks) {
  constexpr int64_t kSlow = 100'000'000;
  const plan::Plan small = straight_plan(kSlow, plan::parse_boundary("int8"));
  const plan::Plan chosen = straight_plan(kSlow, std::nullopt);
  EXPECT_NE(chosen.links, small.links);
  EXPECT_DOUBLE_EQ(chosen.prediction.bytes_per_sample.front(), linked_bytes(chosen));
  EXPECT_GT(chosen.prediction.bytes_per_sample.front(), small.prediction.bytes_per_sample.front());
  EXPECT_EQ(chosen.prediction.bottleneck_ns, small.prediction.bottleneck_ns);
  EXPECT_GT(chosen.prediction.throughput_high_samples_per_s,
            chosen.prediction.throughput_samples_per_s);
}

TEST(AnyBoundary, EachCutIsPricedInTheCodingOfItsLink) {
  constexpr int64_t kSlow = 100'000'000;
  const plan::Plan exact = straight_plan(kSlow, plan::BoundaryCoding{});
  plan::Plan mixed = exact;
  mixed.links[0].coding = plan::parse_boundary("int8");
  mixed = reprice(mixed, chain_profile(), cluster_of(kSlow), "penstock");
  EXPECT_EQ(mixed.prediction.bottleneck_ns, exact.prediction.bottleneck_ns);
  EXPECT_DOUBLE_EQ(mixed.prediction.bytes_per_sample.front(), linked_bytes(mixed));
}

TEST(AnyBoundary, WhereACodingBringsNothingThePredictionsAreThoseWithoutIt) {
  constexpr int64_t kFast = 100'000'000'000;
  const plan::Plan exact = straight_plan(kFast, plan::BoundaryCoding{});
  const auto search = [&](const PlanOptions& options, TimeLimit) {
    plan::Plan plan = exact;
    plan::set_boundaries(plan, *options.boundary);
    if (!options.boundary->is_exact()) plan.prediction.throughput_samples_per_s *= 2;
    return PlanResult{plan, ""};
  };
  const auto price = [](const plan::Plan& plan) {
    return reprice(plan, chain_profile(), cluster_of(kFast), "penstock");
  };
  const PlanResult result = plan_with_any_boundary({}, {}, {.search = search, .price = price});
  EXPECT_EQ(plan::boundaries_text(*result.plan), "");
  EXPECT_NEAR(result.plan->prediction.throughput_samples_per_s,
              exact.prediction.throughput_samples_per_s,
              0.01 * exact.prediction.throughput_samples_per_s);
}

TEST(AnyBoundary, FastLinksStayExact) {
  const plan::Plan chosen = straight_plan(100'000'000'000, std::nullopt);
  EXPECT_EQ(plan::boundaries_text(chosen), "");
}

TEST(AnyBoundary, APlanThatIsPricedAnewKeepsItsCodings) {
  const plan::Plan chosen = straight_plan(100'000'000, std::nullopt);
  const plan::Plan again = reprice(chosen, chain_profile(), cluster_of(100'000'000), "penstock");
  EXPECT_EQ(again.links, chosen.links);
  EXPECT_NEAR(again.prediction.throughput_samples_per_s, chosen.prediction.throughput_samples_per_s,
              0.02 * chosen.prediction.throughput_samples_per_s);
}

}  // namespace
}  // namespace penstock::planner

#include "penstock/schedule/teams.h"

#include <gtest/gtest.h>

#include "penstock/schedule/formats/pytorch_csv.h"
#include "penstock/schedule/formats/text_format.h"
#include "penstock/schedule/generate.h"
#include "penstock/schedule/plan_shape.h"
#include "penstock/schedule/team_places.h"
#include "penstock/schedule/worker_table.h"
#include "penstock/util/error.h"

namespace penstock::schedule {
namespace {

size_t num_lists_of(const Schedule& schedule) { return schedule.workers.size(); }

TEST(Teams, MembersDoTheSameInTheSameOrder) {
  const ScheduleShape shape{
      .replicas = {2, 1}, .micro_batches = 8, .accumulate = 4, .policy = WeightPolicy::Flush};
  const Schedule whole = generate(Strategy::OneFOneBFlush, shape);
  const Schedule all = with_teams(whole, {2, 3});
  EXPECT_EQ(all.shape.replicas, (std::vector<int>{2, 2, 1, 1, 1}));
  ASSERT_EQ(all.workers.size(), 7);
  // Both members of replica 0 are neighbours.
  const WorkerTable table(all.shape);
  EXPECT_EQ(table.worker_of_replica(StageId{0}, 0).value, 0);
  EXPECT_EQ(table.worker_of_replica(StageId{1}, 0).value, 1);
  EXPECT_EQ(table.worker_of_replica(StageId{0}, 1).value, 2);
  EXPECT_EQ(table.worker_of_replica(StageId{4}, 0).value, 6);
  for (size_t w = 0; w < all.workers.size(); ++w) {
    const size_t team = w < 4 ? w / 2 : 2;
    ASSERT_EQ(all.workers[w].size(), whole.workers[team].size());
    for (size_t i = 0; i < all.workers[w].size(); ++i) {
      Action action = all.workers[w][i];
      action.stage = place_in_team(all.shape, action.stage).whole;
      action.peer = action.stage;
      EXPECT_EQ(action, whole.workers[team][i]);
    }
  }
  EXPECT_EQ(place_in_team(all.shape, StageId{3}),
            (TeamPlace{.whole = StageId{1}, .first = StageId{2}, .member = 1, .size = 3}));
  validate(all.shape);
}

TEST(Teams, AreNoStagesOfTheirOwnForDepthsAndDelays) {
  ScheduleShape shape{
      .replicas = {2, 1}, .micro_batches = 8, .accumulate = 8, .policy = WeightPolicy::TwoBuffered};
  const ScheduleShape all = with_teams(shape, {2, 2});
  EXPECT_EQ(pipeline_depth(all), pipeline_depth(shape));
  const auto depths = warmup_depths(shape);
  EXPECT_EQ(warmup_depths(all), (std::vector<int64_t>{depths[0], depths[0], depths[1], depths[1]}));
  EXPECT_EQ(mean_delays(all)[3], mean_delays(shape)[1]);
  ScheduleShape back = without_teams(all);
  EXPECT_EQ(back.worker_of_replica, (std::vector<int>{0, 1, 2}));
  back.worker_of_replica.clear();
  EXPECT_EQ(back, shape);
}

TEST(Teams, LinksJoinMembersByTheirNumbers) {
  const std::vector<StageLink> chain = chain_links(2);
  const auto pairs = [&](int makers, int readers) {
    std::vector<std::pair<int, int>> result;
    for (const MemberLink& each : member_links(chain, {makers, readers})) {
      EXPECT_EQ(each.whole, 0);
      result.emplace_back(each.link.from.value, each.link.to.value - makers);
    }
    return result;
  };
  using Pairs = std::vector<std::pair<int, int>>;
  EXPECT_EQ(pairs(2, 2), (Pairs{{0, 0}, {1, 1}}));
  EXPECT_EQ(pairs(1, 3), (Pairs{{0, 0}, {0, 1}, {0, 2}}));
  EXPECT_EQ(pairs(2, 3), (Pairs{{0, 0}, {1, 1}, {0, 2}}));
  // Producers 1 and 2 have no reader by the rule: a gradient has to come back all the same.
  EXPECT_EQ(pairs(3, 1), (Pairs{{0, 0}, {1, 0}, {2, 0}}));
  EXPECT_EQ(pairs(5, 2), (Pairs{{0, 0}, {1, 1}, {2, 0}, {3, 1}, {4, 0}}));
  EXPECT_EQ(links_of_members(chain, {}), chain);
  EXPECT_THROW((void)links_of_members(chain_links(3), {2, 2}), ConfigError);
}

TEST(Teams, AShapeWithTeamsIsGeneratedLikeTheWholeOne) {
  for (const Strategy kind : plan::scheduled_strategies()) {
    ScheduleShape shape{.replicas = {2}, .micro_batches = 8, .accumulate = 8};
    if (traits(kind).extent == plan::Extent::Pipeline) shape.replicas = {2, 2, 2, 2};
    if (traits(kind).extent == plan::Extent::OneWorker) shape.replicas = {1};
    shape.policy = default_policy(kind);
    shape = with_placement(kind, shape);
    const std::vector<int> teams(shape.replicas.size(), 3);
    const ScheduleShape all = with_teams(shape, teams);
    validate(all);
    EXPECT_EQ(without_teams(all).replicas, shape.replicas);
    const Schedule schedule = generate(kind, all);
    EXPECT_EQ(schedule, with_teams(generate(kind, shape), teams)) << to_string(kind);
    EXPECT_EQ(parse_schedule(to_text(schedule), "s.txt"), schedule) << to_string(kind);
    EXPECT_EQ(num_lists_of(schedule), 3 * num_lists_of(generate(kind, shape)));
  }
}

TEST(Teams, TextNamesThemAndRefusesWrongOnes) {
  const ScheduleShape shape{.replicas = {1, 1}, .micro_batches = 2, .accumulate = 2};
  const std::string text = to_text(with_teams(generate(Strategy::GPipe, shape), {2, 1}));
  EXPECT_NE(text.find("\n# teams: 2 1\n"), std::string::npos) << text;
  for (const char* wrong : {"# teams: 2 2\n", "# teams: 0 3\n", "# teams:\n", "# teams: x\n"}) {
    std::string damaged = text;
    damaged.replace(damaged.find("# teams: 2 1\n"), 13, wrong);
    EXPECT_THROW((void)parse_schedule(damaged, "s.txt"), ParseError) << wrong;
  }
  EXPECT_THROW((void)to_pytorch_csv(parse_schedule(text, "s.txt")), ConfigError);
}

TEST(Teams, PlacesBeyondAllNumbersDoNotWrapAround) {
  plan::Plan plan;
  plan.strategy = Strategy::ZbAuto;
  plan.micro_batches = 4;
  plan.cluster.levels = {{.name = "server", .count = 4, .bandwidth_bytes_per_s = 1}};
  for (int s = 0; s < 3; ++s) plan.stages.push_back({.replicas = 1, .tensor = INT32_MAX});
  EXPECT_EQ(shape_of(plan, 1).link_units, (std::vector<std::vector<int32_t>>{{0, 1, 1}}));
  EXPECT_THROW((void)member_shape_of(plan, 1), ConfigError);
}

TEST(Teams, PlacesAsATableAreThoseOfEachStage) {
  const ScheduleShape shape = with_teams({.replicas = {2, 1, 3}}, {3, 1, 2});
  const TeamPlaces places(shape.teams);
  for (int32_t s = 0; s < shape.num_stages(); ++s) {
    EXPECT_EQ(places.of(StageId{s}), place_in_team(shape, StageId{s})) << s;
    EXPECT_EQ(places.size(StageId{s}), places.of(StageId{s}).size);
  }
  EXPECT_FALSE(places.empty());
  EXPECT_TRUE(TeamPlaces().empty());
  EXPECT_EQ(TeamPlaces().of(StageId{7}), (TeamPlace{.whole = StageId{7}, .first = StageId{7}}));
}

TEST(Teams, TooManyMembersAreRefusedBeforeAnythingGrows) {
  const ScheduleShape shape{.replicas = {1, 1000}, .micro_batches = 4, .accumulate = 4};
  EXPECT_THROW((void)with_teams(shape, {1, 20'000}), ConfigError);
  EXPECT_THROW((void)with_teams(shape, {INT32_MAX, INT32_MAX}), ConfigError);
  EXPECT_THROW((void)links_of_members(chain_links(2), {INT32_MAX, 1}), ConfigError);
  EXPECT_THROW(
      (void)links_of_members(std::vector<StageLink>(100, {StageId{0}, StageId{1}}), {1, 1'000'000}),
      ConfigError);
}

TEST(Teams, OfOneMemberChangeNothing) {
  const ScheduleShape shape{.replicas = {1, 1}, .micro_batches = 4, .accumulate = 4};
  EXPECT_EQ(with_teams(shape, {}), shape);
  EXPECT_EQ(with_teams(shape, {1, 1}), shape);
}

TEST(Teams, StagesOnOneWorkerHaveTeamsOfOneSize) {
  const ScheduleShape shape =
      with_placement(Strategy::Interleaved, {.replicas = {1, 1, 1, 1},
                                             .micro_batches = 4,
                                             .accumulate = 4,
                                             .policy = WeightPolicy::Flush});
  EXPECT_EQ(with_teams(shape, {2, 2, 2, 2}).num_workers(), 4);
  try {
    (void)with_teams(shape, {2, 1, 1, 1});
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "worker 0 holds stages 0 and 2, whose teams have 2 and 1 members: expected as "
                 "many");
  }
  EXPECT_THROW((void)with_teams(shape, {2, 2}), ConfigError);
  ScheduleShape wrong = with_teams(shape, {2, 2, 2, 2});
  wrong.teams = {2, 2, 2, 3};
  EXPECT_THROW(validate(wrong), ConfigError);
}

}  // namespace
}  // namespace penstock::schedule

#include "penstock/report/plan/stage_bars.h"

#include <gtest/gtest.h>

#include "penstock/report/plan/testing_plans.h"

namespace penstock::report {
namespace {

std::string bars_of(const plan::Plan& plan) { return stage_bars(PlanView(plan)); }

TEST(StageBars, OfVgg16ShowStagesLinkAndPlaces) {
  const std::string page = bars_of(vgg_plan());
  for (const char* part : {"<b>stage 0</b>", "<b>stage 1</b>", "conv1_1 .. pool5 (4 layers)",
                           "15 replicas on workers 0-14, server 0-3", "worker 15, server 3",
                           "<b>48.9 ms</b>", "4.24 GB of 16.0 GB", "6.42 MB to stage 1, rack",
                           "<b>10.3 ms</b>", "A full bar is 48.9 ms per micro-batch."})
    EXPECT_NE(page.find(part), std::string::npos) << part << " in " << page;
}

// Of the slowest stage's 48.87 ms forward takes 230 / 15 and backward twice as much; the link 10.3.
TEST(StageBars, HaveTheLengthOfTheirTimes) {
  const std::string page = bars_of(vgg_plan());
  for (const char* bar :
       {"width:31.38%;background:var(--forward)", "width:62.76%;background:var(--backward)",
        "width:21.07%;background:var(--message)", "width:26.50%;background:var(--state)"})
    EXPECT_NE(page.find(bar), std::string::npos) << bar << " in " << page;
}

TEST(StageBars, NameTheirTimesAndLayers) {
  plan::Plan plan = vgg_plan();
  plan.stages[1].recompute = true;
  const std::string page = bars_of(plan);
  EXPECT_NE(page.find("title=\"forward 230 ms, backward 460 ms, synchronisation 40.0 ms, step 3.00 "
                      "ms, weights 60.0 MB; conv1_1, relu1_1, conv1_2, pool5\""),
            std::string::npos)
      << page;
  EXPECT_NE(page.find("recomputation 12.0 ms, synchronisation 0 ns"), std::string::npos);
  EXPECT_EQ(occurrences(page, ", recomputes activations"), 1u);
}

TEST(StageBars, MarkTheSlowestPartOnce) {
  EXPECT_EQ(occurrences(bars_of(vgg_plan()), "<em>slowest</em>"), 1u);
  EXPECT_EQ(occurrences(bars_of(vgg_plan()), "<div class=\"hot\""), 1u);
  plan::Plan slow_link = vgg_plan();
  slow_link.links[0].bytes = 100'000'000;
  const std::string page = bars_of(slow_link);
  EXPECT_NE(page.find("&darr; <em>slowest</em> 100 MB to stage 1, rack"), std::string::npos)
      << page;
  EXPECT_EQ(occurrences(page, "<em>slowest</em>"), 1u);
  EXPECT_NE(page.find("A full bar is 160 ms per micro-batch."), std::string::npos);
}

TEST(StageBars, NameTeams) {
  EXPECT_NE(bars_of(team_plan()).find("2 teams of 4 on workers 0-7"), std::string::npos);
}

TEST(StageBars, AreBoundedAndHaveNoMarkupOfNames) {
  for (const auto& [name, plan] : sample_plans()) {
    const std::string page = bars_of(plan);
    EXPECT_LT(page.size(), 300'000u) << name;
    EXPECT_EQ(occurrences(page, "<div"), occurrences(page, "</div>")) << name;
    EXPECT_EQ(occurrences(page, "<span"), occurrences(page, "</span>")) << name;
    EXPECT_EQ(occurrences(page, "<script"), 0u) << name;
    EXPECT_EQ(page.find('\x1b'), std::string::npos) << name;
    EXPECT_EQ(page.find("nan"), std::string::npos) << name;
  }
  plan::Plan fan = chain_plan(8, 1);
  for (int32_t to = 2; to < 8; ++to) fan.links.push_back({StageId{0}, StageId{to}, 1000});
  EXPECT_NE(bars_of(fan).find("... and to 3 more stages"), std::string::npos);
  const std::string many = bars_of(chain_plan(3000, 1));
  EXPECT_EQ(occurrences(many, "<b>stage "), kMostBars);
  EXPECT_NE(many.find("... and 2936 more"), std::string::npos);
}

}  // namespace
}  // namespace penstock::report

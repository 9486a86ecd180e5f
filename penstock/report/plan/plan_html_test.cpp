#include <gtest/gtest.h>

#include "penstock/report/plan/testing_plans.h"
#include "penstock/report/report.h"
#include "penstock/report/text/text.h"

namespace penstock::report {
namespace {

const std::vector<plan::WhatIfResult> kChanges = {
    {.change = "one more server",
     .strategy = plan::Strategy::OneFOneB,
     .config = "19-1",
     .throughput_samples_per_s = 1622,
     .speedup = 1.247},
    {.change = "half the <memory>", .feasible = false, .reason = "layer 'fc6' needs 3.4 GB"}};

TEST(PlanPage, HasPictureFamiliesChangesStagesLinksAndNotes) {
  const std::string page = plan_html(vgg_plan(), kChanges);
  for (const char* part :
       {"<svg ", "<h2>All families</h2>", "<h2>What if</h2>", "<h2>Stages</h2>",
        "<h2>Links, per micro-batch</h2>", "<h2>Notes</h2>", "conv1_1 .. pool5 (4 layers)", "+25 %",
        "layer &#39;fc6&#39; needs 3.4 GB", "half the &lt;memory&gt;",
        "45 % of its time is gradient synchronisation"}) {
    EXPECT_EQ(occurrences(page, part) > 0, true) << part;
  }
  EXPECT_EQ(occurrences(page, "<tr class=\"winner\">"), 1u);
  EXPECT_EQ(occurrences(page, "<tr class=\"hot\">"), 1u) << "the slowest stage";
}

TEST(PlanPage, SaysWhyAFamilyIsNotThePlanOnce) {
  plan::Plan plan = vgg_plan();
  plan.explanation.alternatives = {{.strategy = plan::Strategy::GPipe,
                        .config = "1x16",
                        .throughput_samples_per_s = 1,
                        .note = "is 0.10x as fast: the pipeline drains before every step."}};
  plan.explanation.notes = {"gpipe (1x16) is 0.10x as fast: the pipeline drains before every step.",
                "12 of 16 workers are used."};
  const std::string page = plan_html(plan);
  EXPECT_EQ(occurrences(page, "the pipeline drains before every step"), 1u);
  EXPECT_EQ(occurrences(page, "12 of 16 workers are used"), 1u);
}

TEST(PlanPage, NeedsNoNetworkAndRunsNoScript) {
  const std::string page = plan_html(vgg_plan());
  EXPECT_NE(page.find("default-src 'none'"), std::string::npos);
  EXPECT_EQ(occurrences(page, "<script"), 0u);
  EXPECT_EQ(occurrences(page, "src="), 0u);
  EXPECT_EQ(occurrences(page, "href="), 0u);
  EXPECT_EQ(occurrences(page, "http"), 2u) << "http-equiv and the namespace of SVG";
}

TEST(PlanPage, HostileNamesStayText) {
  const std::string page = plan_html(
      hostile_plan(), {{.change = "<script>", .feasible = false, .reason = "</table><script>"}});
  EXPECT_EQ(occurrences(page, "<script"), 0u);
  EXPECT_EQ(occurrences(page, "onload=\""), 0u);
  EXPECT_EQ(occurrences(page, "</style>"), 2u) << "the page's and the picture's own";
  EXPECT_EQ(occurrences(page, "</table>"), occurrences(page, "<table>"));
  for (const char c : page) EXPECT_TRUE(static_cast<unsigned char>(c) >= 0x20 || c == '\n');
}

TEST(PlanPage, OfAnyPlanIsBounded) {
  for (const auto& [name, plan] : sample_plans()) {
    const std::string page = plan_html(plan);
    EXPECT_TRUE(page.ends_with("</body>\n</html>\n")) << name;
    EXPECT_LT(page.size(), 800'000u) << name;
  }
}

}  // namespace
}  // namespace penstock::report

#include "penstock/report/page/html_report.h"

#include <gtest/gtest.h>

#include "penstock/report/page/page_assets.h"
#include "penstock/report/plan/testing_plans.h"
#include "penstock/schedule/testing_timelines.h"
#include "penstock/util/error.h"

namespace penstock::report {
namespace {

using schedule::event_of;
using schedule::random_timeline;
using schedule::two_workers;

ReportInput full_input() {
  ReportInput input{.plan = vgg_plan(),
                    .timelines = {two_workers("predicted"), two_workers("measured", 23'000)}};
  input.history = History{.model = "vgg16",
                          .strategy = "1f1b",
                          .steps = {{1, 2.5, 0.1, 1.0}, {2, 2.0, 0.1, 0.9}},
                          .epochs = {{1, 2.2, 0.4, 0.35}, {2, 1.9, 0.5, 0.45}},
                          .throughput_samples_per_s = 1240};
  return input;
}

TEST(ReportPage, HasAllParts) {
  const std::string page = html_report(full_input());
  for (const char* part :
       {"<canvas id=\"timeline\"", "<canvas id=\"memory\"", "<canvas id=\"versions\"",
        "Largest differences, measured against predicted", "10 actions compared",
        "\"title\":\"Loss\"", "\"title\":\"Accuracy\"", "\"title\":\"Learning rate\"",
        "\"title\":\"Gradient norm\"", "<div id=\"bars\">", "<h2>Strategies</h2>", "1,301", "1,240",
        "4.7 % slower than predicted", "samples/s measured", "Slowest part"}) {
    EXPECT_NE(page.find(part), std::string::npos) << part;
  }
  EXPECT_EQ(occurrences(page, "\"points\":[["), 5u);
  EXPECT_EQ(occurrences(page, "<tr class=\"winner\">"), 1u);
  EXPECT_TRUE(page.ends_with("</body>\n</html>\n"));
}

TEST(ReportPage, SaysWhetherTheRunLayWithinTheInterval) {
  ReportInput input = full_input();
  EXPECT_EQ(html_report(input).find("the interval"), std::string::npos) << "none is known";
  input.history->predicted_throughput_samples_per_s = 1301;
  input.history->prediction_low_samples_per_s = 1170;
  input.history->prediction_high_samples_per_s = 1431;
  std::string page = html_report(input);
  EXPECT_NE(page.find("1,170 to 1,431"), std::string::npos);
  EXPECT_NE(page.find("4.7 % slower than predicted, within the interval"), std::string::npos);
  input.history->throughput_samples_per_s = 1100;
  EXPECT_NE(html_report(input).find(", outside the interval"), std::string::npos);
  // The plan's own counts where the run did not predict.
  input.history->predicted_throughput_samples_per_s = 0;
  input.plan.prediction.throughput_low_samples_per_s = 1000;
  input.plan.prediction.throughput_high_samples_per_s = 1600;
  page = html_report(input);
  EXPECT_NE(page.find("1,000 to 1,600"), std::string::npos);
  EXPECT_NE(page.find(", within the interval"), std::string::npos);
}

TEST(ReportPage, LanesOfTeamsAreNamedByStageReplicaAndMember) {
  schedule::Timeline timeline{.source = "predicted", .workers = {}};
  for (const int32_t stage : {0, 1, 2, 3, 0, 1, 2, 3, 4, 5})
    timeline.workers.push_back({event_of(schedule::Op::Forward, stage, 0, 0, 1'000)});
  const std::string page = html_report({.plan = team_plan(), .timelines = {timeline}});
  EXPECT_NE(page.find("\"places\":[\"stage 0, replica 0, member 0\","), std::string::npos);
  EXPECT_NE(page.find("\"stage 0, replica 1, member 3\",\"stage 1, replica 0, member 0\","),
            std::string::npos);
  EXPECT_NE(page.find("\"name\":\"0.3\""), std::string::npos);
  EXPECT_NE(page.find("\"name\":\"1.1\""), std::string::npos);
  EXPECT_NE(page.find("2 teams of 4 on workers 0-7"), std::string::npos);
  EXPECT_NE(page.find("2t4-1t2"), std::string::npos);
  timeline.workers.push_back({event_of(schedule::Op::Forward, 6, 0, 0, 1'000)});
  EXPECT_THROW((void)html_report({.plan = team_plan(), .timelines = {timeline}}), ConfigError);
}

TEST(ReportPage, OfAPlanAloneHasNoTimeline) {
  const std::string page = html_report({.plan = vgg_plan(), .notes = {"No timeline: <too large>"}});
  EXPECT_EQ(page.find("<canvas"), std::string::npos);
  EXPECT_EQ(page.find("Largest differences"), std::string::npos);
  EXPECT_NE(page.find("No timeline: &lt;too large&gt;"), std::string::npos);
}

TEST(ReportPage, SaysWhereTheHistoryIsOfAnotherRun) {
  ReportInput input = full_input();
  const std::string words = "The history belongs to another run";
  EXPECT_EQ(html_report(input).find(words), std::string::npos);
  input.history->strategy = "gpipe";
  EXPECT_NE(html_report(input).find(words + ": strategy gpipe instead of 1f1b.<"),
            std::string::npos);
  input.history->model = "<b>mlp</b>";
  const std::string page = html_report(input);
  EXPECT_NE(
      page.find(
          ": model &lt;b&gt;mlp&lt;/b&gt; instead of vgg16, strategy gpipe instead of 1f1b.<"),
      std::string::npos);
  EXPECT_EQ(page.find("<b>mlp"), std::string::npos);
  input.history->model = input.history->strategy = "";
  EXPECT_EQ(html_report(input).find(words), std::string::npos) << "a history that does not say";
}

TEST(ReportPage, NeedsNoNetworkAndRunsItsOwnScriptOnly) {
  const std::string page = html_report(full_input());
  EXPECT_NE(page.find("default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-"),
            std::string::npos);
  EXPECT_EQ(occurrences(page, "unsafe-inline"), 1u) << "styles, not scripts";
  EXPECT_EQ(occurrences(page, "<script"), 3u) << "two of them hold data";
  EXPECT_EQ(occurrences(page, "src="), 0u);
  EXPECT_EQ(occurrences(page, "href="), 0u);
  EXPECT_EQ(occurrences(page, "onclick="), 0u);
  for (const std::string_view part : {page_style(), page_script()}) {
    EXPECT_EQ(part.find("</"), std::string_view::npos);
    EXPECT_EQ(part.find("@import"), std::string_view::npos);
    EXPECT_EQ(part.find("url("), std::string_view::npos);
    EXPECT_EQ(part.find("fetch("), std::string_view::npos);
    EXPECT_EQ(part.find("innerHTML"), std::string_view::npos);
  }
}

// On one scale from 0: where the marks are, in percent of the largest with some room.
TEST(ReportPage, OpensOnMeasuredAgainstPredicted) {
  ReportInput input = full_input();
  input.history->predicted_throughput_samples_per_s = 1000;
  input.history->prediction_low_samples_per_s = 800;
  input.history->prediction_high_samples_per_s = 1200;
  input.history->throughput_samples_per_s = 1000.2;
  EXPECT_NE(html_report(input).find(">as fast as predicted, within the interval"),
            std::string::npos);
  input.history->throughput_samples_per_s = 600;
  const std::string page = html_report(input);
  const size_t tile = page.find("<section id=\"headline\">");
  ASSERT_NE(tile, std::string::npos);
  EXPECT_LT(tile, page.find("id=\"figures\""));
  EXPECT_NE(page.find("class=\"accent\">40 % slower than predicted, outside the interval"),
            std::string::npos);
  for (const char* part :
       {"class=\"band\" style=\"left:62.89%;width:31.45%\"",
        "class=\"predicted\" style=\"left:78.62%\"", "class=\"measured\" style=\"left:47.17%\""})
    EXPECT_NE(page.find(part), std::string::npos) << part;
  const std::string of_plan = html_report({.plan = vgg_plan()});
  EXPECT_NE(of_plan.find("samples/s predicted"), std::string::npos);
  EXPECT_EQ(of_plan.find("samples/s measured"), std::string::npos);
  EXPECT_EQ(html_report({.plan = {}}).find("id=\"headline\""), std::string::npos);
}

TEST(ReportPage, HostileNamesStayText) {
  ReportInput input = full_input();
  input.plan = hostile_plan();
  input.plan.stages.resize(std::max<size_t>(2, input.plan.stages.size()));
  input.timelines[0].source = "</script><script>alert(1)</script>";
  input.timelines[1].source = "<img onerror=alert(1)>\"'\xff";
  input.history->model = "<script>";
  input.notes = {"<script>alert(2)</script>"};
  input.changes = {{.change = "<script>", .feasible = false, .reason = "</table><script>"}};
  const std::string page = html_report(input);
  EXPECT_EQ(occurrences(page, "<script"), 3u);
  EXPECT_EQ(occurrences(page, "</script"), 3u);
  EXPECT_EQ(occurrences(page, "<img"), 0u);
  EXPECT_EQ(occurrences(page, "onload=\""), 0u);
  EXPECT_EQ(occurrences(page, "</table>"), occurrences(page, "<table>"));
  EXPECT_EQ(occurrences(page, "</style>"), 1u);
  for (const char c : page) EXPECT_TRUE(static_cast<unsigned char>(c) >= 0x20 || c == '\n');
}

TEST(ReportPage, RefusesTimelinesOfAnotherPlanAndTooLargeOnes) {
  ReportInput input = full_input();
  input.timelines[1].workers[0][0].action.stage = StageId{2};
  try {
    html_report(input);
    ADD_FAILURE() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "worker 0 of the measured timeline runs stage 2, the plan has 2 stages: they do "
                 "not belong together");
  }
  input.timelines = {
      {"wide", std::vector<std::vector<schedule::TimelineEvent>>(kMaxReportWorkers + 1)}};
  EXPECT_THROW(html_report(input), ConfigError);
  input.timelines = {{"long", {std::vector<schedule::TimelineEvent>(kMaxReportActions + 1)}}};
  EXPECT_THROW(html_report(input), ConfigError);
}

TEST(ReportPage, ShowsStagesLinksFamiliesChangesAndNotesOfThePlan) {
  const std::vector<plan::WhatIfResult> changes = {
      {.change = "one more server",
       .strategy = plan::Strategy::OneFOneB,
       .config = "19-1",
       .throughput_samples_per_s = 1622,
       .speedup = 1.247},
      {.change = "half the <memory>", .feasible = false, .reason = "layer 'fc6' needs 3.4 GB"}};
  const std::string page = html_report({.plan = vgg_plan(), .changes = changes});
  for (const char* part :
       {"<div id=\"bars\">", "<h2>Strategies</h2>", "<h2>What if</h2>", "<h2>Stages</h2>",
        "<h2>Links, per micro-batch</h2>", "<summary>Notes (", "conv1_1 .. pool5 (4 layers)",
        "+25 %", "layer &#39;fc6&#39; needs 3.4 GB", "half the &lt;memory&gt;",
        "45 % of its time is gradient synchronisation"}) {
    EXPECT_GT(occurrences(page, part), 0u) << part;
  }
  EXPECT_EQ(occurrences(page, "<tr class=\"winner\">"), 1u);
  EXPECT_EQ(occurrences(page, "<tr class=\"hot\">"), 1u) << "the slowest stage";
}

TEST(ReportPage, SaysWhyAFamilyIsNotThePlanOnce) {
  plan::Plan plan = vgg_plan();
  plan.explanation.alternatives = {
      {.strategy = plan::Strategy::GPipe,
       .config = "1x16",
       .throughput_samples_per_s = 1,
       .note = "is 0.10x as fast: the pipeline drains before every step."}};
  plan.explanation.notes = {"gpipe (1x16) is 0.10x as fast: the pipeline drains before every step.",
                            "12 of 16 workers are used."};
  const std::string page = html_report({.plan = plan});
  EXPECT_EQ(occurrences(page, "the pipeline drains before every step"), 1u);
  EXPECT_EQ(occurrences(page, "12 of 16 workers are used"), 1u);
}

TEST(ReportPage, HoldsMemoryAgainstTheGivenLimit) {
  const std::string page = html_report({.plan = vgg_plan(), .memory_limit_bytes = 8'000'000'000});
  EXPECT_NE(page.find("memory, of 8.00 GB"), std::string::npos);
}

TEST(ReportPage, OfAnyPlanIsBounded) {
  for (const auto& [name, plan] : sample_plans()) {
    EXPECT_LT(html_report({.plan = plan}).size(), 1'000'000u) << name;
  }
}

TEST(ReportPage, Of64WorkersAnd256MicroBatchesTwiceIsBelow5Megabytes) {
  ReportInput input{.plan = vgg_plan()};
  input.plan.stages.resize(64, input.plan.stages[0]);
  for (const uint64_t seed : {1, 2}) {
    // Measured times are as good as random ones; order and micro-batches are not.
    schedule::Timeline timeline = random_timeline(seed, 64, 64, 256 * 6);
    for (size_t w = 0; w < 64; ++w) {
      for (size_t k = 0; k < timeline.workers[w].size(); ++k) {
        schedule::Action& action = timeline.workers[w][k].action;
        constexpr schedule::Op kOps[] = {schedule::Op::RecvForward, schedule::Op::Forward,
                                         schedule::Op::SendForward, schedule::Op::RecvBackward,
                                         schedule::Op::Backward,    schedule::Op::SendBackward};
        action = {kOps[k % 6],
                  StageId{static_cast<int32_t>(w)},
                  MicroBatchId{static_cast<int64_t>(k / 6)},
                  MiniBatchId{0},
                  StageId{static_cast<int32_t>(w)},
                  false,
                  0,
                  WeightVersion{0}};
      }
    }
    input.timelines.push_back(timeline);
  }
  EXPECT_LT(html_report(input).size(), 5'000'000u);
}

}  // namespace
}  // namespace penstock::report

// Compares the tables with the files under tests/golden/reports. PENSTOCK_REGENERATE_GOLDEN=1
// rewrites the files instead; review the difference like code.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "penstock/report/plan/testing_plans.h"
#include "penstock/report/report.h"
#include "penstock/util/text/printable.h"

namespace penstock::report {
namespace {

const std::vector<plan::WhatIfResult> kChanges = {
    {.change = "one more server",
     .strategy = plan::Strategy::OneFOneB,
     .config = "19-1",
     .throughput_samples_per_s = 1622,
     .speedup = 1.247,
     .memory_bytes = 4'240'000'000},
    {.change = "twice the bandwidth of level rack",
     .strategy = plan::Strategy::DataParallel,
     .config = "16",
     .throughput_samples_per_s = 1270,
     .speedup = 0.976},
    {.change = "twice the memory (32.0 GB per worker)",
     .strategy = plan::Strategy::OneFOneB,
     .config = "15-1",
     .throughput_samples_per_s = 1301,
     .speedup = 1},
    {.change = "half the memory (8.00 GB per worker)",
     .feasible = false,
     .reason = "no plan fits: the minimum required is 8.2 GB"}};

void expect_equals_file(const std::string& text, const std::string& name) {
  const std::filesystem::path path = std::filesystem::path(PENSTOCK_GOLDEN_DIR) / (name + ".txt");
  const char* flag = std::getenv("PENSTOCK_REGENERATE_GOLDEN");
  if (flag != nullptr && std::string(flag) == "1") {
    std::ofstream(path) << text;
    return;
  }
  std::ifstream file(path);
  ASSERT_TRUE(file) << path << " is missing; run with PENSTOCK_REGENERATE_GOLDEN=1 to write it";
  std::stringstream expected;
  expected << file.rdbuf();
  EXPECT_EQ(text, expected.str()) << path << " differs";
}

size_t widest(const std::string& text) {
  size_t most = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) most = std::max(most, display_width(line));
  return most;
}

TEST(PlanTables, EqualTheFiles) {
  expect_equals_file(plan_table(vgg_plan()), "plan");
  expect_equals_file(compare_table(vgg_plan()), "compare");
  expect_equals_file(what_if_table(kChanges), "what_if");
  plan::Plan chain = chain_plan(6, 3);
  chain.explanation.optimality_gap = 0.013;
  chain.explanation.notes.clear();
  chain.prediction.bottleneck_ns = 0;
  chain.links.push_back({StageId{0}, StageId{4}, 900'000'000});
  expect_equals_file(plan_table(chain, 3'000'000'000), "plan_three_levels");
}

TEST(PlanTables, ThePredictionHasItsInterval) {
  plan::Plan plan = vgg_plan();
  plan.prediction.throughput_samples_per_s = 1301;
  plan.prediction.throughput_low_samples_per_s = 1170.4;
  plan.prediction.throughput_high_samples_per_s = 1431.4;
  EXPECT_NE(plan_table(plan).find("predicted 1,301 samples/s, 1,170 to 1,431, "), std::string::npos)
      << plan_table(plan);
}

TEST(PlanTables, StayWithin120ColumnsWhateverThePlan) {
  for (const auto& [name, plan] : sample_plans()) {
    EXPECT_LE(widest(plan_table(plan)), 120u) << name << "\n" << plan_table(plan);
    if (name == "hostile") continue;
    EXPECT_LE(widest(compare_table(plan)), 120u) << name << "\n" << compare_table(plan);
  }
}

TEST(PlanTables, NeverPrintControlCharacters) {
  for (const std::string& text : {plan_table(hostile_plan()), compare_table(hostile_plan()),
                                  what_if_table({{.change = "\x1b[2J", .reason = "\xff"}})}) {
    for (const char c : text)
      EXPECT_TRUE(static_cast<unsigned char>(c) >= 0x20 || c == '\n') << static_cast<int>(c);
  }
}

TEST(PlanTables, OfThousandsOfStagesShowTheFirstAndTheSlowest) {
  plan::Plan plan = chain_plan(2000, 1);
  plan.stages[1234].forward_ns = 500'000'000;
  const std::string text = plan_table(plan);
  EXPECT_NE(text.find("... and 1936 more"), std::string::npos);
  EXPECT_NE(text.find("\n 1234  "), std::string::npos) << text;
  EXPECT_LT(text.size(), 40'000u);
}

TEST(PlanTables, MemoryIsHeldAgainstTheGivenLimit) {
  EXPECT_NE(plan_table(vgg_plan()).find("memory limit 16.0 GB per worker"), std::string::npos);
  const std::string text = plan_table(vgg_plan(), 8'000'000'000);
  EXPECT_NE(text.find("memory limit 8.00 GB per worker"), std::string::npos);
  EXPECT_NE(text.find("53 %"), std::string::npos);
}

TEST(PlanTables, TheWinnerIsMarkedOnceAndComparedWithTheNextBest) {
  const std::string text = compare_table(vgg_plan());
  EXPECT_NE(text.find("\n*  1f1b"), std::string::npos) << text;
  EXPECT_NE(text.find("1f1b 15-1 wins: 1.85x the next best, dp 16. Synchronises 8x less than dp."),
            std::string::npos)
      << text;
  plan::Plan slower = vgg_plan();
  slower.prediction.throughput_samples_per_s =
      slower.explanation.alternatives[3].throughput_samples_per_s = 352;
  EXPECT_NE(compare_table(slower).find("1f1b 15-1 is this plan; dp 16 is 2.00x as fast."),
            std::string::npos)
      << compare_table(slower);
  slower.explanation.alternatives.clear();
  EXPECT_NE(compare_table(slower).find("\n*  1f1b"), std::string::npos)
      << "a plan without alternatives is its own table";
}

TEST(PlanTables, FamiliesWithoutAPlanForTheSameReasonShareALine) {
  plan::Plan plan = vgg_plan();
  for (const plan::Strategy strategy : {plan::Strategy::ZbV, plan::Strategy::Chimera}) {
    plan.explanation.alternatives.push_back(
        {.strategy = strategy, .config = "", .note = "not planned within the time limit"});
  }
  EXPECT_NE(compare_table(plan).find("- zb-v, chimera: not planned within the time limit"),
            std::string::npos)
      << compare_table(plan);
}

TEST(PlanTables, OfNothingAreShownNotCrashed) {
  EXPECT_FALSE(plan_table({}).empty());
  EXPECT_FALSE(compare_table({}).empty());
  EXPECT_EQ(what_if_table({}), "");
}

}  // namespace
}  // namespace penstock::report

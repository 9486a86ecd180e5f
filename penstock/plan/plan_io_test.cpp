#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <filesystem>

#include "penstock/plan/plan.h"
#include "penstock/util/error.h"
#include "penstock/util/json.h"
#include "tests/support/mutate.h"

namespace penstock::plan {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Plan sample_plan() {
  Plan plan;
  plan.model = "vgg16";
  plan.strategy = "1f1b";
  plan.weights = "stash";
  plan.cost_model = "penstock";
  plan.micro_batch_size = 64;
  plan.micro_batches = 1;
  plan.depth = 2;
  plan.cluster.levels = {{"server", 4, 12'000'000'000, 5'000, false}, {"rack", 2, 1'250'000'000, 20'000, true}};
  plan.cluster.device = {"v100", 16'000'000'000, 1.1};
  plan.stages = {{{"node2", "node3"}, 7, 10, 20, 1, 2, 100, 200, 300}, {{"node4"}, 1, 5, 6, 0, 0, 50, 60, 70}};
  plan.links = {{StageId{0}, StageId{1}, 64}};
  plan.bottleneck_ns = 12345;
  plan.throughput_samples_per_s = 1234.5678901234567;
  plan.alternatives = {{"dp", "8", 0.1}, {"serial", "1", 1e-300}};
  plan.notes = {"a note", "\"quoted\"\nsecond line"};
  return plan;
}

/// The sample as JSON with one piece replaced.
std::string with(const std::string& old_text, const std::string& new_text) {
  std::string text = to_json(sample_plan());
  const size_t at = text.find(old_text);
  EXPECT_NE(at, std::string::npos) << old_text;
  return text.replace(at, old_text.size(), new_text);
}

std::string refusal(const std::string& text) {
  return tests::message_of<ParseError>([&] { parse_plan(text, "plan.json"); });
}

TEST(PlanToJson, ParsesBackToTheSamePlan) { EXPECT_EQ(parse_plan(to_json(sample_plan()), "plan.json"), sample_plan()); }

TEST(PlanToJson, HasTheKeysThatScriptsRelyOn) {
  const Json document = parse_json(to_json(sample_plan()), "plan.json");
  EXPECT_EQ(document["config"], "7-1");
  EXPECT_EQ(document["throughput_samples_per_s"], 1234.5678901234567);
  EXPECT_EQ(document["bottleneck_ns"], 12345);
  EXPECT_EQ(document["depth"], 2);
  EXPECT_EQ(document["stages"][0]["compute_ns"], 30);
  EXPECT_EQ(document["stages"][0]["sync_ns"], 2);
  EXPECT_EQ(document["stages"][0]["memory_bytes"], 300);
  EXPECT_EQ(document["stages"][0]["replicas"], 7);
  EXPECT_EQ(document["stages"][1]["layers"], Json::array({"node4"}));
  EXPECT_EQ(document["alternatives"][0]["strategy"], "dp");
  EXPECT_EQ(document["alternatives"][0]["throughput_samples_per_s"], 0.1);
}

TEST(PlanToJson, RefusesAPlanThatCouldNotBeRead) { EXPECT_THROW(to_json(Plan()), ConfigError); }

TEST(ParsePlan, NamesPlaceAndKey) {
  EXPECT_EQ(refusal(with("\"replicas\": 7", "\"replicas\": 0")),
            "plan.json: stages[0].replicas: expected an integer from 1 to 2147483647, found 0");
  EXPECT_THAT(refusal(with("\"depth\": 2,", "")), HasSubstr("the key \"depth\" is missing"));
  EXPECT_THAT(refusal(with("\"to\": 1", "\"to\": 2")), AllOf(HasSubstr("plan.json: "), HasSubstr("link 0")));
  EXPECT_THAT(refusal(with("\"count\": 4", "\"count\": 2000000000")), HasSubstr("workers"));
  EXPECT_THAT(refusal(with("\"node4\"", "4")), HasSubstr("stages[1].layers[0]"));
}

TEST(ParsePlan, RefusesDerivedValuesThatDisagree) {
  EXPECT_THAT(refusal(with("\"7-1\"", "\"8\"")), AllOf(HasSubstr("config"), HasSubstr("\"7-1\"")));
  EXPECT_THAT(refusal(with("\"compute_ns\": 30", "\"compute_ns\": 31")), HasSubstr("stages[0].compute_ns"));
  EXPECT_EQ(parse_plan(with("\"config\": \"7-1\",", ""), "plan.json"), sample_plan());
}

TEST(ParsePlan, RefusesNumbersOutOfRange) {
  for (const char* number : {"-1", "1.5", "9223372036854775808", "1e18", "\"1\"", "null", "{}"}) {
    EXPECT_THAT(refusal(with("\"bytes\": 64", "\"bytes\": " + std::string(number))), HasSubstr("links[0].bytes")) << number;
  }
  EXPECT_THROW(parse_plan(with("1234.5678901234567", "1e999"), "plan.json"), ParseError);
  EXPECT_THROW(parse_plan(with("1234.5678901234567", "-1"), "plan.json"), ParseError);
  EXPECT_THROW(parse_plan(with("\"speed\": 1.1", "\"speed\": 0"), "plan.json"), ParseError);
  EXPECT_THROW(parse_plan(with("\"forward_ns\": 10", "\"forward_ns\": 9223372036854775807"), "plan.json"), ParseError);
}

TEST(ParsePlan, RefusesOtherDocuments) {
  for (const std::string& text : {std::string(), std::string("{}"), std::string("[1]"), std::string(100'000, '['), std::string("\0\1\2", 3),
                                  with("penstock-plan", "penstock-profile"), with("\"version\": 1", "\"version\": 99")}) {
    EXPECT_THROW(parse_plan(text, "plan.json"), ParseError) << text.substr(0, 40);
  }
}

TEST(ParsePlan, EveryTruncationIsRefused) {
  const std::string text = to_json(sample_plan());
  for (size_t length = 0; length + 2 < text.size(); ++length)
    EXPECT_THROW(parse_plan(text.substr(0, length), "plan.json"), ParseError) << length;
}

TEST(LoadPlan, RefusesAMissingFileAndADirectory) {
  EXPECT_THROW(load_plan("/nonexistent/plan.json"), ConfigError);
  EXPECT_THROW(load_plan(std::filesystem::temp_directory_path()), ConfigError);
}

Plan random_plan(Rng& rng) {
  const auto amount = [&] { return static_cast<int64_t>(rng.next() >> (2 + rng.below(62))); };
  Plan plan = sample_plan();
  plan.micro_batch_size = 1 + amount();
  plan.micro_batches = 1 + amount();
  plan.depth = 1 + amount();
  plan.bottleneck_ns = amount();
  plan.throughput_samples_per_s = rng.uniform() * static_cast<double>(amount());
  plan.cluster.device.speed = 1e-9 + rng.uniform();
  plan.stages.clear();
  for (uint64_t count = 1 + rng.below(5); plan.stages.size() < count;) {
    plan.stages.push_back({{"l" + std::to_string(plan.stages.size())},
                           static_cast<int>(1 + rng.below(1000)),
                           amount(),
                           amount(),
                           amount(),
                           amount(),
                           amount(),
                           amount(),
                           amount()});
  }
  plan.links.clear();
  for (uint64_t stage = 1; stage < plan.stages.size(); ++stage) {
    plan.links.push_back({StageId{static_cast<int32_t>(rng.below(stage))}, StageId{static_cast<int32_t>(stage)}, amount()});
  }
  for (Alternative& alternative : plan.alternatives) alternative.throughput_samples_per_s = rng.uniform() * 1e6;
  return plan;
}

RC_GTEST_PROP(PlanToJson, RandomPlansParseBackToThemselves, (uint64_t seed)) {
  Rng rng(seed);
  const Plan plan = random_plan(rng);
  RC_ASSERT(parse_plan(to_json(plan), "plan.json") == plan);
}

RC_GTEST_PROP(ParsePlan, DamagedTextIsReadOrRefused, (uint64_t seed)) {
  for (const std::string& text : tests::mutants(to_json(sample_plan()), seed, 20)) {
    try {
      validate(parse_plan(text, "plan.json"));
    } catch (const ParseError&) {
    }
  }
}

}  // namespace
}  // namespace penstock::plan

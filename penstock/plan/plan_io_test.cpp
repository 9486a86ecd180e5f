#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <filesystem>

#include "penstock/plan/plan.h"
#include "penstock/util/error.h"
#include "penstock/util/files/json.h"
#include "tests/support/mutate.h"

namespace penstock::plan {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Plan sample_plan() {
  Plan plan;
  plan.model = "vgg16";
  plan.strategy = plan::Strategy::OneFOneB;
  plan.weights = plan::WeightPolicy::Stash;
  plan.explanation.cost_model = "penstock";
  plan.micro_batch_size = 64;
  plan.micro_batches = 1;
  plan.depth = 2;
  plan.cluster.levels = {{"server", 4, 12'000'000'000, 5'000, false},
                         {"rack", 2, 1'250'000'000, 20'000, true}};
  plan.cluster.device = {"v100", 16'000'000'000, 1.1};
  plan.cluster.groups = {{6, 2, {"old", 8'000'000'000, 0.5}}};
  plan.cluster.cpu_machines = {3, 1'250'000'000};
  plan.cluster.levels[0].machine = true;
  plan.cluster.levels[1].processor_ns_per_gb = 850'000'000;
  plan.cluster.levels[1].processor_ns_per_message = 45'000;
  plan.cluster.machine = {2, 13'000'000'000, 12'000'000'000, 10'000'000'000, 150'000'000'000, 1};
  plan.sync = plan::GradientSync::Summation;
  plan.gradient_precision = FloatType::BFloat16;
  plan.optimizer_state_per_weight = 2.0;
  plan.stages = {{.layers = {"node2", "node3"},
                  .replicas = 7,
                  .forward_ns = 10,
                  .backward_ns = 20,
                  .backward_weight_ns = 9,
                  .accumulate_ns = 4,
                  .step_ns = 1,
                  .sync_ns = 2,
                  .weight_bytes = 100,
                  .stash_bytes = 200,
                  .memory_bytes = 300,
                  .first_worker = 1,
                  .recompute = true},
                 {.layers = {"node4"},
                  .replicas = 1,
                  .forward_ns = 5,
                  .backward_ns = 6,
                  .weight_bytes = 50,
                  .stash_bytes = 60,
                  .memory_bytes = 70,
                  .first_worker = 0}};
  plan.stages[0].shard_optimizer = true;
  plan.stages[0].shares_weights = true;
  plan.stages[0].waiting_bytes = 43;
  plan.stages[1].passes = {.first_bytes = 150, .last_bytes = 140, .only_bytes = 90, .steps = true};
  plan.slack = 4;
  plan.links = {{StageId{0}, StageId{1}, 64, 48}};
  plan.prediction.bottleneck_ns = 12345;
  plan.prediction.throughput_samples_per_s = 1234.5678901234567;
  plan.prediction.latency_ns = 777;
  plan.prediction.idle_share = 0.125;
  plan.prediction.bytes_per_sample = {0.5, 1e18};
  plan.explanation.optimality_gap = 0.03;
  plan.explanation.alternatives = {{plan::Strategy::DataParallel,
                                    "8",
                                    0.1,
                                    WeightPolicy::Flush,
                                    8,
                                    55,
                                    66,
                                    0.25,
                                    {1.5, 2.5},
                                    "why not"},
                                   {plan::Strategy::Serial, "1", 1e-300}};
  plan.explanation.notes = {"a note", "\"quoted\"\nsecond line"};
  return plan;
}

/// Four stages on two workers, each of which holds two.
Plan chunked_plan() {
  Plan plan = sample_plan();
  plan.strategy = plan::Strategy::ZbV;
  plan.weights = plan::WeightPolicy::Flush;
  plan.stages.assign(4, plan.stages[1]);
  for (size_t s = 0; s < 4; ++s) {
    plan.stages[s].first_worker = -1;
    plan.stages[s].layers = {"node" + std::to_string(s)};
  }
  plan.worker_of_replica = {0, 1, 1, 0};
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

TEST(PlanIo, BucketsAreReadBackAndChecked) {
  Plan plan = sample_plan();
  Stage& stage = plan.stages.front();
  ASSERT_GT(stage.replicas, 1);
  const std::string without = to_json(plan);
  EXPECT_EQ(without.find("buckets"), std::string::npos);
  stage.buckets = {{.weight_bytes = 7, .backward_ns = stage.backward_ns, .wire_ns = 11},
                   {.weight_bytes = 5,
                    .forward_ns = stage.forward_ns,
                    .backward_ns = 1,
                    .step_ns = 3,
                    .wire_ns = 2,
                    .server_ns = 4,
                    .processor_ns = 6}};
  stage.sync_latency_ns = 9;
  stage.waits_for_sums = true;
  EXPECT_EQ(parse_plan(to_json(plan), "p.json"), plan);
  // Needed no earlier and made no later than the bucket before.
  std::swap(stage.buckets[0], stage.buckets[1]);
  EXPECT_THROW(to_json(plan), ConfigError);
}

TEST(PlanToJson, ParsesBackToTheSamePlan) {
  EXPECT_EQ(parse_plan(to_json(sample_plan()), "plan.json"), sample_plan());
}

TEST(PlanIo, ThePrecisionIsReadBackAndNamesAreChecked) {
  Plan plan = sample_plan();
  plan.precision = Precision::Float16;
  plan.stages[0].short_weight_bytes = plan.stages[0].weight_bytes;
  EXPECT_EQ(parse_plan(to_json(plan), "p"), plan);
  std::string text = to_json(plan);
  text.replace(text.find("\"float16\""), 9, "\"fp16\"");
  EXPECT_THROW(parse_plan(text, "p"), ParseError);
  plan.stages[0].short_weight_bytes = plan.stages[0].weight_bytes + 1;
  EXPECT_THROW(to_json(plan), ConfigError);
}

TEST(PlanIo, CodingsOfLinksAreReadBackAndOthersAreNotWritten) {
  Plan plan = sample_plan();
  EXPECT_EQ(to_json(plan).find("coding"), std::string::npos);
  plan.links.front().coding = parse_boundary("subspace:160");
  plan.links.front().width = 512;
  EXPECT_EQ(parse_plan(to_json(plan), "p"), plan);
  std::string text = to_json(plan);
  text.replace(text.find("subspace:160"), 12, "subspace:no!");
  EXPECT_THAT(tests::message_of<ParseError>([&] { parse_plan(text, "p"); }),
              AllOf(HasSubstr("links[0].coding"), HasSubstr("expected a rank")));
  plan.links.front().coding.rank = 0;
  EXPECT_THROW(to_json(plan), ConfigError);
}

TEST(PlanIo, ConstantsOfAStageAreReadBack) {
  Plan plan = sample_plan();
  plan.stages[0].constant_bytes = 1'000'000;
  EXPECT_EQ(parse_plan(to_json(plan), "p"), plan);
  plan.stages[0].constant_bytes = -1;
  EXPECT_THROW(to_json(plan), ConfigError);
}

TEST(PlanToJson, HasTheIntervalWhereItIsKnown) {
  Plan plan = sample_plan();
  EXPECT_EQ(to_json(plan).find("throughput_low"), std::string::npos);
  plan.prediction.compute_spread = 0.1;
  plan.prediction.compute_error = 0.01;
  plan.prediction.throughput_low_samples_per_s = 900;
  plan.prediction.throughput_high_samples_per_s = 1100;
  EXPECT_EQ(parse_plan(to_json(plan), "plan.json"), plan);
}

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
  EXPECT_EQ(document["stages"][0]["first_worker"], 1);
  EXPECT_EQ(document["stages"][0]["recompute"], true);
  EXPECT_EQ(document["sync"], "summation");
  EXPECT_EQ(document["sync_precision"], "bfloat16");
  EXPECT_EQ(document["latency_ns"], 777);
  EXPECT_EQ(document["idle_share"], 0.125);
  EXPECT_EQ(document["bytes_per_sample"], Json::array({0.5, 1e18}));
  EXPECT_EQ(document["optimality_gap"], 0.03);
  EXPECT_EQ(document["alternatives"][0]["strategy"], "dp");
  EXPECT_EQ(document["alternatives"][0]["throughput_samples_per_s"], 0.1);
}

TEST(ParsePlan, ReadsOneNumberToKeepForAllStages) {
  Plan sample = sample_plan();
  sample.strategy = plan::Strategy::ZbAuto;
  sample.stages[1].keep = 3;
  Json document = parse_json(to_json(sample), "plan.json");
  document["keep"] = 5;
  const Plan plan = parse_plan(document.dump(), "plan.json");
  EXPECT_EQ(plan.stages[0].keep, 5);
  EXPECT_EQ(plan.stages[1].keep, 3);
  document["stages"][0]["keep"] = -1;
  EXPECT_THROW(parse_plan(document.dump(), "plan.json"), ParseError);
}

TEST(ParsePlan, RefusesANumberToKeepThatTheStrategyCannot) {
  Plan plan = sample_plan();
  plan.strategy = plan::Strategy::ZbAutoV;
  plan.stages[1].keep = 2;
  EXPECT_EQ(parse_plan(to_json(plan), "plan.json").stages[1].keep, 2);
  const auto refusal = [&] {
    try {
      to_json(plan);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  plan.stages[1].keep = 1;
  EXPECT_EQ(refusal(),
            "stage 1: a worker of schedule zb-auto-v keeps at least 2 micro-batches, one for each "
            "of its stages, found 1");
  plan.strategy = plan::Strategy::OneFOneB;
  EXPECT_EQ(
      refusal(),
      "stage 1: only these schedules keep what is asked for: zb-auto, zb-auto-v; found 1 for 1f1b");
}

TEST(PlanToJson, RefusesAPlanThatCouldNotBeRead) { EXPECT_THROW(to_json(Plan()), ConfigError); }

// What the first release wrote: none of the keys that came with version 2.
TEST(ParsePlan, ReadsVersion1) {
  const Plan plan = parse_plan(
      R"({"format": "penstock-plan", "version": 1, "model": "m", "config": "2-1",
    "strategy": "1f1b", "weights": "stash", "cost_model": "penstock",
    "throughput_samples_per_s": 9.5, "bottleneck_ns": 7, "micro_batch_size": 4,
    "micro_batches": 2, "depth": 2, "stages": [
     {"layers": ["a"], "replicas": 2, "compute_ns": 3, "forward_ns": 1, "backward_ns": 2,
      "step_ns": 1, "sync_ns": 5, "memory_bytes": 6, "weight_bytes": 7, "stash_bytes": 8},
     {"layers": ["b"], "replicas": 1, "forward_ns": 1, "backward_ns": 2, "weight_bytes": 7}],
    "links": [{"from": 0, "to": 1, "bytes": 64}],
    "alternatives": [{"strategy": "dp", "config": "3", "throughput_samples_per_s": 1.5}],
    "cluster": {"levels": [{"name": "flat", "count": 3, "bandwidth_bytes_per_s": 9,
                            "latency_ns": 0, "by_reference": false}],
    "device": {"name": "d", "memory_bytes": 0, "speed": 1.0}}, "notes": []})",
      "old.json");
  EXPECT_EQ(plan.config(), "2-1");
  EXPECT_EQ(plan.stages[0].first_worker, -1);
  EXPECT_FALSE(plan.stages[0].recompute);
  EXPECT_EQ(plan.sync, plan::GradientSync::Ordered);
  EXPECT_EQ(plan.gradient_precision, FloatType::Float32);
  EXPECT_EQ(plan.optimizer_state_per_weight, 1.0);
  EXPECT_TRUE(plan.prediction.bytes_per_sample.empty());
  EXPECT_TRUE(plan.cluster.groups.empty());
  EXPECT_EQ(plan.explanation.alternatives,
            (std::vector<Alternative>{{plan::Strategy::DataParallel, "3", 1.5}}));
  EXPECT_EQ(parse_plan(to_json(plan), "again.json"), plan);
}

TEST(PlanToJson, KeepsWhoHoldsWhichStages) {
  const Plan plan = chunked_plan();
  EXPECT_EQ(parse_json(to_json(plan), "plan.json")["hosts"], Json::array({0, 1, 1, 0}));
  EXPECT_EQ(parse_plan(to_json(plan), "plan.json"), plan);
}

TEST(ParsePlan, NamesAnUnknownStrategyAndThoseItKnows) {
  for (const std::string name : {"nope", "hybrid", ""}) {
    std::string text = to_json(sample_plan());
    const std::string found = "\"strategy\": \"1f1b\"";
    text.replace(text.find(found), found.size(), "\"strategy\": \"" + name + "\"");
    try {
      parse_plan(text, "plan.json");
      FAIL() << name;
    } catch (const ParseError& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("plan.json"));
      EXPECT_THAT(error.what(), ::testing::HasSubstr("strategy: unknown strategy '" + name +
                                                     "', expected one of serial, dp, mp, gpipe"));
    }
  }
}

// Until version 2 the backward time of a stage that recomputes contained the forward time.
TEST(ParsePlan, ConvertsTheRecomputingStagesOfVersion2) {
  Plan old = sample_plan();
  for (Stage& stage : old.stages) stage.backward_weight_ns = 0;
  std::string text = to_json(old);
  text.replace(text.find("\"version\": 3"), 12, "\"version\": 2");
  const Plan plan = parse_plan(text, "old.json");
  EXPECT_EQ(plan.stages[0].forward_ns, 10);
  EXPECT_EQ(plan.stages[0].backward_ns, 10);
  EXPECT_EQ(plan.stages[0].work_ns(), 30);
  EXPECT_EQ(plan.stages[1], old.stages[1]);
  EXPECT_EQ(parse_plan(to_json(plan), "new.json"), plan);
  // What is left of the backward pass bounds its part for the weights.
  old.stages[0].backward_weight_ns = 15;
  text = to_json(old);
  text.replace(text.find("\"version\": 3"), 12, "\"version\": 2");
  EXPECT_EQ(parse_plan(text, "old.json").stages[0].backward_weight_ns, 10);
}

TEST(ParsePlan, RefusesNamesOfNothingWithTheirKey) {
  const auto refusal = [](const std::string& key, const std::string& name) {
    Json document = parse_json(to_json(sample_plan()), "sample");
    document[key] = name;
    return tests::message_of<ParseError>([&] { parse_plan(to_text(document), "p.json"); });
  };
  EXPECT_THAT(refusal("weights", "none"),
              HasSubstr("p.json: weights: unknown weight policy 'none'"));
  EXPECT_THAT(refusal("weights", ""), HasSubstr("weights: unknown weight policy ''"));
  EXPECT_THAT(refusal("sync", "rings"),
              HasSubstr("p.json: sync: unknown gradient synchronisation 'rings'"));
  EXPECT_THAT(refusal("sync_precision", "float8"),
              HasSubstr("p.json: sync_precision: unknown precision of gradients 'float8'"));
  EXPECT_THAT(refusal("precision", "double"), HasSubstr("p.json: precision: unknown precision"));
}

TEST(ParsePlan, RefusesHostsThatCannotRun) {
  const auto refused = [](const std::vector<int>& worker_of_replica,
                          WeightPolicy weights = WeightPolicy::Flush) {
    Plan plan = chunked_plan();
    plan.worker_of_replica = worker_of_replica;
    plan.weights = weights;
    return tests::message_of<ConfigError>([&] { validate(plan); });
  };
  EXPECT_THAT(refused({0, 1, 1}), HasSubstr("each of the 4 replicas, found 3"));
  EXPECT_THAT(refused({0, 2, 2, 0}), HasSubstr("leaves out worker 1 of 3"));
  EXPECT_THAT(refused({0, 1, 1, -1}), HasSubstr("on worker -1"));
  EXPECT_THAT(refused({0, 1, 1, 2147483647}), HasSubstr("on worker 2147483647"));
  EXPECT_THAT(refused({0, 1, 1, 0}, WeightPolicy::Stash), HasSubstr("weights flush"));
  Plan twice = chunked_plan();
  twice.stages.resize(2);
  twice.links.clear();
  twice.stages[0].replicas = 2;
  twice.worker_of_replica = {0, 0, 1};
  EXPECT_THAT(tests::message_of<ConfigError>([&] { validate(twice); }),
              HasSubstr("two replicas of stage 0"));
  Plan placed = chunked_plan();
  placed.stages[1].first_worker = 1;
  EXPECT_THROW(validate(placed), ConfigError);
}

/// The sample with a team of two for its last stage, and one replica less of the first.
Plan plan_with_team() {
  Plan plan = sample_plan();
  plan.stages[0].replicas = 6;
  plan.stages[0].first_worker = 2;
  plan.stages[1].tensor = 2;
  plan.stages[1].team_bytes = 77;
  return plan;
}

TEST(PlanIo, TeamsAreReadBack) {
  const Plan plan = plan_with_team();
  EXPECT_EQ(plan.config(), "6-1t2");
  EXPECT_EQ(parse_plan(to_json(plan), "p.json"), plan);
  EXPECT_EQ(to_json(sample_plan()).find("tensor"), std::string::npos);
  EXPECT_EQ(to_json(plan).find("sequence"), std::string::npos);
  Plan in_places = plan;
  in_places.stages[1].sequence = true;
  EXPECT_EQ(parse_plan(to_json(in_places), "p.json"), in_places);
  Plan shared = chunked_plan();
  for (Stage& stage : shared.stages) stage.tensor = 4;
  EXPECT_EQ(parse_plan(to_json(shared), "p.json"), shared);
}

TEST(ParsePlan, RefusesTeamsThatCannotRun) {
  const auto refused = [](auto change) {
    Plan plan = plan_with_team();
    change(plan);
    return tests::message_of<ConfigError>([&] { validate(plan); });
  };
  EXPECT_EQ(refused([](Plan&) {}), "(nothing was thrown)");
  EXPECT_THAT(refused([](Plan& plan) { plan.stages[0].sequence = true; }),
              HasSubstr("stage 0 has sequence, which only stages with teams have"));
  EXPECT_THAT(refused([](Plan& plan) { plan.stages[1].tensor = 0; }),
              HasSubstr("stage 1: expected tensor of at least 1, found 0"));
  EXPECT_THAT(refused([](Plan& plan) { plan.stages[1].tensor = 1; }),
              HasSubstr("stage 1 has team_bytes"));
  EXPECT_THAT(refused([](Plan& plan) { plan.stages[1].tensor = 3; }),
              HasSubstr("stages 1 and 0 are both placed on worker 2 (first_worker, replicas and "
                        "tensor)"));
  EXPECT_THAT(refused([](Plan& plan) { plan.stages[0].tensor = 2; }),
              HasSubstr("stage 0: first_worker 2 with its replicas and their teams reaches worker "
                        "13, the cluster has 8 workers"));
  const auto shared_refused = [](int at_stage_0, int of_others) {
    Plan plan = chunked_plan();
    for (Stage& stage : plan.stages) stage.tensor = of_others;
    plan.stages[0].tensor = at_stage_0;
    return tests::message_of<ConfigError>([&] { validate(plan); });
  };
  EXPECT_THAT(shared_refused(2, 4), HasSubstr("hosts puts stages 0 and 3 on worker 0, whose teams "
                                              "have 2 and 4 members: expected as many"));
  EXPECT_THAT(shared_refused(5, 5), HasSubstr("the teams need 10 workers, the cluster has 8"));
  std::string text = to_json(plan_with_team());
  text.replace(text.find("\"tensor\": 2"), 11, "\"tensor\": 0");
  EXPECT_THAT(refusal(text), HasSubstr("stages[1].tensor: expected"));
}

TEST(ParsePlan, NamesTheNewKeysItRefuses) {
  EXPECT_THAT(refusal(with("\"first_worker\": 1", "\"first_worker\": -2")),
              HasSubstr("stages[0].first_worker: expected"));
  EXPECT_THAT(refusal(with("\"first_worker\": 1", "\"first_worker\": 2147483648")),
              HasSubstr("stages[0].first_worker: expected"));
  EXPECT_THAT(refusal(with("\"first_worker\": 1", "\"first_worker\": 2147483647")),
              HasSubstr("first_worker"));
  EXPECT_THAT(refusal(with("\"first_worker\": 1", "\"first_worker\": 0")),
              HasSubstr("stages 0 and 1 are both placed on worker 0"));
  EXPECT_THAT(refusal(with("\"first_worker\": 1", "\"first_worker\": 2")),
              HasSubstr("the cluster has 8 workers"));
  EXPECT_THAT(refusal(with("\"first_worker\": 1", "\"first_worker\": -1")),
              HasSubstr("found it for 1 of 2"));
  EXPECT_THAT(refusal(with("\"recompute\": true", "\"recompute\": 1")),
              HasSubstr("stages[0].recompute"));
  EXPECT_THAT(refusal(with("\"backward_weight_ns\": 9", "\"backward_weight_ns\": 21")),
              HasSubstr("at most backward_ns, 20, found 21"));
  EXPECT_THAT(refusal(with("\"backward_weight_ns\": 9", "\"backward_weight_ns\": -1")),
              HasSubstr("stages[0].backward_weight_ns"));
  EXPECT_THAT(refusal(with("\"accumulate_ns\": 4", "\"accumulate_ns\": -1")),
              HasSubstr("stages[0].accumulate_ns"));
  EXPECT_THAT(refusal(with("\"slack\": 4", "\"slack\": -1")), HasSubstr("slack"));
  EXPECT_THAT(refusal(with("\"hosts\": []", "\"hosts\": [0.5]")), HasSubstr("hosts[0]"));
  EXPECT_THAT(refusal(with("\"summation\"", "\"magic\"")),
              HasSubstr("'magic'; expected one of ordered"));
  EXPECT_THAT(refusal(with("\"latency_ns\": 777", "\"latency_ns\": -1")), HasSubstr("latency_ns"));
  EXPECT_THAT(refusal(with("\"idle_share\": 0.125", "\"idle_share\": 1.5")),
              HasSubstr("idle_share from 0 to 1"));
  EXPECT_THAT(refusal(with("\"idle_share\": 0.25", "\"idle_share\": -0.5")),
              HasSubstr("alternative 'dp': expected idle_share"));
  EXPECT_THAT(refusal(with("\"optimality_gap\": 0.03", "\"optimality_gap\": -1")),
              HasSubstr("optimality_gap"));
  EXPECT_THAT(
      refusal(with("\"optimizer_state_per_weight\": 2.0", "\"optimizer_state_per_weight\": \"x\"")),
      HasSubstr("optimizer_state_per_weight"));
  EXPECT_THAT(refusal(with("1e+18", "-1")), HasSubstr("bytes_per_sample"));
  EXPECT_THAT(refusal(with("0.5,", "")), HasSubstr("each of the cluster's 2 levels"));
  EXPECT_THAT(refusal(with("\"first\": 6", "\"first\": 7")), HasSubstr("plan.json"));
  EXPECT_THAT(refusal(with("\"first\": 6", "\"first\": -6")), HasSubstr("device_groups[0].first"));
  EXPECT_THAT(refusal(with("\"speed\": 0.5", "\"speed\": 0")), HasSubstr("plan.json"));
}

TEST(ParsePlan, NamesPlaceAndKey) {
  EXPECT_EQ(refusal(with("\"replicas\": 7", "\"replicas\": 0")),
            "plan.json: stages[0].replicas: expected an integer from 1 to 2147483647, found 0");
  EXPECT_THAT(refusal(with("\"depth\": 2,", "")), HasSubstr("the key \"depth\" is missing"));
  EXPECT_THAT(refusal(with("\"to\": 1", "\"to\": 2")),
              AllOf(HasSubstr("plan.json: "), HasSubstr("link 0")));
  EXPECT_THAT(refusal(with("\"count\": 4", "\"count\": 2000000000")), HasSubstr("workers"));
  EXPECT_THAT(refusal(with("\"node4\"", "4")), HasSubstr("stages[1].layers[0]"));
}

TEST(ParsePlan, RefusesDerivedValuesThatDisagree) {
  EXPECT_THAT(refusal(with("\"7-1\"", "\"8\"")), AllOf(HasSubstr("config"), HasSubstr("\"7-1\"")));
  EXPECT_THAT(refusal(with("\"compute_ns\": 30", "\"compute_ns\": 31")),
              HasSubstr("stages[0].compute_ns"));
  EXPECT_EQ(parse_plan(with("\"config\": \"7-1\",", ""), "plan.json"), sample_plan());
}

TEST(ParsePlan, RefusesNumbersOutOfRange) {
  for (const char* number : {"-1", "1.5", "9223372036854775808", "1e18", "\"1\"", "null", "{}"}) {
    EXPECT_THAT(refusal(with("\"bytes\": 64", "\"bytes\": " + std::string(number))),
                HasSubstr("links[0].bytes"))
        << number;
  }
  EXPECT_THROW(parse_plan(with("1234.5678901234567", "1e999"), "plan.json"), ParseError);
  EXPECT_THROW(parse_plan(with("1234.5678901234567", "-1"), "plan.json"), ParseError);
  EXPECT_THROW(parse_plan(with("\"speed\": 1.1", "\"speed\": 0"), "plan.json"), ParseError);
  EXPECT_THROW(
      parse_plan(with("\"forward_ns\": 10", "\"forward_ns\": 9223372036854775807"), "plan.json"),
      ParseError);
}

TEST(ParsePlan, RefusesOtherDocuments) {
  for (const std::string& text :
       {std::string(), std::string("{}"), std::string("[1]"), std::string(100'000, '['),
        std::string("\0\1\2", 3), with("penstock-plan", "penstock-profile"),
        with("\"version\": 3", "\"version\": 99")}) {
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
  plan.prediction.bottleneck_ns = amount();
  plan.prediction.throughput_samples_per_s = rng.uniform() * static_cast<double>(amount());
  plan.cluster.device.speed = 1e-9 + rng.uniform();
  plan.cluster.levels[0].count = 20'000;  // more than the stages can take
  plan.cluster.levels[1].count = 1;
  plan.optimizer_state_per_weight = rng.uniform() * 3;
  plan.explanation.optimality_gap = rng.uniform();
  plan.prediction.idle_share = rng.uniform();
  plan.prediction.latency_ns = amount();
  plan.prediction.bytes_per_sample = {rng.uniform() * static_cast<double>(amount()), rng.uniform()};
  const bool placed = rng.below(2) == 0;
  int next_worker = static_cast<int>(rng.below(1000));
  plan.stages.clear();
  for (uint64_t count = 1 + rng.below(5); plan.stages.size() < count;) {
    plan.stages.push_back({.layers = {"l" + std::to_string(plan.stages.size())},
                           .replicas = static_cast<int>(1 + rng.below(1000)),
                           .tensor = static_cast<int>(1 + rng.below(3)),
                           .forward_ns = amount(),
                           .backward_ns = amount(),
                           .accumulate_ns = amount(),
                           .step_ns = amount(),
                           .sync_ns = amount(),
                           .weight_bytes = amount(),
                           .stash_bytes = amount(),
                           .memory_bytes = amount(),
                           .recompute = rng.below(2) == 0});
    if (plan.stages.back().tensor > 1) {
      plan.stages.back().team_bytes = amount();
      plan.stages.back().sequence = rng.below(2) == 0;
    }
    plan.stages.back().backward_weight_ns = static_cast<int64_t>(
        rng.uniform() * 0.5 * static_cast<double>(plan.stages.back().backward_ns));
    if (!placed) continue;
    plan.stages.back().first_worker = next_worker;
    next_worker +=
        plan.stages.back().replicas * plan.stages.back().tensor + static_cast<int>(rng.below(100));
  }
  plan.links.clear();
  for (uint64_t stage = 1; stage < plan.stages.size(); ++stage) {
    plan.links.push_back({StageId{static_cast<int32_t>(rng.below(stage))},
                          StageId{static_cast<int32_t>(stage)}, amount()});
  }
  for (Alternative& alternative : plan.explanation.alternatives) {
    alternative.throughput_samples_per_s = rng.uniform() * 1e6;
    alternative.latency_ns = amount();
    alternative.memory_bytes = amount();
    alternative.micro_batches = amount();
    alternative.idle_share = rng.uniform();
  }
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

TEST(PlanIo, ACompensationIsReadWhereThereIsOne) {
  Plan plan = sample_plan();
  plan.compensation = Compensation::Rate;
  const std::string text = to_json(plan);
  EXPECT_THAT(text, HasSubstr("\"compensate\": \"rate\""));
  EXPECT_EQ(parse_plan(text, "p").compensation, Compensation::Rate);
  EXPECT_EQ(plan.weights_text(), "stash, compensated by rate");
  plan.compensation = Compensation::None;
  EXPECT_THAT(to_json(plan), Not(HasSubstr("compensate")));
  EXPECT_EQ(parse_plan(to_json(plan), "p"), plan);
  plan.compensation = Compensation::Predict;  // and a stage shares out the optimiser's state
  EXPECT_THROW(to_json(plan), ConfigError);
  plan.stages[0].shard_optimizer = false;
  plan.weights = WeightPolicy::Flush;
  EXPECT_THROW(to_json(plan), ConfigError);
}

}  // namespace
}  // namespace penstock::plan

// Whole trainings of models whose stages have teams, against one worker.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/model/zoo.h"
#include "penstock/shard/shard.h"
#include "penstock/train/checkpoint/test_folder.h"
#include "penstock/train/test_training.h"
#include "penstock/util/error.h"

namespace penstock::train {
namespace {

constexpr int64_t kTokens = 40;
constexpr int64_t kTime = 8;

model::Model small_gpt(bool untied = false) {
  return model::make_model({.name = "gpt",
                            .input_shape = {kTime},
                            .classes = kTokens,
                            .width = 32,
                            .depth = 2,
                            .heads = 4,
                            .dropout = 0.1,
                            .untied = untied});
}

DataSplit token_data(const model::Model& model, int64_t samples = 64) {
  DataSpec spec;
  spec.name = "synthetic";
  spec.sample = samples_for(model, {});
  spec.train_samples = samples;
  spec.test_samples = 24;
  return load_data(spec);
}

plan::Plan with_teams(plan::Plan plan, const std::vector<int>& teams) {
  for (size_t s = 0; s < teams.size(); ++s) plan.stages[s].tensor = teams[s];
  return plan;
}

TrainOptions options_of(plan::Plan plan) {
  TrainOptions options{.plan = std::move(plan), .mini_batch_size = 8, .epochs = 3};
  options.optimizer.kind = model::OptimizerKind::AdamW;
  options.learning_rate.base = 1e-3;
  options.keep_weights = true;
  return options;
}

void expect_near(const TrainResult& found, const TrainResult& expected) {
  ASSERT_EQ(found.losses.size(), expected.losses.size());
  for (size_t i = 0; i < found.losses.size(); ++i)
    EXPECT_NEAR(found.losses[i], expected.losses[i], 1e-5 * expected.losses[i]) << "step " << i;
  EXPECT_NEAR(*found.test_loss, *expected.test_loss, 1e-5 * *expected.test_loss);
  ASSERT_EQ(found.weights.size(), expected.weights.size());
  for (size_t l = 0; l < found.weights.size(); ++l) {
    ASSERT_EQ(found.weights[l].size(), expected.weights[l].size());
    for (size_t w = 0; w < found.weights[l].size(); ++w)
      EXPECT_TRUE(at::allclose(found.weights[l][w], expected.weights[l][w], 1e-3, 2e-4));
  }
}

TEST(TeamTraining, IsThatOfOneWorker) {
  const model::Model model = small_gpt();
  const DataSplit data = token_data(model);
  const TrainResult expected = train(model, data, options_of(plan_for(model, "serial", {1}, 2)));
  ASSERT_EQ(expected.losses.size(), 24);
  EXPECT_LT(expected.losses.back(), expected.losses.front());
  for (const int members : {2, 3, 4}) {
    const TrainResult found =
        train(model, data, options_of(with_teams(plan_for(model, "serial", {1}, 2), {members})));
    expect_near(found, expected);
  }
}

/// LSTMs that are spread: wide, and few places.
model::Model lstm_language_model() {
  return model::make_model({.name = "awd_lm",
                            .input_shape = {3},
                            .classes = kTokens,
                            .width = 160,
                            .depth = 2,
                            .embedding = 112,
                            .dropout = 0.1});
}

TEST(TeamTraining, OfHiddenUnitsIsThatOfOneWorker) {
  const model::Model model = lstm_language_model();
  const std::vector<StageId> stages(static_cast<size_t>(model.graph().num_layers()), StageId{0});
  const shard::Shares shares =
      shard::shard(std::make_shared<model::Model>(model), stages, {2}).shares[0];
  EXPECT_GT(shares.spread_numbers, 0.99 * static_cast<double>(shares.numbers));
  const DataSplit data = token_data(model);
  TrainOptions one = options_of(plan_for(model, "serial", {1}, 4));
  one.max_grad_norm = 0.5;
  const TrainResult expected = train(model, data, one);
  ASSERT_EQ(expected.losses.size(), 24);
  EXPECT_LT(expected.losses.back(), expected.losses.front());
  const auto check = [&](const char* strategy, const std::vector<int>& replicas,
                         const std::vector<int>& teams) {
    TrainOptions options = one;
    options.plan = with_teams(plan_for(model, strategy, replicas, 4), teams);
    expect_near(train(model, data, options), expected);
  };
  for (const int members : {2, 3, 4}) check("serial", {1}, {members});
  check("1f1b-flush", {1, 1}, {2, 2});
  check("1f1b-flush", {2, 1}, {2, 2});
  check("zb-h1", {1, 1}, {2, 2});
}

struct TeamCase {
  std::string name;
  std::string strategy;
  std::vector<int> replicas;
  std::vector<int> teams;
  int chunks = 1;
};

void PrintTo(const TeamCase& c, std::ostream* out) { *out << c.name; }

class TeamSchedules : public testing::TestWithParam<TeamCase> {};

INSTANTIATE_TEST_SUITE_P(
    Mixed, TeamSchedules,
    testing::Values(TeamCase{"pipeline", "1f1b-flush", {1, 1}, {2, 2}},
                    TeamCase{"replicas", "1f1b-flush", {2, 1}, {2, 2}},
                    TeamCase{"uneven_teams", "gpipe", {1, 1}, {4, 2}},
                    TeamCase{"growing_teams", "gpipe", {1, 1}, {2, 4}},
                    TeamCase{"one_whole_stage", "1f1b-flush", {1, 1}, {1, 3}},
                    TeamCase{"split_backward", "zb-h1", {1, 1}, {2, 2}},
                    TeamCase{"data_parallel", "dp", {2}, {2}},
                    TeamCase{"interleaved", "interleaved", {1, 1, 1, 1}, {2, 2, 2, 2}, 2}),
    [](const auto& info) { return info.param.name; });

TEST_P(TeamSchedules, AreThoseOfOneWorker) {
  const TeamCase& c = GetParam();
  const model::Model model = small_gpt(/*untied=*/true);
  const DataSplit data = token_data(model, 32);
  TrainOptions one = options_of(plan_for(model, "serial", {1}, 4));
  one.max_grad_norm = 0.5;
  const TrainResult expected = train(model, data, one);
  TrainOptions options = one;
  options.plan = with_teams(plan_for(model, c.strategy, c.replicas, 4, c.chunks), c.teams);
  const TrainResult found = train(model, data, options);
  expect_near(found, expected);
  // Again: the same bits.
  const TrainResult again = train(model, data, options);
  EXPECT_EQ(again.losses, found.losses);
  for (size_t l = 0; l < found.weights.size(); ++l) {
    for (size_t w = 0; w < found.weights[l].size(); ++w)
      EXPECT_TRUE(at::equal(again.weights[l][w], found.weights[l][w]));
  }
}

plan::Plan in_places(plan::Plan plan) {
  for (plan::Stage& stage : plan.stages) stage.sequence = stage.tensor > 1;
  return plan;
}

TEST(TeamTraining, PartsOfThePlacesAreThoseOfOneWorker) {
  const model::Model model = small_gpt(/*untied=*/true);
  const DataSplit data = token_data(model, 32);
  TrainOptions one = options_of(plan_for(model, "serial", {1}, 4));
  one.max_grad_norm = 0.5;
  const TrainResult expected = train(model, data, one);
  const auto check = [&](const char* strategy, const std::vector<int>& replicas,
                         const std::vector<int>& teams, bool recompute) {
    SCOPED_TRACE(strategy);
    TrainOptions options = one;
    options.plan = in_places(with_teams(plan_for(model, strategy, replicas, 4), teams));
    for (plan::Stage& stage : options.plan.stages) stage.recompute = recompute;
    expect_near(train(model, data, options), expected);
  };
  check("serial", {1}, {2}, false);
  check("serial", {1}, {4}, false);
  check("1f1b-flush", {1, 1}, {2, 2}, false);
  check("1f1b-flush", {2, 1}, {2, 2}, true);
  check("zb-h1", {1, 1}, {2, 2}, false);
  check("gpipe", {1, 1}, {1, 4}, false);
}

TEST(TeamTraining, DelayedWeightsAreThoseOfTheSamePipelineWithoutTeams) {
  const model::Model model = small_gpt(/*untied=*/true);
  const DataSplit data = token_data(model, 32);
  for (const char* strategy : {"1f1b", "2bw"}) {
    TrainOptions options = options_of(plan_for(model, strategy, {1, 1}, 4));
    const TrainResult expected = train(model, data, options);
    options.plan = with_teams(options.plan, {2, 2});
    expect_near(train(model, data, options), expected);
  }
}

TEST(TeamTraining, RecomputesAndSharesOutStates) {
  const model::Model model = small_gpt(/*untied=*/true);
  const DataSplit data = token_data(model, 32);
  TrainOptions options = options_of(plan_for(model, "1f1b-flush", {2, 1}, 4));
  const TrainResult expected = train(model, data, options);
  options.plan = with_teams(options.plan, {2, 2});
  options.plan.stages[0].recompute = true;
  options.plan.stages[1].recompute = true;
  options.plan.stages[0].shard_optimizer = true;
  expect_near(train(model, data, options), expected);
}

TEST(TeamTraining, AWeightMayBeSharedByStagesWithTeams) {
  const model::Model model = small_gpt();
  const DataSplit data = token_data(model, 32);
  const TrainResult expected = train(model, data, options_of(plan_for(model, "serial", {1}, 4)));
  expect_near(
      train(model, data, options_of(with_teams(plan_for(model, "1f1b-flush", {1, 1}, 4), {2, 2}))),
      expected);
}

TEST(TeamTraining, CheckpointsAreOfTheWholeModel) {
  const model::Model model = small_gpt(/*untied=*/true);
  const DataSplit data = token_data(model, 32);
  TrainOptions whole = options_of(plan_for(model, "serial", {1}, 4));
  const TrainResult expected = train(model, data, whole);

  // An epoch each: a team of two, two stages of teams, one worker.
  const TestFolder folder;
  TrainOptions options = options_of(with_teams(plan_for(model, "serial", {1}, 4), {2}));
  options.checkpoint = folder.path();
  options.resume = true;
  options.epochs = 1;
  std::vector<double> losses = train(model, data, options).losses;
  options.plan = with_teams(plan_for(model, "1f1b-flush", {1, 1}, 4), {2, 3});
  options.epochs = 2;
  for (const double loss : train(model, data, options).losses) losses.push_back(loss);
  options.plan = plan_for(model, "serial", {1}, 4);
  options.epochs = 3;
  const TrainResult last = train(model, data, options);
  for (const double loss : last.losses) losses.push_back(loss);
  ASSERT_EQ(losses.size(), expected.losses.size());
  for (size_t i = 0; i < losses.size(); ++i)
    EXPECT_NEAR(losses[i], expected.losses[i], 1e-5 * expected.losses[i]) << "step " << i;
}

TEST(TeamTraining, AStageMayBeginWithASpreadProduct) {
  // Its members behind the first read a value whose gradient another one gives.
  const model::Model model = model::make_model(
      {.name = "mlp", .input_shape = {20}, .classes = 8, .width = 64, .depth = 3});
  DataSpec spec;
  spec.name = "synthetic";
  spec.sample = samples_for(model, {});
  spec.train_samples = 32;
  spec.test_samples = 8;
  const DataSplit data = load_data(spec);
  plan::Plan two = plan_for(model, "serial", {1}, 4);
  two.strategy = plan::Strategy::GPipe;
  two.stages.resize(2);
  std::vector<std::string> layers = std::move(two.stages[0].layers);
  const auto cut = std::find(layers.begin(), layers.end(), "fc3");
  two.stages[0].layers.assign(layers.begin(), cut);
  two.stages[1].layers.assign(cut, layers.end());
  TrainOptions options{.plan = plan_for(model, "serial", {1}, 4), .mini_batch_size = 8};
  options.keep_weights = true;
  options.deadline = std::chrono::seconds(20);
  const TrainResult expected = train(model, data, options);
  for (const std::vector<int>& teams : {std::vector<int>{1, 2}, {2, 4}, {3, 2}}) {
    options.plan = with_teams(two, teams);
    expect_near(train(model, data, options), expected);
  }
}

TEST(TeamTraining, ClassifiersOfImages) {
  const model::Model model = model::make_model({.name = "lenet5"});
  DataSpec spec;
  spec.name = "synthetic";
  spec.sample = samples_for(model, {});
  spec.train_samples = 32;
  spec.test_samples = 8;
  const DataSplit data = load_data(spec);
  TrainOptions options{.plan = plan_for(model, "serial", {1}, 2), .mini_batch_size = 8};
  options.keep_weights = true;
  const TrainResult expected = train(model, data, options);
  options.plan = with_teams(options.plan, {2});
  expect_near(train(model, data, options), expected);
}

TEST(TeamTraining, RefusesWhatItCannotDo) {
  const model::Model model = small_gpt();
  const DataSplit data = token_data(model, 16);
  TrainOptions options = options_of(with_teams(plan_for(model, "1f1b-flush", {1, 1}, 4), {2, 1}));
  EXPECT_THAT([&] { (void)train(model, data, options); },
              testing::ThrowsMessage<ConfigError>(testing::HasSubstr("share a weight")));
  options = options_of(with_teams(plan_for(model, "serial", {1}, 4), {2}));
  options.optimizer.kind = model::OptimizerKind::AdamW;
  // Eight places.
  options.plan = in_places(with_teams(plan_for(model, "serial", {1}, 4), {3}));
  EXPECT_THAT([&] { (void)train(model, data, options); },
              testing::ThrowsMessage<ConfigError>(testing::HasSubstr("expected a multiple of 3")));
  options.plan = with_teams(plan_for(model, "serial", {1}, 4), {2});
  options.optimizer.kind = model::OptimizerKind::Lamb;
  EXPECT_THROW((void)train(model, data, options), ConfigError);
}

}  // namespace
}  // namespace penstock::train

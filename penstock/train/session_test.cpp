#include "penstock/train/session.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/runtime/testing_trap.h"
#include "penstock/train/checkpoint/test_folder.h"
#include "penstock/train/test_training.h"
#include "penstock/util/error.h"

namespace penstock::train {
namespace {

using runtime::testing::Trap;

class Sessions : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Strategies, Sessions,
                         testing::Values("1f1b-flush", "gpipe", "1f1b", "zb-h1"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST_P(Sessions, AnEpochIsThatOfTrain) {
  const model::Model model = branching_model();
  const DataSplit data = feature_data(100);
  TrainOptions options{.plan = plan_for(model, GetParam(), {1, 1, 1}, 4),
                       .mini_batch_size = 16,
                       .epochs = 2,
                       .keep_weights = true};
  const TrainResult expected = train(model, data, options);
  Session session(model, options);
  std::vector<double> losses;
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    const auto order = epoch_order(data.train->size(), options.seed, epoch, true);
    for (const StepResult& step : session.train(*data.train, order, epoch, 16))
      losses.push_back(step.loss);
  }
  EXPECT_EQ(losses, expected.losses);
  EXPECT_EQ(session.steps(), 14);
  const StepResult test = session.evaluate(*data.test, 4);
  EXPECT_EQ(test.loss, expected.test_loss);
  EXPECT_EQ(static_cast<double>(test.correct) / static_cast<double>(test.targets),
            expected.test_accuracy);
  const auto layers = session.snapshot();
  for (size_t l = 0; l < layers.size(); ++l) {
    for (size_t w = 0; w < layers[l].weights.size(); ++w)
      EXPECT_TRUE(layers[l].weights[w].equal(expected.weights[l][w]));
  }
}

TEST(Session, PartsOfAnEpochAreTheEpoch) {
  const model::Model model = branching_model(/*dropout=*/0.2);
  const DataSplit data = feature_data(100);
  const TrainOptions options{.plan = plan_for(model, "1f1b-flush", {1, 1}, 4)};
  const auto order = epoch_order(100, 1, 3, true);
  const std::vector<StepResult> expected = Session(model, options).train(*data.train, order, 3, 16);
  ASSERT_EQ(expected.size(), 7);
  const TestFolder folder;
  std::vector<double> losses;
  for (const EpochPart& part : {EpochPart{0, 2}, EpochPart{2, 1}, EpochPart{3, {}}}) {
    Session session(model, options);  // goes on from the one before
    if (part.first > 0) {
      const InsideEpoch inside = session.resume(folder.path()).inside;
      EXPECT_EQ(inside.steps, part.first);
      EXPECT_EQ(inside.samples, 100);
    }
    for (const StepResult& step : session.train(*data.train, order, 3, 16, {}, {}, part))
      losses.push_back(step.loss);
    if (session.steps() == 7) break;
    session.save(
        folder.path(),
        {.epochs = 3,
         .inside = {.steps = session.steps(), .batch_size = 16, .samples = 100, .shuffle = true}});
  }
  ASSERT_EQ(losses.size(), 7);
  for (size_t t = 0; t < losses.size(); ++t) EXPECT_EQ(losses[t], expected[t].loss);
  Session session(model, options);
  for (const EpochPart& part : {EpochPart{7, {}}, EpochPart{-1, {}}, EpochPart{0, 0}})
    EXPECT_THROW(session.train(*data.train, order, 3, 16, {}, {}, part), ConfigError);
}

TEST(Session, StepsOneByOneAreThoseOfAnEpoch) {
  const model::Model model = branching_model(/*dropout=*/0);
  const DataSplit data = feature_data(64);
  const TrainOptions options{.plan = plan_for(model, "1f1b-flush", {1, 1}, 4)};
  Session whole(model, options);
  Session steps(model, options);
  const auto order = epoch_order(64, 1, 0, false);
  const std::vector<StepResult> expected = whole.train(*data.train, order, 0, 16);
  ASSERT_EQ(expected.size(), 4);
  for (int64_t t = 0; t < 4; ++t) {
    const StepResult step = steps.step(batch_of(*data.train, 16 * t, 16));
    EXPECT_EQ(step.loss, expected[static_cast<size_t>(t)].loss);
    EXPECT_EQ(step.correct, expected[static_cast<size_t>(t)].correct);
    EXPECT_EQ(step.targets, 16);
  }
  EXPECT_EQ(steps.step(batch_of(*data.train, 0, 3)).samples, 3) << "fewer than micro-batches";
}

TEST(Session, GoesOnFromAState) {
  const model::Model model = branching_model(/*dropout=*/0);
  const DataSplit data = feature_data(64);
  const TrainOptions options{.plan = plan_for(model, "gpipe", {1, 1}, 2)};
  Session first(model, options);
  first.step(batch_of(*data.train, 0, 16));
  std::vector<runtime::LayerSnapshot> state = first.snapshot();
  for (runtime::LayerSnapshot& layer : state) {
    for (at::Tensor& weight : layer.weights) weight = weight.clone();
    for (model::Tensors& tensors : layer.optimizer_state) {
      for (at::Tensor& tensor : tensors) tensor = tensor.clone();
    }
  }
  const double expected = first.step(batch_of(*data.train, 16, 16)).loss;
  Session second(model, options);
  second.load(state, 1);
  EXPECT_EQ(second.steps(), 1);
  EXPECT_EQ(second.step(batch_of(*data.train, 16, 16)).loss, expected);
}

TEST(Session, IsForOneCallAtATime) {
  const model::Model model = branching_model();
  const DataSplit data = feature_data(64);
  Session session(model, {.plan = plan_for(model, "gpipe", {1, 1}, 2)});
  int refused = 0;
  session.train(*data.train, epoch_order(64, 1, 0, true), 0, 16, [&](const StepResult&) {
    try {
      session.step(batch_of(*data.train, 0, 4));
    } catch (const RuntimeError&) {
      ++refused;
    }
    return true;
  });
  EXPECT_EQ(refused, 4);
  EXPECT_EQ(session.step(batch_of(*data.train, 0, 4)).samples, 4);
}

TEST(Session, TheRatesOfACallCountInsteadOfTheOptions) {
  const model::Model model = branching_model(/*dropout=*/0);
  const DataSplit data = feature_data(64);
  const auto order = epoch_order(64, 1, 0, false);
  for (const char* strategy : {"1f1b-flush", "1f1b"}) {
    TrainOptions options{.plan = plan_for(model, strategy, {1, 1}, 4)};
    options.learning_rate = {.base = 0.1, .schedule = "step", .factor = 0.5, .every = 1};
    Session by_options(model, options);
    Session by_rates(model, {.plan = options.plan});
    const std::vector<StepResult> expected = by_options.train(*data.train, order, 0, 16);
    const std::vector<double> rates{0.1, 0.05, 0.025, 0.0125};
    const std::vector<StepResult> found = by_rates.train(*data.train, order, 0, 16, {}, rates);
    for (size_t t = 0; t < 4; ++t) {
      EXPECT_EQ(found[t].loss, expected[t].loss);
      EXPECT_EQ(found[t].learning_rate, rates[t]);
      EXPECT_EQ(expected[t].learning_rate, rates[t]);
    }
    EXPECT_EQ(by_rates.step(batch_of(*data.train, 0, 16), 0).learning_rate, 0);
    EXPECT_EQ(by_rates.step(batch_of(*data.train, 0, 16)).learning_rate, 0.05);
    EXPECT_THROW(by_rates.train(*data.train, order, 0, 16, {}, {0.1}), ConfigError);
    EXPECT_THROW(by_rates.step(batch_of(*data.train, 0, 16), NAN), ConfigError);
    EXPECT_EQ(by_rates.steps(), 6);
  }
}

TEST(Session, SchedulesThatEndNeedAnEnd) {
  const model::Model model = branching_model();
  TrainOptions options{.plan = plan_for(model, "gpipe", {1, 1}, 2)};
  options.learning_rate.schedule = "cosine";
  EXPECT_THROW(Session(model, options), ConfigError);
  options.learning_rate_steps = 10;
  EXPECT_NO_THROW(Session(model, options));
}

/// Four layers with weights; the trap stands between the second and the third one.
model::Model trapped(int fail_at) {
  model::ModelBuilder net("trapped");
  model::Value x = net.input({6});
  x = net.tanh(net.linear(x, {.features = 8, .name = "fc1"}));
  x = net.tanh(net.linear(x, {.features = 8, .name = "fc2"}));
  x = net.apply(std::make_shared<Trap>(Trap::What::ThrowLate, fail_at), {x}).front();
  x = net.tanh(net.linear(x, {.features = 8, .name = "fc3"}));
  return net.build(net.linear(x, {.features = 3, .name = "fc4"}));
}

TEST(Session, AfterAFailureTheStepsThatWereMadeAreCountedAndSaved) {
  const DataSplit data = feature_data(80);
  const auto order = epoch_order(80, 1, 0, false);
  for (const auto& [strategy, replicas] :
       std::vector<std::pair<std::string, std::vector<int>>>{{"serial", {1}}, {"gpipe", {1, 1}}}) {
    SCOPED_TRACE(strategy);
    const model::Model model = trapped(3 * 4 + 1);
    const TrainOptions options{.plan = plan_for(model, strategy, replicas, 4),
                               .mini_batch_size = 16};
    Session session(model, options);
    EXPECT_THROW(session.train(*data.train, order, 0, 16), RuntimeError);
    EXPECT_EQ(session.steps(), 3) << "the fourth of five steps fails";
    const TestFolder folder;
    session.save(folder.path(), {});
    const model::Model sound = trapped(-1);
    Session expected(sound, options);
    for (int64_t t = 0; t < 3; ++t) expected.step(batch_of(*data.train, 16 * t, 16));
    Session resumed(sound, options);
    resumed.resume(folder.path());
    EXPECT_EQ(resumed.steps(), 3);
    const Batch next = batch_of(*data.train, 48, 16);
    const double loss = expected.step(next).loss;
    EXPECT_EQ(session.step(next).loss, loss) << "it goes on itself";
    EXPECT_EQ(resumed.step(next).loss, loss);
    EXPECT_EQ(session.steps(), 4);
  }
}

TEST(Session, StagesThatHaveMadeDifferentNumbersOfStepsAreNotSaved) {
  const DataSplit data = feature_data(160);
  const model::Model model = trapped(12);
  const TrainOptions options{.plan = plan_for(model, "1f1b", {1, 1, 1}, 1), .mini_batch_size = 8};
  const TestFolder folder;
  Session session(model, options);
  session.save(folder.path(), {});
  const auto order = epoch_order(160, 1, 0, false);
  EXPECT_THROW(session.train(*data.train, order, 0, 8), RuntimeError);
  const auto refused = [&](const auto& call) {
    EXPECT_THAT(call, ::testing::ThrowsMessage<RuntimeError>(
                          ::testing::HasSubstr("there are no weights of one step: resume")));
  };
  refused([&] { session.save(folder.path(), {}); });
  refused([&] { session.snapshot(); });
  refused([&] { session.train(*data.train, order, 0, 8); });
  refused([&] { session.step(batch_of(*data.train, 0, 8)); });
  refused([&] { session.evaluate(*data.test, 8); });
  session.resume(folder.path());
  EXPECT_EQ(session.steps(), 0);
  EXPECT_EQ(session.train(*data.train, order, 0, 8).size(), 20u);
}

TEST(Session, RefusesBatchesThatDoNotFit) {
  const model::Model model = branching_model();
  Session session(model, {.plan = plan_for(model, "gpipe", {1, 1}, 2)});
  const at::Tensor classes = at::zeros({4}, at::kLong);
  EXPECT_THROW(session.step({{at::zeros({4, 7})}, classes}), ConfigError);
  EXPECT_THROW(session.step({{at::zeros({4, 6})}, at::zeros({3}, at::kLong)}), ConfigError);
  EXPECT_THROW(session.step({{at::zeros({4, 6})}, {}}), ConfigError);
  EXPECT_THROW(session.step({{at::zeros({4, 6})}, classes + 3}), ConfigError);
  EXPECT_THROW(session.step({{at::full({4, 6}, NAN)}, classes}), ConfigError);
  EXPECT_THROW(session.step({{at::zeros({4, 6}), classes}, classes}), ConfigError);
  EXPECT_EQ(session.step({{at::zeros({4, 6})}, classes}).samples, 4) << "it goes on";
}

}  // namespace
}  // namespace penstock::train

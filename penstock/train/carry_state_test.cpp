// Windows of one text whose hidden states are carried on: equal to a loop by hand, under every
// schedule, over ranks, after stops.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>

#include "penstock/model/sequence_builder.h"
#include "penstock/runtime/fabric/testing_ranks.h"
#include "penstock/train/checkpoint/test_folder.h"
#include "penstock/train/data/lengths.h"
#include "penstock/train/data/tensor_dataset.h"
#include "penstock/train/serial_check.h"
#include "penstock/train/test_training.h"
#include "penstock/util/error.h"

namespace penstock::train {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

constexpr int64_t kTextWords = 12;
constexpr int64_t kWindow = 5;
constexpr int64_t kParts = 8;
constexpr double kTextRate = 0.5;

model::Model language_model(double dropout = 0) {
  model::SequenceBuilder net("words");
  model::Value x = net.embedding(net.tokens("tokens", {kWindow}, kTextWords),
                                 {.values = kTextWords, .features = 6});
  x = net.lstm(x, {.features = 10, .weight_dropout = dropout, .name = "rnn0", .carries = true});
  if (dropout > 0) x = net.locked_dropout(x, dropout);
  x = net.lstm(x, {.features = 6, .weight_dropout = dropout, .name = "rnn1", .carries = true});
  return net.build(net.linear(x, {.features = kTextWords, .name = "head"}));
}

/// Windows of a text in which a token says little of the next one, and the one seven before it all.
std::shared_ptr<Dataset> text(int64_t windows, const model::Model& model) {
  const int64_t length = windows * kWindow + 1;
  at::Tensor tokens = at::empty({length}, at::kLong);
  for (int64_t i = 0; i < length; ++i)
    tokens[i] =
        i < 7 ? (5 * i + 3) % kTextWords : (tokens[i - 7].item<int64_t>() * 7 + i % 3) % kTextWords;
  return std::make_shared<TensorDataset>(
      "text", samples_for(model, model::loss_for(model, {})),
      model::Tensors{tokens.narrow(0, 0, length - 1).view({windows, kWindow})},
      tokens.narrow(0, 1, length - 1).view({windows, kWindow}));
}

/// 61 windows: seven steps of 8 parts, and five windows that are left over.
DataSplit text_data(const model::Model& model) {
  DataSplit data;
  data.train = text(61, model);
  data.test = text(19, model);
  return data;
}

TrainOptions carrying(plan::Plan plan) {
  TrainOptions options;
  options.plan = std::move(plan);
  options.mini_batch_size = kParts;
  options.epochs = 2;
  options.optimizer.momentum = 0;
  options.learning_rate = {.base = kTextRate};
  options.carry_state = true;
  options.evaluate = false;
  options.deadline = std::chrono::seconds(30);
  return options;
}

/// The same model as a loop over windows; the states are detached between them.
class ByHand {
 public:
  explicit ByHand(const model::Model& model, uint64_t seed) {
    for (int l = 0; l < model.graph().num_layers(); ++l) {
      for (const at::Tensor& weight : model.initial_weights(LayerId{l}, seed))
        weights_.push_back(weight.detach().clone().requires_grad_());
    }
  }
  void begin() { states_.clear(); }
  at::Tensor loss(const Dataset& data, const std::vector<int64_t>& windows) {
    at::Tensor x = at::embedding(weights_[0], data.inputs(windows).front());
    for (size_t layer = 0; layer < 2; ++layer) {
      const auto first = weights_.begin() + 1 + 4 * static_cast<std::ptrdiff_t>(layer);
      const int64_t features = first[1].size(1);
      if (states_.size() == 2 * layer) {
        for (int i = 0; i < 2; ++i) states_.push_back(at::zeros({1, kParts, features}));
      }
      at::Tensor hidden;
      at::Tensor cell;
      const model::Tensors before(states_.begin() + 2 * static_cast<std::ptrdiff_t>(layer),
                                  states_.begin() + 2 * static_cast<std::ptrdiff_t>(layer) + 2);
      std::tie(x, hidden, cell) =
          at::lstm(x, before, model::Tensors(first, first + 4), /*has_biases=*/true,
                   /*num_layers=*/1, /*dropout=*/0, /*train=*/true, /*bidirectional=*/false,
                   /*batch_first=*/true);
      states_[2 * layer] = hidden.detach();
      states_[2 * layer + 1] = cell.detach();
    }
    const at::Tensor logits = at::linear(x, weights_[9], weights_[10]);
    return at::cross_entropy_loss(logits.flatten(0, 1), data.targets(windows).flatten());
  }
  void step(const at::Tensor& loss) {
    const auto gradients = torch::autograd::grad({loss}, weights_);
    for (size_t w = 0; w < weights_.size(); ++w)
      weights_[w].variable_data().sub_(gradients[w], kTextRate);
  }

 private:
  model::Tensors weights_;
  model::Tensors states_;
};

std::vector<int64_t> windows_of(const std::vector<int64_t>& order, int64_t step) {
  return {order.begin() + step * kParts, order.begin() + (step + 1) * kParts};
}

TEST(CarryState, ATextIsReadInPartsSideBySide) {
  EXPECT_EQ(stream_order(11, 3), (std::vector<int64_t>{0, 3, 6, 1, 4, 7, 2, 5, 8}));
  EXPECT_EQ(stream_order(2, 3), std::vector<int64_t>{});
}

TEST(CarryState, OneWorkerTrainsAndEvaluatesLikeALoopByHand) {
  const model::Model model = language_model();
  const DataSplit data = text_data(model);
  TrainOptions options = carrying(plan_for(model, "serial", {1}, 1));
  options.evaluate = true;
  const TrainResult found = train(model, data, options);

  ByHand loop(model, options.seed);
  const std::vector<int64_t> order = stream_order(data.train->size(), kParts);
  ASSERT_EQ(found.losses.size(), 14U);
  for (size_t step = 0; step < found.losses.size(); ++step) {
    if (step % 7 == 0) loop.begin();
    const at::Tensor loss =
        loop.loss(*data.train, windows_of(order, static_cast<int64_t>(step % 7)));
    EXPECT_NEAR(found.losses[step], loss.item<double>(), 1e-5) << step;
    loop.step(loss);
  }
  loop.begin();
  double test_loss = 0;
  const std::vector<int64_t> test = stream_order(data.test->size(), kParts);
  for (int64_t k = 0; k < 2; ++k)
    test_loss += loop.loss(*data.test, windows_of(test, k)).item<double>() / 2;
  ASSERT_TRUE(found.test_loss.has_value());
  EXPECT_NEAR(*found.test_loss, test_loss, 1e-5);

  options.carry_state = false;
  options.shuffle = false;
  EXPECT_GT(std::abs(train(model, data, options).losses[3] - found.losses[3]), 1e-3);
}

TEST(CarryState, EveryFlushScheduleTrainsBitForBitLikeOneWorker) {
  const model::Model model = language_model(0.2);
  const DataSplit data = text_data(model);
  for (const ScheduleCase& c : std::vector<ScheduleCase>{{"dp", {2}},
                                                         {"mp", {1, 1}, 1},
                                                         {"gpipe", {2, 1, 2}, 4},
                                                         {"1f1b-flush", {2, 1}},
                                                         {"1f1b-flush", {1, 1, 1}, 3},
                                                         {"interleaved", {1, 1, 1, 1}, 4, 2},
                                                         {"zb-h1", {1, 1, 1}, 6},
                                                         {"zb-v", {1, 1, 1, 1}, 6, 2},
                                                         {"chimera", {2, 2}, 4}}) {
    for (const bool recomputes : {false, true}) {
      SCOPED_TRACE(c.strategy + (recomputes ? ", recomputed" : ""));
      TrainOptions options = carrying(plan_for(model, c));
      for (plan::Stage& stage : options.plan.stages) stage.recompute = recomputes;
      const SerialCheck check = check_against_serial(model, data, options, 14);
      EXPECT_EQ(check.tolerance, 0);
      EXPECT_EQ(check.losses, check.reference_losses);
      EXPECT_TRUE(check.equal()) << check.first_weight;
    }
  }
}

TEST(CarryState, DelayedSchedulesTrainLikeTheirReplay) {
  const model::Model model = language_model(0.2);
  const DataSplit data = text_data(model);
  for (const ScheduleCase& c : std::vector<ScheduleCase>{{"1f1b", {1, 1, 1}, 1},
                                                         {"1f1b", {2, 1}, 2},
                                                         {"1f1b", {1, 1}, 1, 1, "vertical-sync"},
                                                         {"2bw", {1, 1, 1}, 4}}) {
    SCOPED_TRACE(c.strategy);
    const SerialCheck check = check_against_serial(model, data, carrying(plan_for(model, c)), 14);
    EXPECT_EQ(check.losses.size(), 14U);
    EXPECT_TRUE(check.equal()) << check.largest_difference << check.first_weight;
  }
}

TEST(CarryState, EvaluationsDependOnNoPlan) {
  const model::Model model = language_model();
  const DataSplit data = text_data(model);
  TrainOptions options = carrying(plan_for(model, "serial", {1}, 3));  // of 2, 3 and 3 samples
  options.evaluate = true;
  const TrainResult serial = train(model, data, options);
  options.plan = plan_for(model, "1f1b-flush", {3, 1}, 3);
  options.gradient_groups = 3;
  const TrainResult pipeline = train(model, data, options);
  EXPECT_NEAR(*pipeline.test_loss, *serial.test_loss, 1e-6);
}

/// The states travel with a checkpoint inside an epoch, to any other plan of the same sums.
TEST(CarryState, AStoppedRunGoesOnExactly) {
  const model::Model model = language_model(0.2);
  const DataSplit data = text_data(model);
  TrainOptions options = carrying(plan_for(model, "1f1b-flush", {2, 1}, 4));
  options.gradient_groups = 4;
  options.keep_weights = true;
  const TrainResult whole = train(model, data, options);
  const TestFolder folder;
  options.checkpoint = folder.path();
  std::vector<double> losses;
  for (const auto& [plan, steps] :
       std::vector<std::pair<plan::Plan, int64_t>>{{options.plan, 3},
                                                   {plan_for(model, "serial", {1}, 4), 5},
                                                   {plan_for(model, "dp", {4}, 4), 7},
                                                   {options.plan, 9},
                                                   {options.plan, 14}}) {
    options.plan = plan;
    options.max_steps = steps;
    const TrainResult part = train(model, data, options);
    losses.insert(losses.end(), part.losses.begin(), part.losses.end());
    options.resume = true;
    if (steps < 14) continue;
    for (size_t l = 0; l < whole.weights.size(); ++l) {
      for (size_t w = 0; w < whole.weights[l].size(); ++w)
        EXPECT_TRUE(at::equal(part.weights[l][w], whole.weights[l][w])) << l << ' ' << w;
    }
  }
  EXPECT_EQ(losses, whole.losses);
}

TEST(CarryState, ACheckpointInsideATextIsReadInTheSameWayOnly) {
  const model::Model model = language_model();
  const DataSplit data = text_data(model);
  const TestFolder folder;
  TrainOptions options = carrying(plan_for(model, "serial", {1}, 1));
  options.checkpoint = folder.path();
  options.max_steps = 3;
  train(model, data, options);
  options.resume = true;
  options.carry_state = false;
  options.max_steps = 5;
  const auto message = [&] {
    try {
      train(model, data, options);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("nothing was refused");
  };
  EXPECT_THAT(message(), HasSubstr("inside an epoch with carried states, this run is without"));
  options.carry_state = true;
  EXPECT_EQ(train(model, data, options).losses.size(), 2U);
}

TEST(CarryState, WhatCannotCarryIsRefused) {
  const auto message = [](const model::Model& model, const DataSplit& data,
                          const TrainOptions& options) {
    try {
      train(model, data, options);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("nothing was refused");
  };
  const model::Model words = language_model();
  const DataSplit data = text_data(words);
  const TrainOptions options = carrying(plan_for(words, "serial", {1}, 1));
  const model::Model other = branching_model();
  EXPECT_THAT(message(other, feature_data(), carrying(plan_for(other, "serial", {1}, 1))),
              HasSubstr("'branching' has none"));
  TrainOptions wrong = options;
  wrong.lengths = Lengths::Batch;
  EXPECT_THAT(message(words, data, wrong), HasSubstr("expected the lengths whole"));
  wrong = options;
  wrong.evaluate = true;
  wrong.mini_batch_size = 20;
  EXPECT_THAT(message(words, data, wrong), HasSubstr("the test set has 19 windows"));
  wrong = options;
  wrong.plan = plan_for(words, "dp", {2}, 3);
  EXPECT_THAT(message(words, data, wrong), HasSubstr("stage 0 has 2 replicas"));
}

class CarryStateOnRanks : public ::testing::TestWithParam<runtime::testing::RankRig> {};
INSTANTIATE_TEST_SUITE_P(Fabrics, CarryStateOnRanks,
                         ::testing::ValuesIn(runtime::testing::rank_rigs()),
                         [](const auto& rig) { return rig.param.name; });

TEST_P(CarryStateOnRanks, StatesOfReplicasAreSavedByAllRanks) {
  const model::Model model = language_model(0.2);
  const DataSplit data = text_data(model);
  TrainOptions options = carrying(plan_for(model, "1f1b-flush", {2, 1}, 4));
  const TrainResult expected = train(model, data, options);
  const TestFolder folder;
  options.checkpoint = folder.path();
  std::vector<double> losses;
  for (const int64_t steps : {3, 5, 14}) {
    options.max_steps = steps;
    std::vector<TrainResult> results(3);
    const auto failures =
        runtime::testing::on_ranks(GetParam(), {1, 0, 2}, [&](runtime::World& world, size_t rank) {
          TrainOptions own = options;
          own.world = &world;
          results[rank] = train(model, data, own);
        });
    ASSERT_THAT(failures, Each(""));
    losses.insert(losses.end(), results[0].losses.begin(), results[0].losses.end());
    options.resume = true;
  }
  EXPECT_EQ(losses, expected.losses);
}

}  // namespace
}  // namespace penstock::train

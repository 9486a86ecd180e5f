// Sessions of several ranks, which are threads here that share memory or are joined by sockets:
// they learn what one rank learns, and say so when they are not asked for the same.
#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/runtime/fabric/testing_ranks.h"
#include "penstock/train/checkpoint/test_folder.h"
#include "penstock/train/session.h"
#include "penstock/train/test_training.h"
#include "penstock/util/error.h"

namespace penstock::train {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

using runtime::testing::on_ranks;
using runtime::testing::rank_rigs;

class SessionRanks : public ::testing::TestWithParam<runtime::testing::RankRig> {};
INSTANTIATE_TEST_SUITE_P(Fabrics, SessionRanks, ::testing::ValuesIn(rank_rigs()),
                         [](const auto& rig) { return rig.param.name; });

TrainOptions session_options(const model::Model& model, runtime::World* world = nullptr) {
  TrainOptions options{.plan = plan_for(model, "1f1b-flush", {2, 1}, 4)};
  options.optimizer.kind = model::OptimizerKind::Adam;
  options.world = world;
  return options;
}

/// Two steps, an epoch, an evaluation; then a checkpoint, if there is a folder for it.
std::vector<double> train_a_little(Session& session, const DataSplit& data,
                                   const std::filesystem::path& folder = {}) {
  std::vector<double> losses;
  for (int64_t t = 0; t < 2; ++t)
    losses.push_back(session.step(batch_of(*data.train, 16 * t, 16)).loss);
  const auto order = epoch_order(data.train->size(), 1, 0, true);
  for (const StepResult& step : session.train(*data.train, order, 0, 16))
    losses.push_back(step.loss);
  losses.push_back(session.evaluate(*data.test, 8).loss);
  if (!folder.empty()) session.save(folder, {.epochs = 1});
  return losses;
}

TEST_P(SessionRanks, LearnWhatOneRankLearns) {
  const model::Model model = branching_model(0.2, /*tied=*/true);
  const DataSplit data = feature_data(64);
  Session alone(model, session_options(model));
  const TestFolder folder;
  const std::vector<double> expected = train_a_little(alone, data, folder.path() / "alone");
  const auto layers = alone.snapshot();
  const auto failures = on_ranks(GetParam(), {0, 1, 2}, [&](runtime::World& world, size_t) {
    Session session(model, session_options(model, &world));
    EXPECT_EQ(train_a_little(session, data, folder.path() / "ranks"), expected);
    const auto found = session.snapshot();
    for (size_t l = 0; l < layers.size(); ++l) {
      ASSERT_EQ(found[l].weights.size(), layers[l].weights.size());
      for (size_t w = 0; w < layers[l].weights.size(); ++w)
        EXPECT_TRUE(found[l].weights[w].equal(layers[l].weights[w]));
      EXPECT_EQ(found[l].optimizer_state.size(), layers[l].optimizer_state.size());
    }
    // From the other one's checkpoint, each as from its own.
    Session next(model, session_options(model, &world));
    EXPECT_EQ(next.resume(folder.path() / "alone").epochs, 1);
    EXPECT_EQ(next.steps(), 6);
    EXPECT_EQ(next.step(batch_of(*data.train, 0, 16)).loss,
              session.step(batch_of(*data.train, 0, 16)).loss);
  });
  EXPECT_THAT(failures, Each(""));
  Session next(model, session_options(model));
  EXPECT_EQ(next.resume(folder.path() / "ranks").epochs, 1);
  EXPECT_EQ(next.step(batch_of(*data.train, 0, 16)).loss,
            alone.step(batch_of(*data.train, 0, 16)).loss);
}

TEST_P(SessionRanks, TakeTheRatesOfRankZero) {
  const model::Model model = branching_model(/*dropout=*/0);
  const DataSplit data = feature_data(64);
  const auto order = epoch_order(64, 1, 0, true);
  const auto losses = [&](Session& session, double factor) {
    EXPECT_EQ(session.step(batch_of(*data.train, 0, 16), 0.3 * factor).learning_rate, 0.3);
    std::vector<double> result;
    const std::vector<double> rates{0.1 * factor, 0.2 * factor, 0.3 * factor, 0.4 * factor};
    for (const StepResult& step : session.train(*data.train, order, 0, 16, {}, rates))
      result.push_back(step.loss);
    return result;
  };
  Session alone(model, session_options(model));
  const std::vector<double> expected = losses(alone, 1);
  const auto failures = on_ranks(GetParam(), {0, 1, 2}, [&](runtime::World& world, size_t rank) {
    Session session(model, session_options(model, &world));
    EXPECT_EQ(losses(session, rank == 0 ? 1 : 7), expected);
  });
  EXPECT_THAT(failures, Each(""));
}

TEST_P(SessionRanks, RefuseDifferentDataAndCalls) {
  const model::Model model = branching_model();
  const DataSplit data = feature_data(64);
  const auto failures = on_ranks(GetParam(), {0, 1, 1}, [&](runtime::World& world, size_t rank) {
    Session session(model, session_options(model, &world));
    const auto own = static_cast<int64_t>(rank);
    EXPECT_THROW(session.step(batch_of(*data.train, 16 * own, 16)), ConfigError);
    EXPECT_EQ(session.step(batch_of(*data.train, 0, 16)).samples, 16) << "they go on";
    Batch bad = batch_of(*data.train, 0, 16);
    if (rank == 1) bad.inputs[0].index_put_({0, 0}, NAN);
    EXPECT_THROW(session.step(bad), ConfigError);
    if (rank == 0) session.evaluate(*data.test, 8);
    session.step(batch_of(*data.train, 0, 16));
  });
  EXPECT_THAT(failures, Each(AllOf(HasSubstr("the ranks must make the same calls"),
                                   HasSubstr("rank 0 evaluates synthetic"),
                                   HasSubstr("rank 1 makes step 2 with the batch, 16 samples"))));
}

TEST_P(SessionRanks, OneThatGivesUpEndsTheOthers) {
  const model::Model model = branching_model();
  const DataSplit data = feature_data(64);
  const auto failures = on_ranks(GetParam(), {0, 1, 1}, [&](runtime::World& world, size_t rank) {
    Session session(model, session_options(model, &world));
    if (rank == 0)
      session.give_up("a callback raised ValueError");
    else
      session.step(batch_of(*data.train, 0, 16));
  });
  ASSERT_EQ(failures.size(), 2u);
  EXPECT_EQ(failures[0], "");
  EXPECT_THAT(failures[1], HasSubstr("rank 0: a callback raised ValueError"));
}

}  // namespace
}  // namespace penstock::train

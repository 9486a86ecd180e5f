// From a request to a run and its results, as a program that uses the library does.
#include "penstock/job/prepare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "penstock/util/error.h"
#include "penstock/util/files/json.h"

namespace penstock::job {
namespace {

using ::testing::HasSubstr;

options::TrainRequest small_request() {
  options::TrainRequest request{.model = {.name = "mlp", .width = 8, .depth = 2}};
  request.data.name = "synthetic";
  request.data.train_samples = 64;
  request.data.test_samples = 16;
  request.plan.strategy = plan::Strategy::OneFOneBFlush;
  request.plan.workers = 2;
  request.plan.micro_batches = 4;
  request.plan.profile_cache = "off";
  request.run.batch_size = 16;
  request.run.steps = 3;
  return request;
}

/// A folder that goes with the test.
struct Folder {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() /
      ("penstock-prepare-" + std::to_string(::testing::UnitTest::GetInstance()->random_seed()) +
       "-" + ::testing::UnitTest::GetInstance()->current_test_info()->name());
  Folder() { std::filesystem::create_directories(path); }
  ~Folder() { std::filesystem::remove_all(path); }
};

TEST(Prepare, ARequestBecomesARunAndItsArtifacts) {
  options::TrainRequest request = small_request();
  request.output.history = "history.json";
  request.output.json = true;
  const PreparedRun run = prepare(request, nullptr, {});
  EXPECT_EQ(run.train.plan.strategy, plan::Strategy::OneFOneBFlush);
  EXPECT_EQ(run.train.plan.num_workers(), 2);
  EXPECT_FALSE(run.is_finished);
  const train::TrainResult result = train(run, {});
  ASSERT_EQ(result.losses.size(), 3u);
  const std::vector<Artifact> all = artifacts(run, result, {});
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].path, "history.json");
  EXPECT_EQ(parse_json(all[0].make(), "history").at("steps").size(), 3u);
  EXPECT_EQ(all[1].path, "");
  EXPECT_EQ(parse_json(all[1].make(), "summary").at("losses").size(), 3u);
}

TEST(Prepare, MadeDataHasALearningRateOfItsOwnUnlessOneIsChosen) {
  options::TrainRequest request = small_request();
  EXPECT_EQ(prepare(request, nullptr, {}).train.learning_rate.base, options::kMadeDataRate);
  EXPECT_EQ(prepare(request, nullptr, {.given = {"--lr"}}).train.learning_rate.base, 0.05);
  request.rates.base = 0.2;
  EXPECT_EQ(prepare(request, nullptr, {}).train.learning_rate.base, 0.2);
}

TEST(Prepare, TheSameRunIsEqualToOneWorker) {
  const PreparedRun run = prepare(small_request(), nullptr, {});
  EXPECT_TRUE(check_against_serial(run, {}).equal);
}

TEST(Prepare, TellsWhatTheUserShouldKnowAndKeepsIt) {
  options::TrainRequest request = small_request();
  request.optimizer.kind = model::OptimizerKind::Adam;
  std::string told;
  const PreparedRun run = prepare(
      request, nullptr,
      {.given = {"--momentum"}, .listener = {.say = [&](const auto& text) { told += text; }}});
  EXPECT_THAT(told, HasSubstr("--momentum has no effect"));
  EXPECT_THAT(run.warnings, HasSubstr("--momentum has no effect"));
}

TEST(Prepare, MicroBatchesAreNoMoreThanSamples) {
  options::TrainRequest request = small_request();
  request.plan.micro_batches = 32;
  const PreparedRun run = prepare(request, nullptr, {});
  EXPECT_EQ(run.train.plan.micro_batches, 16);
  EXPECT_EQ(run.request.plan.micro_batches, 16);
}

TEST(Prepare, CheckpointsKeepTheCodingsThatThePlanHas) {
  options::TrainRequest request = small_request();
  EXPECT_EQ(prepare(request, nullptr, {}).train.settings.at("--boundary"), "float32");
  request.plan.boundary = options::BoundaryRequest{plan::parse_boundary("int8")};
  EXPECT_EQ(prepare(request, nullptr, {}).train.settings.at("--boundary"), "int8");
  // The last worker hands over to itself.
  request.model.depth = 4;
  request.plan.strategy = plan::Strategy::ZbV;
  EXPECT_EQ(prepare(request, nullptr, {}).train.settings.at("--boundary"), "float32 and int8");
}

TEST(Prepare, ARunThatIsCompleteIsFinished) {
  const Folder folder;
  options::TrainRequest request = small_request();
  request.run.checkpoint = folder.path / "checkpoints";
  {
    const PreparedRun run = prepare(request, nullptr, {});
    train(run, {});
  }
  EXPECT_THROW(prepare(request, nullptr, {}), ConfigError);
  request.run.resume = true;
  const PreparedRun again = prepare(request, nullptr, {});
  EXPECT_TRUE(again.is_finished);
  EXPECT_TRUE(train(again, {}).losses.empty());
}

TEST(Prepare, ASecondRunOfTheSameOutputsIsRefused) {
  const Folder folder;
  for (const auto member : {&options::OutputRequest::history, &options::OutputRequest::html,
                            &options::OutputRequest::trace}) {
    options::TrainRequest request = small_request();
    request.output.*member = folder.path / "result";
    const PreparedRun run = prepare(request, nullptr, {});
    EXPECT_THROW(prepare(request, nullptr, {}), ConfigError);
  }
  options::TrainRequest request = small_request();
  request.run.checkpoint = folder.path / "checkpoints";
  const PreparedRun run = prepare(request, nullptr, {});
  EXPECT_THROW(prepare(request, nullptr, {}), ConfigError);
}

TEST(Prepare, AStoppedRunNeedsNoPlan) {
  const std::atomic<bool> stop{true};
  const PreparedRun run = prepare(small_request(), nullptr, {.stop = &stop});
  EXPECT_EQ(run.train.plan.num_workers(), 1);
  EXPECT_TRUE(train(run, {}).interrupted);
}

TEST(Prepare, RefusesWhatCannotBe) {
  options::TrainRequest request = small_request();
  request.plan.workers = 2000;
  EXPECT_THROW(prepare(request, nullptr, {}), ConfigError);
  request = small_request();
  request.data.name = "no-such-data";
  EXPECT_THROW(prepare(request, nullptr, {}), ConfigError);
  request = small_request();
  request.model.name = "no-such-model";
  EXPECT_THROW(prepare(request, nullptr, {}), ConfigError);
}

}  // namespace
}  // namespace penstock::job

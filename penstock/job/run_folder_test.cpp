#include "penstock/job/run_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "penstock/util/error.h"
#include "penstock/util/files/files.h"
#include "penstock/util/files/json.h"

namespace penstock::job {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

/// A place for the folders of runs that goes with the test.
struct RunPlace {
  fs::path path =
      fs::temp_directory_path() / (std::string("penstock-run-folder-") +
                                   ::testing::UnitTest::GetInstance()->current_test_info()->name());
  RunPlace() { fs::create_directories(path); }
  ~RunPlace() { fs::remove_all(path); }
};

plan::Plan some_plan() {
  plan::Plan plan;
  plan.stages.resize(1);
  plan.stages[0].layers = {"fc"};
  plan.cluster = cluster::local_cluster(1, 1);
  return plan;
}

std::string claim_refusal(const options::TrainRequest& request) {
  try {
    claim_run_folder(request);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "taken";
}

TEST(RunFolder, OneThatHoldsAnotherRunIsRefused) {
  const RunPlace place;
  RunRecord record{.asked = {.model = {.name = "mlp"}}, .mini_batch_size = 64};
  options::TrainRequest& request = record.asked;
  EXPECT_EQ(claim_refusal(request), "taken");  // none is asked for
  request.operation.folder = (place.path / "runs/1").string();
  EXPECT_EQ(claim_refusal(request), "taken");
  EXPECT_EQ(claim_refusal(request), "taken");  // nothing is in it yet
  write_run_folder(record, some_plan());
  EXPECT_THAT(claim_refusal(request), HasSubstr("holds another run: choose another folder"));
  request.run.checkpoint = "saved";
  EXPECT_THAT(claim_refusal(request), HasSubstr("or --resume to go on"));
  request.run.resume = true;
  EXPECT_THAT(claim_refusal(request), HasSubstr("its checkpoints are in ''"));
  write_run_folder(record, some_plan());
  EXPECT_EQ(claim_refusal(request), "taken");
  write_file_atomic(place.path / "notes.txt", "mine");
  request = {.model = {.name = "mlp"}};
  request.operation.folder = place.path.string();
  EXPECT_THAT(claim_refusal(request), HasSubstr("holds other files"));
  request.run = {.checkpoint = "saved", .resume = true};
  EXPECT_THAT(claim_refusal(request), HasSubstr("holds other files: expected the folder of the"));
  request.operation.folder += "/notes.txt";
  EXPECT_THAT(claim_refusal(request), HasSubstr("cannot make the folder"));
}

TEST(RunFolder, ItsRunFileLeavesOutWhatThePlanSaysAndWhereResultsGo) {
  RunRecord record{.asked = {.model = {.name = "mlp"}},
                   .given = {"--epochs", "--strategy", "--history"},
                   .mini_batch_size = 32};
  options::TrainRequest& request = record.asked;
  request.plan.strategy = plan::Strategy::GPipe;
  request.plan.sync = options::SyncRequest{};
  request.run.staleness = 3;
  request.run.checkpoint = "a\nlr = 3";
  request.output.history = "h.json";
  request.operation.folder = "runs/1";
  EXPECT_EQ(config_of(record),
            "# Does the run again: penstock train --config config.toml\n"
            "# Left out, as it is for one run alone:\n"
            "#   checkpoint = \"a\\u000Alr = 3\"\n"
            "#   history = \"h.json\"\n"
            "#   run-folder = \"runs/1\"\n"
            "\n"
            "# Model\nmodel = \"mlp\"\n\n# Plan\nstaleness = 3\n\n"
            "# Learning\nepochs = 1\nbatch-size = 32\n\n"
            "# Beside this file\nplan = \"plan.json\"\n");
}

TEST(RunFolder, GoesOnWhereItWasMovedToWithItsCheckpoints) {
  const RunPlace place;
  RunRecord record{.asked = {.model = {.name = "mlp"}}, .mini_batch_size = 64};
  options::TrainRequest& request = record.asked;
  request.run = {.checkpoint = (place.path / "a/saved").string(), .resume = true};
  request.operation.folder = (place.path / "a/run").string();
  EXPECT_EQ(claim_refusal(request), "taken");
  write_run_folder(record, some_plan());
  std::filesystem::rename(place.path / "a", place.path / "b");
  request.operation.folder = (place.path / "b/run").string();
  request.run.checkpoint = (place.path / "c/saved").string();
  EXPECT_THAT(claim_refusal(request), HasSubstr("its checkpoints are in '"));
  request.run.checkpoint = (place.path / "b/saved").string();
  EXPECT_EQ(claim_refusal(request), "taken");
}

TEST(RunFolder, AJobThatItsLauncherStartsAgainKeepsItsFolder) {
  const RunPlace place;
  RunRecord record{.asked = {.model = {.name = "mlp"}}, .mini_batch_size = 64};
  record.asked.operation.folder = place.path.string();
  write_run_folder(record, some_plan());
  EXPECT_THROW(claim_run_folder(record.asked), ConfigError);
  EXPECT_NO_THROW(claim_run_folder(record.asked, /*is_restart=*/true));
  // That of a launcher before this one, whose job was started once more.
  const std::string file = (place.path / "environment.json").string();
  Json other = parse_json(read_file(file), file);
  other["started_by"] = "another";
  write_file_atomic(file, to_text(other));
  EXPECT_THROW(claim_run_folder(record.asked, /*is_restart=*/true), ConfigError);
}

TEST(RunFolder, ItsRunFileKeepsWhatRoundsLearnBy) {
  RunRecord record{.asked = {.model = {.name = "mlp"}}, .mini_batch_size = 32};
  record.asked.run.outer = {.learning_rate = 0.5, .momentum = 0};
  EXPECT_THAT(config_of(record),
              HasSubstr("# Plan\nouter-learning-rate = 0.5\nouter-momentum = 0\n\n"));
}

}  // namespace
}  // namespace penstock::job

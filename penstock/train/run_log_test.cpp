#include "penstock/train/run_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/runtime/fabric/testing_ranks.h"
#include "penstock/train/checkpoint/checkpoint_folders.h"
#include "penstock/train/checkpoint/test_folder.h"
#include "penstock/train/evaluation_record.h"
#include "penstock/train/line_file.h"
#include "penstock/util/error.h"
#include "penstock/util/files/json.h"
#include "penstock/util/process/log.h"
#include "tests/support/mutate.h"

namespace penstock::train {
namespace {

namespace fs = std::filesystem;

TEST(RunLog, ARowForEachStepAndEvaluation) {
  const TestFolder folder;
  RunLog log(folder / "log", 0);
  log.step({.step = 1, .epoch = 1, .loss = 2.5, .accuracy = 0.25, .learning_rate = 0.1});
  log.evaluation({.step = 1, .loss = 0, .accuracy = 0.5});
  EXPECT_EQ(read_test_file(folder / "log/log.csv"),
            "step,train/epoch,train/loss,train/accuracy,train/lr,train/grad_norm,"
            "train/samples_per_s,eval/loss,eval/accuracy,eval/perplexity\n"
            "1,1,2.5,0.25,0.1,,,,,\n"
            "1,,,,,,,0,0.5,1\n");
  const std::string lines = read_test_file(folder / "log/log.jsonl");
  const Json first = parse_json(lines.substr(0, lines.find('\n')), "the log");
  EXPECT_EQ(first.at("step"), 1);
  EXPECT_EQ(first.at("train/loss"), 2.5);
}

TEST(RunLog, ARunThatGoesOnContinuesItsFiles) {
  const TestFolder folder;
  {
    RunLog log(folder.path(), 0);
    for (const int64_t step : {1, 2, 3}) log.step({.step = step, .epoch = 1});
  }
  write_test_file(folder / "log.csv", read_test_file(folder / "log.csv") + "4,1,cut");
  {
    RunLog log(folder.path(), 2);
    log.step({.step = 3, .epoch = 2});
  }
  const std::string table = read_test_file(folder / "log.csv");
  EXPECT_THAT(table, testing::HasSubstr("\n2,1,0,,0,,,,,\n3,2,"));
  EXPECT_THAT(table, testing::Not(testing::HasSubstr("cut")));
  EXPECT_THAT(read_test_file(folder / "log.1.csv"), testing::HasSubstr("\n3,1,"));
  const std::string before = read_test_file(folder / "log.jsonl");
  { RunLog log(folder.path(), 3); }  // nothing is lost, so nothing is renamed
  EXPECT_EQ(read_test_file(folder / "log.jsonl"), before);
  EXPECT_FALSE(fs::exists(folder / "log.2.csv"));
  EXPECT_THROW(RunLog("/proc/log", 0), ConfigError);
}

TEST(LineFile, WhatCannotBeRenamedIsLeft) {
  const TestFolder folder;
  const fs::path path = folder / (std::string(251, 'a') + ".csv");  // no longer name can be
  write_test_file(path, "another header\n");
  const auto open = [&] {
    LineFile(path, 0, "step\n", [](std::string_view) { return std::nullopt; });
  };
  EXPECT_THAT(tests::message_of<ConfigError>(open), testing::HasSubstr("cannot be renamed to"));
  EXPECT_EQ(read_test_file(path), "another header\n");
}

TEST(EvaluationRecord, GoesOnFromItsFile) {
  const TestFolder folder;
  EvaluationRecord record(Metric::Accuracy);
  EXPECT_FALSE(record.best_step());
  record.add({.step = 10, .loss = 1, .accuracy = 0.5});
  record.add({.step = 20, .loss = 0.5, .accuracy = 0.7});
  record.add({.step = 30, .loss = 0.6, .accuracy = 0.7, .top5 = 0.9});
  EXPECT_EQ(record.best_step(), 20) << "the first of equals";
  record.write(folder.path());
  record.write(folder.path());
  EvaluationRecord again(Metric::Loss);
  again.read(folder.path(), 25);
  ASSERT_EQ(again.all().size(), 2U);
  EXPECT_EQ(again.all()[1].accuracy, 0.7);
  again.read(folder.path(), 30);
  EXPECT_EQ(again.all()[2].top5, 0.9);
  EXPECT_EQ(again.best_step(), 20);
}

TEST(EvaluationRecord, AllRanksHaveThatOfTheFirst) {
  const TestFolder folder;
  fs::create_directories(folder / "0" / checkpoint_folder_name(20));
  fs::create_directories(folder / "1");
  EvaluationRecord record(Metric::Loss);
  record.add({.step = 10, .loss = 0.25});  // its checkpoint is gone
  record.add({.step = 20, .loss = 0.5});
  record.write(folder / "0");
  write_test_file(folder / "0" / checkpoint_folder_name(20) / "manifest.json", "{}");
  const auto failures = runtime::testing::on_ranks(
      runtime::testing::rank_rigs().front(), {0, 1}, [&](runtime::World& world, size_t rank) {
        EvaluationRecord read(Metric::Loss);
        read.read(folder / std::to_string(rank), 30, {.world = &world});
        EXPECT_EQ(read.all().size(), 2U);
        EXPECT_EQ(read.best_step(), 10);
        EXPECT_EQ(read.kept_step(), 20);
        EXPECT_FALSE(read.keep({.step = 30, .loss = 0.5}));
        EXPECT_TRUE(read.keep({.step = 30, .loss = 0.375}));
        EXPECT_EQ(read.kept_step(), 30);
      });
  EXPECT_THAT(failures, testing::Each(""));
}

TEST(EvaluationRecord, ADamagedFileHasNone) {
  const TestFolder folder;
  EvaluationRecord record(Metric::Loss);
  record.add({.step = 10, .loss = 1});
  record.write(folder.path());
  const fs::path file = folder / "evaluations.json";
  const std::string text = read_test_file(file);
  std::string said;
  set_log_sink([&](LogLevel, std::string_view message) { said = message; });
  for (size_t size = 0; size + 2 < text.size(); ++size) {
    const std::string cut = text.substr(0, size);
    write_test_file(file, cut);
    said.clear();
    record.read(folder.path(), 10);
    EXPECT_TRUE(record.all().empty()) << size;
    EXPECT_THAT(said, testing::HasSubstr("evaluations.json' is damaged (evaluations.json"));
    EXPECT_FALSE(fs::exists(file)) << size;
    EXPECT_EQ(read_test_file(folder / "evaluations.json.damaged"), cut);
  }
  write_test_file(file, R"({"format": "another"})");
  record.read(folder.path(), 10);
  EXPECT_THAT(said, testing::HasSubstr("(expected the format penstock-evaluations, found"));
  said.clear();
  record.read(folder.path(), 10);  // none is no damage
  EXPECT_EQ(said, "");
  set_log_sink({});
}

}  // namespace
}  // namespace penstock::train

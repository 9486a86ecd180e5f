// What operators see of a run: log lines, the health file, the metrics.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "penstock/job/health_file.h"
#include "penstock/job/log_lines.h"
#include "penstock/job/run_metrics.h"
#include "penstock/job/watchers.h"
#include "penstock/util/error.h"
#include "penstock/util/files/files.h"
#include "penstock/util/process/log.h"

namespace penstock::job {
namespace {

using options::LogForm;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::chrono::system_clock::time_point kThen{std::chrono::milliseconds(1'700'000'000'042)};

TEST(LogLines, HaveTimeAndRank) {
  EXPECT_EQ(log_line(LogForm::Text, kThen, 3, {.message = "one\n\ntwo\x1b[0m\n"}),
            "2023-11-14T22:13:20.042Z rank 3 info: one\n"
            "2023-11-14T22:13:20.042Z rank 3 info: two?[0m\n");
  EXPECT_EQ(log_line(LogForm::Json, kThen, 0,
                     {.level = "warning", .message = "a \"b\"\nc\n", .fields = {{"step", 4}}}),
            "{\"time\":\"2023-11-14T22:13:20.042Z\",\"rank\":0,\"level\":\"warning\","
            "\"message\":\"a \\\"b\\\"\\nc\",\"step\":4}\n");
  EXPECT_THAT(log_line(LogForm::Json, kThen, 0, {.message = "\xff"}), HasSubstr("\xEF\xBF\xBD"));
}

/// A file that goes with the test.
struct OwnFile {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() /
      (std::string("penstock-") + ::testing::UnitTest::GetInstance()->current_test_info()->name());
  ~OwnFile() { std::filesystem::remove(path); }
  std::string text() const { return read_file(path); }
};

TEST(HealthFile, SaysHowFarTheRunIsAndHowItEnded) {
  const OwnFile file;
  {
    HealthFile health(file.path.string(), 2);
    EXPECT_THAT(file.text(), HasSubstr("\"state\":\"preparing\",\"rank\":2"));
    EXPECT_THAT(file.text(), Not(HasSubstr("step")));
    health.begin();
    health.on_mini_batch({.step = 7});
    for (int i = 0; i < 1000 && file.text().find("\"step\":7") == std::string::npos; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_THAT(file.text(), HasSubstr("\"step\":7"));
    health.end("done");
    EXPECT_THAT(file.text(), HasSubstr("\"state\":\"done\""));
  }
  EXPECT_THAT(file.text(), HasSubstr("\"state\":\"done\""));
  {
    HealthFile health(file.path.string(), 0);
    health.end("interrupted");
    health.begin();
    EXPECT_THAT(file.text(), HasSubstr("\"state\":\"interrupted\""));
  }
  { HealthFile health(file.path.string(), 0); }
  EXPECT_THAT(file.text(), HasSubstr("\"state\":\"failed\""));
  EXPECT_THROW(HealthFile("/no/such/folder/health", 0), ConfigError);
}

TEST(HealthFile, AFolderThatVanishesIsWarnedOfOnce) {
  const OwnFile folder;
  std::filesystem::create_directory(folder.path);
  std::vector<std::string> said;
  set_log_sink([&](LogLevel, std::string_view message) { said.emplace_back(message); });
  {
    HealthFile health((folder.path / "health").string(), 0);
    std::filesystem::remove_all(folder.path);
    EXPECT_NO_THROW(health.begin());
    health.end("done");
  }
  set_log_sink({});
  ASSERT_EQ(said.size(), 1U);
  EXPECT_THAT(said.front(), HasSubstr("the health file is not written, and the run goes on"));
}

TEST(RunMetrics, CountOverSegmentsAndShowThePlan) {
  options::TrainRequest request{.model = {.name = "mlp", .width = 8, .depth = 2}};
  request.data.name = "synthetic";
  request.data.train_samples = 64;
  request.data.test_samples = 16;
  request.plan.strategy = plan::Strategy::OneFOneBFlush;
  request.plan.workers = 2;
  request.plan.profile_cache = "off";
  request.run.batch_size = 16;
  request.run.epochs = 2;
  request.data.eval_every = 3;
  RunMetrics metrics(1);
  EXPECT_THAT(metrics.text(), HasSubstr("penstock_phase{rank=\"1\",phase=\"preparing\"} 1\n"));
  {
    const PreparedRun run = prepare(request, nullptr, {});
    metrics.begin(run);
    Watchers all;
    all.add(&metrics);
    train(run, {.observer = &all});
    metrics.end();
  }
  const std::string text = metrics.text();
  for (const char* line :
       {"# TYPE penstock_steps_total counter\npenstock_steps_total{rank=\"1\"} 8\n",
        "penstock_samples_total{rank=\"1\"} 128\n", "penstock_step{rank=\"1\"} 8\n",
        "penstock_evaluations_total{rank=\"1\"} 4\n", "penstock_epochs{rank=\"1\"} 2\n",
        "penstock_run_info{rank=\"1\",model=\"mlp\",strategy=\"1f1b-flush\"} 1\n",
        "penstock_worker_busy_seconds_total{rank=\"1\",worker=\"1\"} ",
        "penstock_phase{rank=\"1\",phase=\"ended\"} 1\n", "penstock_loss{rank=\"1\"} ",
        "penstock_idle_share{rank=\"1\"} 0.", "penstock_test_loss{rank=\"1\"} ",
        "penstock_resident_memory_bytes{rank=\"1\"} "})
    EXPECT_THAT(text, HasSubstr(line));
  EXPECT_THAT(text, Not(HasSubstr("busy_seconds_total{rank=\"1\",worker=\"1\"} 0\n")));
}

TEST(RunMetrics, ShowPartsOfEpochsAndTheCheckpointsBesideTheOneGoneOnFrom) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / "penstock-run-metrics-of-checkpoints";
  std::filesystem::remove_all(folder);
  options::TrainRequest request{.model = {.name = "mlp", .width = 8, .depth = 2}};
  request.data.name = "synthetic";
  request.data.train_samples = 64;
  request.data.test_samples = 16;
  request.run.batch_size = 16;
  request.run.epochs = 2;
  request.run.checkpoint = folder.string();
  const auto text_of_run = [&request](int64_t steps) {
    request.run.steps = steps;
    RunMetrics metrics(0);
    const PreparedRun run = prepare(request, nullptr, {});
    metrics.begin(run);
    train(run, {.observer = &metrics});
    metrics.end();
    return metrics.text();
  };
  EXPECT_THAT(text_of_run(3), HasSubstr("penstock_epoch{rank=\"0\"} 0.75\n"));
  request.run.checkpoint = (folder / "step-000000003").string();
  request.run.resume = true;
  const std::string text = text_of_run(5);
  EXPECT_THAT(text, HasSubstr("penstock_epoch{rank=\"0\"} 1.25\n"));
  EXPECT_THAT(text, HasSubstr("penstock_checkpoints{rank=\"0\"} 2\n"));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace penstock::job

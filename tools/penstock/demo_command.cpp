// penstock demo: takes a small network through everything, step by step, as a user would type it.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "penstock/plan/plan.h"
#include "penstock/util/error.h"
#include "penstock/util/files/files.h"
#include "penstock/util/numbers/rounding.h"
#include "penstock/util/text/printable.h"
#include "tools/penstock/command/child.h"
#include "tools/penstock/command/command.h"
#include "tools/penstock/train/training_part.h"

namespace penstock::tool {

namespace {

namespace fs = std::filesystem;

struct DemoOptions {
  std::string output = "penstock-demo";
  std::string model = "vgg_small";
  int workers = 0;  ///< 0: a worker per core, 2 to 4
  int seconds = 20;
};

constexpr int64_t kBatch = 64;
constexpr int64_t kSamplesInMemory = 12'800;  ///< in memory
/// Says which folder a demo has made, so that no other one is written into.
constexpr const char* kMark = ".penstock-demo";

void enter(const std::string& folder) {
  std::error_code error;
  if (fs::exists(folder, error) && !fs::exists(fs::path(folder) / kMark, error) &&
      (!fs::is_directory(folder, error) || !fs::is_empty(folder, error))) {
    throw ConfigError(
        fmt::format("--output {}: it is there, and no demo has made it: name another folder",
                    printable(folder)));
  }
  fs::create_directories(folder, error);
  if (!error) fs::current_path(folder, error);
  if (error) {
    throw ConfigError(fmt::format("--output {}: cannot make this folder: {}", printable(folder),
                                  error.message()));
  }
  write_file_atomic(kMark, "made by penstock demo\n");
}

void say(const std::string& what) {
  fmt::print("\n{}\n", what);
  std::fflush(stdout);
}

/// Shows the command and runs it. Throws RuntimeError where it fails.
void run(const std::vector<std::string>& words) {
  std::string line = "$ penstock";
  for (const std::string& word : words) line += ' ' + word;
  say(line);
  const int code = run_child(own_file(), words, ChildOutput::Shown);
  const std::string what =
      fmt::format("'penstock {}' ended with {}: see above", words.front(), code);
  if (code == kExitUsage) throw ConfigError(what);
  if (code != kExitYes) throw RuntimeError(what);
}

/// As many as are trained in the time, in whole steps.
int64_t samples_in(int seconds) {
  constexpr int64_t kLeast = 512;
  constexpr int64_t kMost = 1'000'000;
  const double rate = plan::load_plan("plan.json").prediction.throughput_samples_per_s;
  const int64_t wanted = nearest(std::min(rate * seconds, 1e6));
  return std::clamp(wanted / kBatch * kBatch, kLeast, kMost);
}

int run_demo(const DemoOptions& options) {
  require_training_part("demo");
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  const int count = options.workers > 0 ? options.workers : std::clamp(cores, 2, 4);
  const std::string workers = std::to_string(count);
  enter(options.output);
  say("1. Profile: every layer is measured, forward and backward, by as many copies at once as "
      "workers will run.");
  run({"profile", "--model", options.model, "--batch-size", std::to_string(kBatch), "--concurrency",
       workers, "-o", "profile.json"});
  say("2. Plan: the layers are cut where the slowest stage is as fast as it can be.");
  run({"plan", "--profile", "profile.json", "--workers", workers, "--strategy", "1f1b", "-o",
       "plan.json"});
  say("3. Schedule: what each worker does, in which order. 1B4 is the backward pass of micro-batch "
      "4 on stage 1.");
  run({"schedule", "--plan", "plan.json", "--micro-batches", "8", "--compute-only", "--grid"});
  run({"schedule", "--plan", "plan.json", "--micro-batches", "64", "-o", "schedule.txt"});
  say("4. Verify: nothing is missing, out of order, deadlocked, or run on wrong weights.");
  run({"verify", "schedule.txt"});
  say("5. Simulate: what the run will cost.");
  run({"simulate", "--plan", "plan.json"});
  say("6. Train on made-up images, and set the measurement beside the prediction.");
  const int64_t samples = samples_in(options.seconds);
  run({"train",
       "--model",
       options.model,
       "--data",
       "synthetic",
       "--train-samples",
       std::to_string(std::min<int64_t>(samples, kSamplesInMemory)),
       "--epochs",
       std::to_string(std::max<int64_t>(1, samples / kSamplesInMemory)),
       "--plan",
       "plan.json",
       "--batch-size",
       std::to_string(kBatch),
       "--optimizer",
       "adam",
       "--lr",
       "0.001",
       "--history",
       "history.json",
       "--html",
       "report.html"});
  say("In this folder: profile.json, plan.json, schedule.txt, history.json, and the page to open:");
  fmt::print("{}\n", fs::absolute("report.html").string());
  return kExitYes;
}

}  // namespace

Command demo_command(CLI::App& parent) {
  auto options = std::make_shared<DemoOptions>();
  CLI::App* app = parent.add_subcommand(
      "demo", "Take a small network through all of it, in a minute: profile, plan, train, report");
  app->add_option("-o,--output", options->output, "The folder for what it makes")
      ->capture_default_str();
  app->add_option("--model", options->model, "One of `penstock models` that takes images")
      ->capture_default_str();
  app->add_option("--workers", options->workers,
                  "Threads to split it over (default: one per core, 2 to 4)")
      ->check(whole_number(2, 64));
  app->add_option("--seconds", options->seconds, "About how long it trains")
      ->check(whole_number(1, 3'600))
      ->capture_default_str();
  return {app, [options] { return run_demo(*options); }};
}

}  // namespace penstock::tool

// The command line of `penstock train`, without libtorch: the tool parses it, the training part
// runs it.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "penstock/cluster/device_name.h"
#include "penstock/train/train_options.h"
#include "tools/penstock/auto_plan_request.h"
#include "tools/penstock/command.h"
#include "tools/penstock/model_options.h"

namespace penstock::tool {

/// Every worker is a thread of one process.
inline constexpr int kMaxThreads = 1024;

struct TrainArguments : CommonOptions {
  ModelOptions model;
  std::string data = "fashion-mnist";
  std::string data_folder;
  int64_t train_samples = 0;  ///< 0: all, here and below
  int64_t test_samples = 0;
  std::string test_data;
  double test_share = 0.1;
  std::string bad_samples = "fatal";
  AutoPlanRequest plan;
  std::string plan_path;
  train::TrainOptions train;
  std::string sync;            ///< empty: the plan's
  std::string sync_precision;  ///< empty: the plan's
  std::string precision;       ///< empty: the plan's
  std::string fabric = "auto";
  std::string device = "cpu";
  std::vector<cluster::DeviceName> devices;  ///< of this process, once they have been looked for
  int64_t workers = 1;
  std::optional<int64_t> chunks;
  std::optional<int64_t> slack;
  std::optional<int64_t> keep;
  int64_t deadline_s = 300;
  double silence_s = 12;
  double patience_s = 60;
  std::string checkpoint;
  std::string trace;
  std::string history;
  std::string html;
  bool check_against_serial = false;
  int64_t check_steps = 20;
  bool no_evaluation = false;
  bool no_shuffle = false;
  CLI::Option* batch_size = nullptr;
  CLI::Option* data_threads = nullptr;
};

/// Adds the command.
CLI::App* add_train(CLI::App& parent, TrainArguments& arguments);
/// What can be said before a model is made or data is read, output files included. Throws
/// ConfigError.
void check(const TrainArguments& arguments);
/// The options that a plan is made for, as on a command line; those that were left out only where
/// they have a value. The same text: the same plan, as far as the network allows.
std::string plan_request(const TrainArguments& arguments);
/// Of --batch-size, or of the plan that was read instead. Throws ConfigError.
void check_batch_size(const TrainArguments& arguments);

}  // namespace penstock::tool

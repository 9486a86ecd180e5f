// The log of a run as files, which tools read while it trains: TensorBoard's events, log.csv and
// log.jsonl.
//
//   RunLog log("run/log", /*step=*/0);
//   log.step({.step = 1, .loss = 2.3, .learning_rate = 0.1});
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "penstock/train/event_file.h"
#include "penstock/train/line_file.h"
#include "penstock/train/metric.h"

namespace penstock::train {

/// What one step was.
struct StepNumbers {
  int64_t step = 0;   ///< from 1
  int64_t epoch = 0;  ///< from 1
  double loss = 0;
  std::optional<double> accuracy = {};
  double learning_rate = 0;
  std::optional<double> grad_norm = {};
  std::optional<double> samples_per_s = {};
};

/// Not thread-safe. What cannot be written later is warned of once, and the run goes on.
class RunLog {
 public:
  /// A run that goes on after `step` steps continues the files. Throws ConfigError where they
  /// cannot be written.
  RunLog(const std::filesystem::path& folder, int64_t step);

  void step(const StepNumbers& numbers);
  void evaluation(const Evaluation& evaluation);

 private:
  using Numbers = std::vector<std::pair<std::string, double>>;
  void write(int64_t step, const Numbers& numbers);

  EventFile events_;
  LineFile table_;
  LineFile lines_;
  bool has_failed_ = false;
};

}  // namespace penstock::train

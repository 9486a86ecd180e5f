// The course of a training run, step by step and epoch by epoch: the file that `penstock train
// --history` writes.
//
//   History history = load_history("run.json");
//   history.steps.back().loss;
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/report/memory/memory_account.h"

namespace penstock::report {

/// What was not measured, or was no finite number, is NaN.
struct HistoryStep {
  int64_t step = 0;
  double loss = 0;
  double learning_rate = 0;
  double grad_norm = 0;
};

struct HistoryEpoch {
  int64_t epoch = 0;
  double train_loss = 0;
  double train_accuracy = 0;  ///< 0 to 1
  double test_accuracy = 0;
  double test_loss = 0;
};

struct History {
  std::string model = {};
  std::string strategy = {};
  std::vector<HistoryStep> steps = {};
  std::vector<HistoryEpoch> epochs = {};
  double throughput_samples_per_s = 0;            ///< measured; 0: not known
  double predicted_throughput_samples_per_s = 0;  ///< 0: not known
  /// Between which the run was expected to lie; 0: not known.
  double prediction_low_samples_per_s = 0;
  double prediction_high_samples_per_s = 0;
  MemoryAccount memory = {};
};

/// No history file may be larger (about 600,000 steps).
inline constexpr int64_t kMaxHistoryBytes = int64_t{64} << 20;

/// Reads version 1 (docs/formats.md). Missing or null numbers become NaN, missing lists are empty.
/// Throws ParseError naming place and key for other types, negative steps and rates, and newer
/// versions. O(size).
History parse_history(std::string_view json, std::string_view place);
/// Throws ConfigError for a file that cannot be read or is larger than kMaxHistoryBytes, ParseError
/// as parse_history.
History load_history(const std::filesystem::path& path);

}  // namespace penstock::report

// evaluations.json beside the checkpoints of a run: what was evaluated so far, and which was the
// best. A run that goes on knows by it what was the best before.
//
//   {"format": "penstock-evaluations", "metric": "loss", "best_step": 938,
//    "evaluations": [{"step": 938, "loss": 0.31, "accuracy": 0.9, "perplexity": 1.36}, ...]}
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "penstock/train/metric.h"

namespace penstock::train {

class EvaluationRecord {
 public:
  explicit EvaluationRecord(Metric metric) : metric_(metric) {}

  /// Those of the file in `folder` up to a step; a file that is missing or damaged has none.
  void read(const std::filesystem::path& folder, int64_t steps);
  void add(const Evaluation& evaluation) { all_.push_back(evaluation); }
  /// Of the best so far.
  std::optional<int64_t> best_step() const;
  /// Replaces the file at once. Throws RuntimeError.
  void write(const std::filesystem::path& folder) const;

  const std::vector<Evaluation>& all() const { return all_; }

 private:
  Metric metric_;
  std::vector<Evaluation> all_;
};

}  // namespace penstock::train

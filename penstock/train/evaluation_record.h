// evaluations.json beside the checkpoints of a run: what was evaluated so far, and which was the
// best. A run that goes on knows by it what was the best before.
//
//   {"format": "penstock-evaluations", "metric": "loss", "best_step": 938,
//    "evaluations": [{"step": 938, "loss": 0.31, "accuracy": 0.9, "perplexity": 1.36}, ...]}
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "penstock/runtime/ranks.h"
#include "penstock/train/metric.h"

namespace penstock::train {

class EvaluationRecord {
 public:
  explicit EvaluationRecord(Metric metric) : metric_(metric) {}

  /// Those of the file in `folder` up to a step, as rank 0 finds it; a file that is missing has
  /// none. One that is damaged has none either: it is logged, and renamed to
  /// evaluations.json.damaged. Collective.
  void read(const std::filesystem::path& folder, int64_t steps, const runtime::Ranks& ranks = {});
  void add(const Evaluation& evaluation) { all_.push_back(evaluation); }
  /// Of the best so far.
  std::optional<int64_t> best_step() const;
  /// Of the best whose checkpoint was in the folder at read(), or was kept since.
  std::optional<int64_t> kept_step() const;
  /// Whether the checkpoint of this one is better than that of kept_step(), and replaces it.
  bool keep(const Evaluation& evaluation);
  /// Replaces the file at once. Throws RuntimeError.
  void write(const std::filesystem::path& folder) const;

  const std::vector<Evaluation>& all() const { return all_; }

 private:
  /// Of a file's text. Throws Error where it is damaged.
  static std::vector<Evaluation> parse(const std::string& text, int64_t steps);
  const Evaluation* best_of(const std::vector<Evaluation>& all) const;

  Metric metric_;
  std::vector<Evaluation> all_;
  std::optional<Evaluation> kept_;
};

}  // namespace penstock::train

// What a training run has learned and taken, beside its prediction.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/job/large_batch.h"
#include "penstock/job/prediction.h"
#include "penstock/plan/plan.h"
#include "penstock/train/trainer.h"

namespace penstock::job {

struct Outcome {
  const plan::Plan& plan;
  const train::TrainResult& result;
  const Prediction* predicted;              ///< null when nothing was trained
  bool saves = false;                       ///< checkpoints, also when interrupted
  int servers = 0;                          ///< ranks, the last ones, that only add gradients
  const std::vector<std::string>& classes;  ///< names of 0, 1, ...; empty: they have none
  train::Metric metric = train::Metric::Loss;
  std::optional<double> target = {};  ///< of the metric
  std::span<const LargeBatchNote> large_batch = {};
};

/// One JSON object and a newline.
std::string summary_json(const Outcome& outcome);
/// Prediction beside measurement, stage by stage, for people.
std::string summary_text(const Outcome& outcome);
/// That a run was stopped, and what that means for the next one.
std::string_view interruption_text(bool saves);

}  // namespace penstock::job

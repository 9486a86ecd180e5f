// What `penstock train` shows while it runs and when it ends.
#pragma once

#include <optional>
#include <string>

#include "penstock/plan/plan.h"
#include "penstock/train/trainer.h"
#include "tools/penstock/prediction.h"
#include "tools/penstock/progress.h"

namespace penstock::tool {

/// Progress bar and epoch lines on standard error.
class ConsoleObserver : public train::TrainObserver {
 public:
  void on_mini_batch(const train::Progress& progress) override;
  void on_epoch(const train::EpochSummary& summary) override;
  /// Ends the bar; messages of the library may follow.
  void finish() { bar_.reset(); }

 private:
  std::optional<ProgressBar> bar_;
};

struct Outcome {
  const plan::Plan& plan;
  const train::TrainResult& result;
  const Prediction* predicted;  ///< null when nothing was trained
  bool saves = false;           ///< checkpoints, also when interrupted
  int servers = 0;              ///< ranks, the last ones, that only add gradients
};

/// One JSON object and a newline.
std::string to_json(const Outcome& outcome);
/// Prediction beside measurement, stage by stage, for people.
std::string to_text(const Outcome& outcome);

}  // namespace penstock::tool

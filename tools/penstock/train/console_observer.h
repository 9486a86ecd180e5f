// What `penstock train` shows while it runs.
#pragma once

#include <optional>
#include <string>

#include "penstock/report/console/progress_bar.h"
#include "penstock/train/trainer.h"

namespace penstock::tool {

/// "epoch 1: loss 0.5, ...", without a newline; empty: stopped before the first step.
std::string epoch_text(const train::EpochSummary& summary);
/// "step 100: test loss 0.5, ...".
std::string evaluation_text(const train::Evaluation& evaluation);

/// Progress bar and epoch lines on standard error.
class ConsoleObserver : public train::TrainObserver {
 public:
  void on_mini_batch(const train::Progress& progress) override;
  void on_epoch(const train::EpochSummary& summary) override;
  void on_evaluation(const train::Evaluation& evaluation) override;
  /// Ends the bar; messages of the library may follow.
  void finish() { bar_.reset(); }

 private:
  std::optional<report::ProgressBar> bar_;
};

}  // namespace penstock::tool

#include "penstock/job/history_file.h"

#include <cmath>

#include "penstock/job/run_memory.h"
#include "penstock/util/files/json.h"

namespace penstock::job {

namespace {

/// JSON has no infinities.
Json finite(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json steps_of(const train::TrainResult& result, const report::History& earlier) {
  Json steps = Json::array();
  const int64_t first = result.steps - static_cast<int64_t>(result.losses.size());
  for (const report::HistoryStep& step : earlier.steps) {
    if (step.step > first) continue;
    steps.push_back({{"step", step.step},
                     {"loss", finite(step.loss)},
                     {"learning_rate", finite(step.learning_rate)},
                     {"grad_norm", finite(step.grad_norm)}});
  }
  for (size_t i = 0; i < result.losses.size(); ++i) {
    Json step{{"step", first + static_cast<int64_t>(i) + 1}, {"loss", finite(result.losses[i])}};
    step["learning_rate"] =
        i < result.learning_rates.size() ? finite(result.learning_rates[i]) : Json(nullptr);
    step["grad_norm"] = i < result.grad_norms.size() ? finite(result.grad_norms[i]) : Json(nullptr);
    steps.push_back(std::move(step));
  }
  return steps;
}

Json epochs_of(const train::TrainResult& result, const report::History& earlier) {
  Json epochs = Json::array();
  for (const report::HistoryEpoch& epoch : earlier.epochs) {
    if (!result.epochs.empty() && epoch.epoch > result.epochs.front().epoch) continue;
    epochs.push_back({{"epoch", epoch.epoch},
                      {"train_loss", finite(epoch.train_loss)},
                      {"train_accuracy", finite(epoch.train_accuracy)},
                      {"test_loss", finite(epoch.test_loss)},
                      {"test_accuracy", finite(epoch.test_accuracy)}});
  }
  for (const train::EpochSummary& epoch : result.epochs) {
    Json entry{{"epoch", epoch.epoch + 1},
               {"train_loss", finite(epoch.loss)},
               {"train_accuracy", finite(epoch.train_accuracy)}};
    entry["test_loss"] = epoch.test_loss ? finite(*epoch.test_loss) : Json(nullptr);
    entry["test_accuracy"] = epoch.test_accuracy ? finite(*epoch.test_accuracy) : Json(nullptr);
    epochs.push_back(std::move(entry));
  }
  return epochs;
}

}  // namespace

std::string history_json(const std::string& model, const Outcome& outcome,
                         const report::History& earlier) {
  const train::TrainResult& result = outcome.result;
  Json document{{"format", "penstock-history"},
                {"version", 1},
                {"model", model},
                {"strategy", to_string(outcome.plan.strategy)}};
  document["plan"] = parse_json(plan::to_json(outcome.plan), "plan");
  document["steps"] = steps_of(result, earlier);
  document["epochs"] = epochs_of(result, earlier);
  document["throughput_samples_per_s"] = finite(result.throughput_samples_per_s);
  document["predicted_throughput_samples_per_s"] =
      outcome.predicted != nullptr ? finite(outcome.predicted->throughput_samples_per_s)
                                   : Json(nullptr);
  if (outcome.predicted != nullptr && outcome.predicted->interval) {
    document["prediction_low_samples_per_s"] = outcome.predicted->interval->low;
    document["prediction_high_samples_per_s"] = outcome.predicted->interval->high;
  }
  document["interrupted"] = result.interrupted;
  document["memory"] = report::memory_json(memory_account(result, outcome.predicted));
  return document.dump() + "\n";
}

}  // namespace penstock::job

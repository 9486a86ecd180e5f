#include "penstock/report/page/history.h"

#include <fmt/format.h>

#include <limits>

#include "penstock/plan/interval_io.h"
#include "penstock/util/files/files.h"
#include "penstock/util/files/json.h"

namespace penstock::report {

namespace {

constexpr int64_t kMostSteps = int64_t{1} << 53;  // exact in a double

double number_or_nan(const JsonReader& object, std::string_view key) {
  const auto value = object.find(key);
  return value ? value->number() : std::numeric_limits<double>::quiet_NaN();
}

double rate_or_zero(const JsonReader& root, std::string_view key) {
  const auto value = root.find(key);
  const double rate = value ? value->number() : 0;
  if (rate < 0) value->fail(fmt::format("expected a rate of at least 0, found {}", rate));
  return rate;
}

}  // namespace

History parse_history(std::string_view json, std::string_view place) {
  const Json document = parse_json(json, place);
  const JsonReader root(document, std::string(place));
  check_format(root, "history", 1);
  History history;
  history.model = root.text_or("model", "");
  history.strategy = root.text_or("strategy", "");
  history.throughput_samples_per_s = rate_or_zero(root, "throughput_samples_per_s");
  history.predicted_throughput_samples_per_s =
      rate_or_zero(root, "predicted_throughput_samples_per_s");
  const plan::Interval interval =
      plan::read_interval(root, "prediction_low_samples_per_s", "prediction_high_samples_per_s");
  history.prediction_low_samples_per_s = interval.low;
  history.prediction_high_samples_per_s = interval.high;
  if (const auto steps = root.find("steps")) {
    for (const JsonReader& step : steps->elements()) {
      history.steps.push_back({step.at("step").integer(0, kMostSteps), number_or_nan(step, "loss"),
                               number_or_nan(step, "learning_rate"),
                               number_or_nan(step, "grad_norm")});
    }
  }
  if (const auto epochs = root.find("epochs")) {
    for (const JsonReader& epoch : epochs->elements()) {
      history.epochs.push_back(
          {epoch.at("epoch").integer(0, kMostSteps), number_or_nan(epoch, "train_loss"),
           number_or_nan(epoch, "train_accuracy"), number_or_nan(epoch, "test_accuracy"),
           number_or_nan(epoch, "test_loss")});
    }
  }
  if (const auto memory = root.find("memory")) history.memory = read_memory(*memory);
  return history;
}

History load_history(const std::filesystem::path& path) {
  return parse_history(read_file(path, kMaxHistoryBytes), path.string());
}

}  // namespace penstock::report

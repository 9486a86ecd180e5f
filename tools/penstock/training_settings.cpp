#include "tools/penstock/training_settings.h"

#include <fmt/format.h>

#include "penstock/plan/gradient_sync.h"
#include "penstock/util/printable.h"

namespace penstock::tool {

std::map<std::string, std::string> training_settings(const TrainArguments& arguments,
                                                     const std::string& data) {
  const train::TrainOptions& train = arguments.train;
  const train::LearningRateSpec& rate = train.learning_rate;
  const bool asynchronous = train.plan.sync == to_string(plan::GradientSync::Asynchronous);
  std::map<std::string, std::string> settings;
  const auto add = [&](const char* name, const auto& value) {
    settings[name] = fmt::format("{}", value);
  };
  add("--data", data);
  if (!train.loss.name.empty()) add("--loss", train.loss.name);
  add("--label-smoothing", train.loss.label_smoothing);
  add("--ignore-index", train.loss.ignore_index);
  add("--batch-size", train.mini_batch_size);
  add("--no-shuffle", arguments.no_shuffle ? "yes" : "no");
  add("--optimizer", train.optimizer.name);
  if (train.optimizer.name == "sgd") {
    add("--momentum", train.optimizer.momentum);
    add("--nesterov", train.optimizer.nesterov ? "yes" : "no");
  }
  add("--weight-decay", train.optimizer.weight_decay);
  add("--lr", rate.base);
  add("--lr-schedule", rate.schedule);
  add("--lr-warmup", rate.warmup_steps);
  if (rate.schedule == "step") {
    add("--lr-factor", rate.factor);
    add("--lr-every", rate.every);
  } else if (rate.schedule != "constant") {
    // The rate falls until the last step.
    add("--epochs", train.epochs);
    add("--steps", train.max_steps > 0 ? fmt::to_string(train.max_steps) : "none");
  }
  add("--clip-norm", train.max_grad_norm > 0 ? fmt::to_string(train.max_grad_norm) : "none");
  add("--weights", train.plan.weights);
  add("--sync", asynchronous ? train.plan.sync : "synchronous");
  if (asynchronous) add("--staleness", train.staleness);
  add("--sync-precision", train.plan.sync_precision);
  add("--precision", to_string(train.plan.precision));
  return settings;
}

std::map<std::string, std::string> saved_settings(const train::CheckpointPosition& position) {
  if (!position.settings.empty()) return position.settings;
  std::map<std::string, std::string> settings{
      {"--batch-size", fmt::to_string(position.mini_batch_size)},
      {"--optimizer", position.optimizer}};
  if (position.shuffle) settings["--no-shuffle"] = *position.shuffle ? "no" : "yes";
  return settings;
}

std::string changed_settings(const std::map<std::string, std::string>& saved,
                             const std::map<std::string, std::string>& now) {
  std::string changes;
  for (const auto& [name, value] : now) {
    const auto before = saved.find(name);
    if (before == saved.end() || before->second == value) continue;
    changes += fmt::format("{}{} {} (was {})", changes.empty() ? "" : ", ", name, value,
                           printable(before->second));
  }
  if (changes.empty()) return {};
  return fmt::format("warning: options differ from those of the checkpoint: {}\n", changes);
}

}  // namespace penstock::tool

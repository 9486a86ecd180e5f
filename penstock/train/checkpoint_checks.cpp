#include "penstock/train/checkpoint_checks.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <algorithm>

#include "penstock/train/loss_mean.h"
#include "penstock/train/training_schedule.h"
#include "penstock/util/error.h"
#include "penstock/util/text/printable.h"

namespace penstock::train {

int64_t schedule_steps(const TrainOptions& options, int64_t saved, int64_t run_steps) {
  const bool fades = traits(options.plan.compensation).divides_rate;
  if (!has_end(options.learning_rate) && !fades) return 0;
  if (options.learning_rate_steps > 0) return options.learning_rate_steps;
  return saved > 0 ? saved : run_steps;
}

int64_t fade_steps(int64_t schedule_steps) { return std::max<int64_t>(1, schedule_steps / 4); }

void check_inside_epoch(const CheckpointPosition& checkpoint, const TrainOptions& options,
                        int64_t train_samples) {
  if (checkpoint.mini_batch_size != options.mini_batch_size) {
    throw ConfigError(
        fmt::format("the checkpoint lies inside an epoch of mini-batches of {} samples, this run "
                    "has {}: resume with the same size",
                    checkpoint.mini_batch_size, options.mini_batch_size));
  }
  if (checkpoint.train_samples != train_samples) {
    throw ConfigError(
        fmt::format("the checkpoint lies inside an epoch over {} training samples, this run has "
                    "{}: resume with the same data",
                    checkpoint.train_samples, train_samples));
  }
  if (checkpoint.next_mini_batch > 0 && !options.carry_state &&
      checkpoint.shuffle.value_or(options.shuffle) != options.shuffle) {
    throw ConfigError(fmt::format(
        "the checkpoint lies inside an epoch {} shuffling, this run is {}: resume with the same "
        "order",
        *checkpoint.shuffle ? "with" : "without", options.shuffle ? "with it" : "without"));
  }
  if ((checkpoint.lengths == kStreams) != options.carry_state) {
    throw ConfigError(fmt::format(
        "the checkpoint lies inside an epoch {} carried states, this run is {}: resume in the same "
        "way",
        options.carry_state ? "without" : "with", options.carry_state ? "with them" : "without"));
  }
  const std::string lengths = lengths_name(options);
  if (checkpoint.lengths != lengths) {
    throw ConfigError(
        fmt::format("the checkpoint lies inside an epoch with lengths {}, this run has {}: resume "
                    "with the same lengths",
                    printable(checkpoint.lengths), lengths));
  }
}

void check_same_classes(const CheckpointPosition& checkpoint,
                        const std::vector<std::string>& classes) {
  const std::vector<std::string>& saved = checkpoint.classes;
  if (saved.empty() || classes.empty() || saved == classes) return;
  const auto [there, here] =
      std::mismatch(saved.begin(), saved.end(), classes.begin(), classes.end());
  const auto name = [](auto found, const std::vector<std::string>& all) {
    return found == all.end() ? "none" : fmt::format("'{}'", printable(*found));
  };
  throw ConfigError(
      fmt::format("the checkpoint was trained on {} classes, of which class {} is {}; the data has "
                  "{}, and class {} is {}: expected the same folders in the same order, as text or "
                  "as numbers",
                  saved.size(), there - saved.begin(), name(there, saved), classes.size(),
                  there - saved.begin(), name(here, classes)));
}

void check_same_position(const CheckpointPosition& checkpoint, const runtime::Ranks& ranks) {
  const std::vector<std::string> positions = runtime::together(ranks, [&] {
    return fmt::format("step {}, epoch {}, mini-batch {}", checkpoint.step, checkpoint.epoch,
                       checkpoint.next_mini_batch);
  });
  for (size_t r = 1; r < positions.size(); ++r) {
    if (positions[r] == positions[0]) continue;
    throw RuntimeError(
        fmt::format("the ranks resume from different checkpoints: rank 0 from {}, rank "
                    "{} from {}; expected one folder that all ranks share",
                    positions[0], r, positions[r]));
  }
}

void check_finite(const Checkpoint& checkpoint, const model::Model& model,
                  const runtime::Ranks& ranks) {
  const std::vector<LayerState>& layers = checkpoint.layers;
  runtime::together(ranks, [&]() -> std::string {
    for (size_t l = 0; l < layers.size(); ++l) {
      for (const at::Tensor& weight : layers[l].weights) {
        if (weight.isfinite().all().item<bool>()) continue;
        throw RuntimeError(
            fmt::format("the weights of '{}' are no longer finite (step {}) and are not saved; a "
                        "smaller learning rate, or a warm-up of it, may help{}",
                        model.graph().layer(LayerId{static_cast<int>(l)}).name, checkpoint.step,
                        layers[l].optimizer.contains("outer.weights") ? kAdviceOnRounds : ""));
      }
    }
    return "";
  });
}

}  // namespace penstock::train

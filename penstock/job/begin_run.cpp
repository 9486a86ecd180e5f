#include "penstock/job/begin_run.h"

#include <fmt/format.h>

#include "penstock/train/checkpoint/checkpoint.h"
#include "penstock/train/checkpoint_checks.h"
#include "penstock/util/error.h"
#include "penstock/util/text/plural.h"

namespace penstock::job {

namespace {

/// " of step 300", where that can be read.
std::string step_text(const std::string& folder, const model::Model& model) {
  try {
    return fmt::format(" of step {}", train::newest_position(folder, model).step);
  } catch (const Error&) {
    return "";
  }
}

}  // namespace

Begin begin_run(const options::RunRequest& run, const model::Model& model,
                const std::vector<std::string>& classes, const Listener& listener) {
  const std::string& folder = run.checkpoint;
  if (folder.empty()) return Begin::Fresh;
  if (!train::has_checkpoint(folder)) {
    // Launchers start and restart a job with the same command.
    if (run.resume)
      listener.tell(
          fmt::format("warning: no checkpoint in '{}' yet: starting at step 0\n", folder));
    return Begin::Fresh;
  }
  if (!run.resume) {
    throw ConfigError(fmt::format(
        "'{}' holds a checkpoint{}: add --resume to continue from it, or choose another folder",
        folder, step_text(folder, model)));
  }
  const train::CheckpointPosition position = train::newest_position(folder, model);
  train::check_same_classes(position, classes);
  const int64_t epochs = run.epochs;
  const std::optional<int64_t> steps = run.steps;
  if (position.epoch >= epochs) {
    listener.tell(fmt::format("nothing left to train: {} of {} done; raise --epochs\n",
                              position.epoch, plural(epochs, "epoch")));
    return Begin::Finished;
  }
  if (steps && position.step >= *steps) {
    listener.tell(fmt::format("nothing left to train: {} of {} done; raise --steps\n",
                              position.step, plural(*steps, "step")));
    return Begin::Finished;
  }
  return Begin::Resumed;
}

}  // namespace penstock::job

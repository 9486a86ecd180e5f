// The commands that need libtorch, in a build without it: they exist and say so.
#include "penstock/util/error.h"
#include "tools/penstock/command/command.h"
#include "tools/penstock/train/training_part.h"

namespace penstock::tool {

void start_training_part(char**) {
  throw ConfigError(
      "'probe' as a rank of a job needs libtorch, and this is a build without it "
      "(PENSTOCK_WITH_TORCH=OFF)");
}

void run_training_part(const std::vector<std::string>& words) {
  throw ConfigError("'" + words.front() +
                    "' for this plan needs libtorch, and this is a build without it "
                    "(PENSTOCK_WITH_TORCH=OFF): give --profile instead of --model");
}

void require_training_part(const std::string& command) {
  throw ConfigError("'" + command +
                    "' needs libtorch, and this is a build without it (PENSTOCK_WITH_TORCH=OFF)");
}

namespace {

Command unavailable(CLI::App& parent, const char* name, const char* description) {
  CLI::App* app = parent.add_subcommand(name, description);
  app->allow_extras();
  return {app, [name]() -> int {
            require_training_part(name);
            return kExitFailure;
          }};
}

}  // namespace

Command import_command(CLI::App& parent, char**) {
  return unavailable(parent, "import",
                     "Show what is in a model exported from PyTorch, or why it cannot be trained");
}

Command models_command(CLI::App& parent, char**) {
  return unavailable(parent, "models", "List the models that come with Penstock");
}
Command profile_command(CLI::App& parent, char**) {
  return unavailable(parent, "profile", "Measure every layer of a model: forward, backward, bytes");
}
Command stream_command(CLI::App& parent, char**) {
  return unavailable(parent, "stream", "Learn online from a live stream of frames");
}
Command train_command(CLI::App& parent, char**) {
  return unavailable(parent, "train", "Train a model through a pipeline");
}

}  // namespace penstock::tool

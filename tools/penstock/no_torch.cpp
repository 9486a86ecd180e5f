// The commands that need libtorch, in a build without it: they exist and say so.
#include "penstock/util/error.h"
#include "tools/penstock/command.h"

namespace penstock::tool {

namespace {

Command unavailable(CLI::App& parent, const char* name, const char* description) {
  CLI::App* app = parent.add_subcommand(name, description);
  app->allow_extras();
  return {app, [name]() -> int {
            throw ConfigError(
                std::string("'") + name +
                "' needs libtorch, and this is a build without it (PENSTOCK_WITH_TORCH=OFF)");
          }};
}

}  // namespace

Command models_command(CLI::App& parent, char**) {
  return unavailable(parent, "models", "List the models that come with Penstock");
}
Command profile_command(CLI::App& parent, char**) {
  return unavailable(parent, "profile", "Measure every layer of a model: forward, backward, bytes");
}
Command train_command(CLI::App& parent, char**) {
  return unavailable(parent, "train", "Train a model through a pipeline");
}

}  // namespace penstock::tool

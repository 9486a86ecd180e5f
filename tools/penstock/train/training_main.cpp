// penstock-train, the training part of the tool: the commands that need libtorch. `penstock` starts
// it (training_part.h); nobody else does.
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "penstock/model/device/tensor_memory.h"
#include "penstock/util/error.h"
#include "tools/penstock/command/command_line.h"
#include "tools/penstock/train/training_part.h"

namespace {

/// The command; what libtorch throws past the borders of model and runtime loses its stack trace.
penstock::tool::Command guarded(penstock::tool::Command command) {
  command.run = [run = std::move(command.run)] {
    try {
      return run();
    } catch (const c10::Error& error) {
      throw penstock::RuntimeError(error.what_without_backtrace());
    }
  };
  return command;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace penstock::tool;
  const std::string first = argc > 1 ? argv[1] : "";
  if (!first.starts_with(kPartOf))
    return complain("penstock-train is a part of penstock: run `penstock train --help`",
                    kExitUsage);
  if (const std::string version = first.substr(kPartOf.size()); version != PENSTOCK_VERSION) {
    return complain(
        fmt::format("the training part {} has version {}, penstock has {}: install both "
                    "from one build",
                    argv[0], PENSTOCK_VERSION, version),
        kExitFailure);
  }
  penstock::model::count_tensor_memory();
  argv[1] = argv[0];
  return run_command_line(argc - 1, argv + 1, [](CLI::App& app) -> std::vector<Command> {
    return {guarded(models_command(app, nullptr)),  guarded(import_command(app, nullptr)),
            guarded(profile_command(app, nullptr)), guarded(probe_command(app, nullptr)),
            guarded(train_command(app, nullptr)),   guarded(stream_command(app, nullptr))};
  });
}

// The commands that show models: what a file of PyTorch holds, and the list of those of the zoo. No
// libtorch here: chosen_model.h makes the model.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "penstock/options/request.h"
#include "tools/penstock/command/command.h"

namespace penstock::tool {

struct ImportArguments : CommonOptions {
  std::string path;
};
/// Adds `penstock import`, which describes a file that may stand there.
CLI::App* add_import(CLI::App& parent, ImportArguments& arguments);
/// Adds `penstock models`, which lists what may stand there.
CLI::App* add_models(CLI::App& parent, CommonOptions& options);

}  // namespace penstock::tool

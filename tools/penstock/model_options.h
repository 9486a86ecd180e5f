// The options that name a model, and the list of models. No libtorch here: chosen_model.h makes
// the model.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "penstock/model/loss_spec.h"
#include "penstock/options/request.h"
#include "tools/penstock/command.h"

namespace penstock::tool {

using ModelOptions = options::ModelRequest;

void add_model_options(CLI::App& app, ModelOptions& options, bool required = true);
/// --loss and what belongs to it.
void add_loss_options(CLI::App& app, model::LossSpec& loss);
struct ImportArguments : CommonOptions {
  std::string path;
};
/// Adds `penstock import`, which describes a file that may stand there.
CLI::App* add_import(CLI::App& parent, ImportArguments& arguments);
/// Adds `penstock models`, which lists what may stand there.
CLI::App* add_models(CLI::App& parent, CommonOptions& options);

}  // namespace penstock::tool

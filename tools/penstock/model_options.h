// The options that name a model, and the list of models. No libtorch here: chosen_model.h makes
// the model.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "penstock/model/loss_spec.h"
#include "tools/penstock/command.h"

namespace penstock::tool {

struct ModelOptions {
  std::string name;
  int64_t width = 0;  ///< 0: the model's own, here and below
  int64_t depth = 0;
  int64_t kernel = 0;
  int64_t classes = 0;
  std::string input;  ///< "1x32x32"
};

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

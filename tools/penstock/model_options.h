// The options that name a model, shared by profile and train.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "penstock/model/zoo.h"

namespace penstock::tool {

struct ModelOptions {
  model::ModelSpec spec;
  std::string input;  ///< "1x32x32"
};

void add_model_options(CLI::App& app, ModelOptions& options);
/// Throws ConfigError for a malformed --input, and what make_model throws.
model::Model make_model(const ModelOptions& options);

}  // namespace penstock::tool

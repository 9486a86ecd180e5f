// The command line of `penstock train`, without libtorch: the tool parses it, the training part
// runs it.
#pragma once

#include <CLI/CLI.hpp>

#include "penstock/options/request.h"

namespace penstock::tool {

struct TrainArguments {
  options::TrainRequest request;
};

/// Adds the command.
CLI::App* add_train(CLI::App& parent, TrainArguments& arguments);
/// What can be said before a model is made or data is read, output files included. Throws
/// ConfigError.
void check(const TrainArguments& arguments);

}  // namespace penstock::tool

// The command line of `penstock profile`, without libtorch: the tool parses it, the training part
// runs it.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "penstock/model/profiler_options.h"
#include "tools/penstock/command.h"
#include "tools/penstock/model_options.h"

namespace penstock::tool {

struct ProfileArguments : CommonOptions {
  ModelOptions model;
  model::ProfilerOptions profiler;
  bool analytic = false;
  std::string device;
  std::string task;  ///< of a stream; empty: a model for `train`
  std::string precision = "float32";
  std::string output;
};

/// Adds the command. Its --list-devices prints and ends the parsing with CLI::Success.
CLI::App* add_profile(CLI::App& parent, ProfileArguments& arguments);
/// What can be said before a model is made. Throws ConfigError.
void check(const ProfileArguments& arguments);

}  // namespace penstock::tool

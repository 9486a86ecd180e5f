// The command line of `penstock profile`, without libtorch: the tool parses it, the training part
// runs it.
#pragma once

#include <CLI/CLI.hpp>

#include "penstock/options/profile_request.h"

namespace penstock::tool {

/// Adds the command. Its --list-devices prints and ends the parsing with CLI::Success.
CLI::App* add_profile(CLI::App& parent, options::ProfileRequest& request);
/// What can be said before a model is made, output files included. Throws ConfigError.
void check_profile(const options::ProfileRequest& request);

}  // namespace penstock::tool

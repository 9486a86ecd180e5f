// The command line of `penstock profile`, without libtorch: the tool parses it, the training part
// runs it.
#pragma once

#include <CLI/CLI.hpp>

#include "penstock/options/profile_request.h"
#include "penstock/profile/share.h"

namespace penstock::tool {

/// Adds the command. Its --list-devices and --join print and end the parsing with CLI::Success;
/// joining throws as profile::join() and profile::load_share().
CLI::App* add_profile(CLI::App& parent, options::ProfileRequest& request);
/// What can be said before a model is made, output files included. Throws ConfigError.
void check_profile(const options::ProfileRequest& request);

/// Into the file of the output, if there is one; and to standard output, as a table or as JSON.
void write_profile(const profile::Share& share, const options::ProfileOutputRequest& output);

}  // namespace penstock::tool

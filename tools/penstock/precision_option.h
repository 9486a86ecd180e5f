// --precision of the commands that take it, without libtorch.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "penstock/profile/profile.h"
#include "penstock/util/precision.h"

namespace penstock::tool {

/// Adds the option; `text` begins its description. Its values are checked when it is parsed.
CLI::Option* add_precision(CLI::App& app, std::string& value, const std::string& text);

/// Throws ConfigError when the profile `path` was measured in another precision.
void check_precision(const profile::Profile& profile, Precision wanted, const std::string& path);

}  // namespace penstock::tool

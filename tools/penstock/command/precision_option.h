// --precision of the commands that take it, without libtorch.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "penstock/util/numbers/precision.h"

namespace penstock::tool {

/// Adds the option; `text` begins its description. Its values are checked when it is parsed.
CLI::Option* add_precision(CLI::App& app, std::string& value, const std::string& text);

}  // namespace penstock::tool

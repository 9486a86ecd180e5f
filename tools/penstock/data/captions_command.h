// penstock data captions: clips and their captions as a folder for the trainer.
#pragma once

#include <string>

#include "tools/penstock/command/command.h"

namespace penstock::tool {

/// `typed`: the whole command, for the manifest.
Command captions_command(CLI::App& parent, const std::string& typed);

}  // namespace penstock::tool

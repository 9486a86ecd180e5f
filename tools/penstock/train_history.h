// The file that `penstock train --history` writes and `penstock report` reads (docs/formats.md).
#pragma once

#include <string>

#include "tools/penstock/train_output.h"

namespace penstock::tool {

/// One JSON object, a line.
std::string history_json(const std::string& model, const Outcome& outcome);

}  // namespace penstock::tool

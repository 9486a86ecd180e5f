// The model that the options of model_options.h ask for.
#pragma once

#include "penstock/model/model.h"
#include "tools/penstock/model_options.h"

namespace penstock::tool {

/// Throws ConfigError for a malformed --input, and what model::make_model throws.
model::Model chosen_model(const ModelOptions& options);

}  // namespace penstock::tool

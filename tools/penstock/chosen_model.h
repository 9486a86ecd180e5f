// The model that the options of model_options.h ask for.
#pragma once

#include "penstock/model/model.h"
#include "penstock/stream/task.h"
#include "tools/penstock/model_options.h"

namespace penstock::tool {

/// Throws ConfigError for a malformed --input, and what model::make_model throws.
model::Model chosen_model(const ModelOptions& options);
/// The model of a stream's task for frames [channels, height, width]; --classes and --input are not
/// looked at. Throws what model::make_model throws.
model::Model model_of_task(const ModelOptions& options, stream::Task task,
                           const model::Shape& frame, int classes);
/// --input, or the model's own shape of samples. Throws ConfigError for a malformed one.
model::Shape chosen_input(const ModelOptions& options);

}  // namespace penstock::tool

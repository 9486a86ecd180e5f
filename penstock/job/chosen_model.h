// The model that a request asks for.
#pragma once

#include <optional>

#include "penstock/exported/adapters.h"
#include "penstock/frames/task.h"
#include "penstock/model/model.h"
#include "penstock/options/request.h"

namespace penstock::job {

/// Throws ConfigError for a malformed --input, and what model::make_model throws.
model::Model chosen_model(const options::ModelRequest& request);
/// The model of a stream's task for frames [channels, height, width]; --classes and --input are not
/// looked at. Throws what model::make_model throws.
model::Model model_of_task(const options::ModelRequest& request, frames::Task task,
                           const model::Shape& frame, int classes);
/// What a program is given; nothing: no adapters. Throws ConfigError for malformed targets.
std::optional<exported::AdapterSpec> adapters_of(const options::ModelRequest& request);
/// --input, or the model's own shape of samples. Throws ConfigError for a malformed one.
model::Shape chosen_input(const options::ModelRequest& request);

}  // namespace penstock::job

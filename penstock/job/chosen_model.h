// The model that a request asks for.
#pragma once

#include "penstock/frames/task.h"
#include "penstock/imported/import_options.h"
#include "penstock/model/model.h"
#include "penstock/options/request.h"

namespace penstock::job {

/// Throws ConfigError for a malformed --input, and what model::make_model throws.
model::Model chosen_model(const options::ModelRequest& request);
/// The model of a stream's task for frames [channels, height, width]; --classes and --input are not
/// looked at. Throws what model::make_model throws.
model::Model model_of_task(const options::ModelRequest& request, frames::Task task,
                           const model::Shape& frame, int classes);
/// What becomes of a program. Throws ConfigError for malformed targets of adapters.
imported::ImportOptions import_options(const options::ModelRequest& request);
/// --input, or the model's own shape of samples. Throws ConfigError for a malformed one.
model::Shape chosen_input(const options::ModelRequest& request);

}  // namespace penstock::job

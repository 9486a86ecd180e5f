// Runs a step on numbers that say their place in a value: what moves numbers is known by its
// results. Internal to imported.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>

#include "penstock/imported/step_edit.h"
#include "penstock/imported/symbolic_size.h"

namespace penstock::imported {

/// Whole numbers from `first` on, of the sizes that the program says of the value. Below 0: zeros,
/// which are places of anything. Throws ConfigError where the value is not described.
at::Tensor places_of(const std::string& name, const FlatProgram& program, const Symbols& symbols,
                     int64_t first);

/// Reads values by their names, and adds those that the step makes.
void run_step(const StepEdit& edit, const FlatProgram& program, const Symbols& symbols,
              std::map<std::string, at::Tensor>& values);

}  // namespace penstock::imported

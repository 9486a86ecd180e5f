// Runs a step on numbers that say their place in a value: what moves numbers is known by its
// results. Internal to imported.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "penstock/imported/step_edit.h"
#include "penstock/imported/symbolic_size.h"

namespace penstock::imported {

/// That the program says of the value. Throws ConfigError where it is not described.
std::vector<int64_t> sizes_of(const std::string& name, const FlatProgram& program,
                              const Symbols& symbols);

/// Whole numbers from `first` on. Below 0: zeros, which are places of anything.
at::Tensor places_of(const std::vector<int64_t>& sizes, int64_t first);

/// Reads values by their names, and adds those that the step makes.
void run_step(const StepEdit& edit, const FlatProgram& program, const Symbols& symbols,
              std::map<std::string, at::Tensor>& values);

/// A member's part of a value along a dimension.
struct PartPlaces {
  size_t dimension = 0;
  at::Tensor places;  ///< in the whole value's dimension, int64 [the part's length]
};

/// Views of a whole value and of a member's part of it. All are on the device meta: only sizes and
/// strides count.
struct PartViews {
  at::Tensor whole;
  at::Tensor own;
  at::Tensor view_of_whole;
  at::Tensor view_of_own;
  PartPlaces read;  ///< which part of `whole` `own` is
  PartPlaces made;  ///< which part of its view the view of `own` must be
};

/// Whether each place of the member's view is the same number as in the part of the whole one. Of
/// the other dimensions than the part's, four places are tried. Nothing: they are no views.
std::optional<bool> views_agree(const PartViews& views);

}  // namespace penstock::imported

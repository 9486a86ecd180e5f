// Whether a member's step calls the operator of the whole layer's step, with its arguments.
// Internal to imported.
#pragma once

#include <functional>
#include <string>

#include "penstock/imported/step_edit.h"

namespace penstock::imported {

/// The whole layer's name of a value that a member has in another form.
using OriginOf = std::function<std::string(const std::string&)>;

/// The same operator. Where the result is a sum that is not made yet, addmm is mm, and its bias is
/// added later; pieces of a part are made by split_with_sizes.
bool has_same_operator(const StepEdit& expected, const StepEdit& edit, bool is_partial);

/// The same arguments by name, but for numbers of groups and what has_same_operator() says.
bool has_same_arguments(const StepEdit& expected, const StepEdit& edit, bool is_partial,
                        const OriginOf& origin);

/// Whether that step adds the bias of `expected` to the sum, each number where its operator would.
/// `reshaped`: the step before it, which gives the bias its shape; null: none does. `rank`: of the
/// result.
bool adds_bias(const StepEdit& expected, const StepEdit* reshaped, const StepEdit& add,
               size_t rank);

/// Whether it copies its argument, as it is.
bool is_copy(const StepEdit& step);

}  // namespace penstock::imported

// What a step computes as text, so that equal steps are found. Internal to imported.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "penstock/imported/flat_program.h"

namespace penstock::imported {

/// Operator, arguments and results, a line; tensors by their numbers, sizes by their expressions.
/// Names of the program are left out where something else says the same.
std::string code_of(const Step& step, const FlatProgram& program,
                    const std::function<size_t(const std::string&)>& slot_of);

/// Type, sizes and strides of a tensor; empty where the program does not describe it.
std::string layout_text(const std::string& tensor, const FlatProgram& program);

}  // namespace penstock::imported

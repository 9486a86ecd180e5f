// Which frozen weights of a program may be held in 8 bits. Internal to imported.
#pragma once

#include <set>
#include <string>

#include "penstock/imported/trainable_program.h"

namespace penstock::imported {

/// By their names in the program: matrices of floating-point numbers that linear steps alone read,
/// as their weight, under any name of the same bytes. Not the weight of the last linear step that
/// is no adapter's, the output head.
std::set<std::string> weights_of_linear_steps(const TrainableProgram& program);

}  // namespace penstock::imported

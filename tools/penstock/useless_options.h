// Options of `penstock train` that change nothing, most likely because another one is missing.
#pragma once

#include <string>

#include "tools/penstock/train_arguments.h"

namespace penstock::tool {

/// Warnings, a line each, about options that were given; empty: none. The plan is there already;
/// `in_job`: this process is a rank of a job of several.
std::string useless_options(const CLI::App& app, const TrainArguments& arguments, bool in_job);

}  // namespace penstock::tool

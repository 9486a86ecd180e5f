// The options of a command as names and values, to be compared between the ranks of a job.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <utility>
#include <vector>

namespace penstock::tool {

/// As the user gave them, or as they usually are; "--data-folder", which may differ, is left out.
std::vector<std::pair<std::string, std::string>> option_values(const CLI::App& app);

}  // namespace penstock::tool

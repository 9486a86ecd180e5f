// The rows of penstock/options as options of a command.
//
//   add_rows(*app, request);
//   const auto given = given_rows(*app);   // those that the user named
#pragma once

#include <CLI/CLI.hpp>
#include <string_view>
#include <vector>

#include "penstock/options/rows.h"

namespace penstock::tool {

/// Adds every row of the table but those in `without`. The request must outlive the parsing.
void add_rows(CLI::App& app, options::TrainRequest& request,
              const std::vector<std::string_view>& without = {});
std::vector<std::string_view> given_rows(const CLI::App& app);

}  // namespace penstock::tool

// The rows of penstock/options as options of a command.
//
//   add_rows(*app, request);
//   const auto given = given_rows(*app);
#pragma once

#include <CLI/CLI.hpp>
#include <string_view>
#include <vector>

#include "penstock/options/rows.h"

namespace penstock::tool {

/// Adds every row of the request's table. The request must outlive the parsing.
template <class Request>
void add_rows(CLI::App& app, Request& request);

/// The rows that the user named.
template <class Request = options::TrainRequest>
std::vector<std::string_view> given_rows(const CLI::App& app);

}  // namespace penstock::tool

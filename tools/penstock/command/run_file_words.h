// What `--config FILE` adds to a command line: the file's options as words, behind the command's
// name, but for those that the command line has itself.
//
//   with_run_file({"penstock", "train", "--config", "run.toml", "--lr", "0.1"});
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "tools/penstock/command/row_options.h"

namespace penstock::tool {

/// The words as they are for commands that read no run file, and without --config. Throws as
/// options::read_run_file(), and ConfigError for an option of the file that does not go with
/// another.
std::vector<std::string> with_run_file(const std::vector<std::string>& words);

/// Of --print-config; a rank that is not the first prints nothing. Throws RuntimeError.
template <class Request>
void print_run_file(const Request& request, const CLI::App& app);

}  // namespace penstock::tool

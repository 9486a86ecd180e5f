// Run files: the options of a command in TOML, each by its name without the dashes.
//
//   model = "vgg16"
//   batch-size = 128
//   no-shuffle = true
//
//   for (const FileOption& option : read_run_file<TrainRequest>("run.toml")) use(option.name);
//
// The rows of the command make the keys, their types and their bounds. Paths are relative to the
// file's folder. docs/operating.md is for users.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/options/rows.h"

namespace penstock::options {

/// An option that a run file gives.
struct FileOption {
  std::string_view name;  ///< of its row: "--lr"
  std::string value;      ///< as on a command line; empty: the option stands alone
  int64_t line = 0;
};

/// In the order of their lines; flags that are false are left out. Throws ConfigError where the
/// file cannot be read, or is none (a pipe can be read once alone), and ParseError with file and
/// line for what is no TOML, names no option (the nearest is named), or has another type or is out
/// of the row's bounds. O(file * rows).
template <class Request>
std::vector<FileOption> read_run_file(const std::string& path);
/// Of a text that lies at `path`, which need not be there.
template <class Request>
std::vector<FileOption> parse_run_file(std::string_view text, const std::string& path);

/// The run file that gives the request: options with another value than usual, and those `given`,
/// as far as they are `wanted` (null: all). Paths are absolute, so that it may lie anywhere. Throws
/// ConfigError without a working folder.
template <class Request>
std::string run_file_text(const Request& request, std::span<const std::string_view> given,
                          bool (*wanted)(const RowOf<Request>& row) = nullptr);

}  // namespace penstock::options

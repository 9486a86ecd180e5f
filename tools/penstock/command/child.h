// A program that a command starts and waits for.
//
//   if (run_child("/usr/bin/penstock", {"models"}, ChildOutput::Shown) != 0) ...
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace penstock::tool {

/// What becomes of its standard output; standard error is shown.
enum class ChildOutput : uint8_t { Shown, Dropped };

/// Blocks until it has ended. `words`: behind the program's name. Returns its exit code, 128 + the
/// signal that ended it. Throws RuntimeError when it cannot be started.
int run_child(const std::string& program, const std::vector<std::string>& words,
              ChildOutput output);

/// This program's own file, links followed. Throws RuntimeError where /proc does not tell.
std::string own_file();

}  // namespace penstock::tool

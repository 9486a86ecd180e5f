// Parses a command line and runs its command; errors become messages and exit codes. Shared by the
// tool (main.cpp) and its training part (training_main.cpp).
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "tools/penstock/command/command.h"

namespace penstock::tool {

/// Adds its commands to the application and returns them.
using MakeCommands = std::function<std::vector<Command>(CLI::App&)>;

/// The exit code. Never throws.
int run_command_line(int argc, char** argv, const MakeCommands& make_commands);

/// As far as the command's own check: says what is wrong with the arguments and returns the exit
/// code, or does nothing and returns 0. Never throws.
int check_command_line(int argc, char** argv, const MakeCommands& make_commands);

/// How complain() prints from now on; empty: as it does without this.
void set_complaint(std::function<void(std::string_view what)> print);

/// Prints the message, a line each, on standard error and returns `code`. Messages quote their
/// input: what could steer a terminal, or is no UTF-8, is shown as '?'.
int complain(std::string_view what, int code);

}  // namespace penstock::tool

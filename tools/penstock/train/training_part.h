// The commands that need libtorch live in a program of their own, penstock-train: loading
// libtorch's 290 libraries takes 0.4 s, and most commands do without. It lies beside the tool (a
// build) or in libexec/penstock (an installation), wherever links to the tool may point from.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace penstock::tool {

/// The training part's first argument: this and the tool's version. The rest is the tool's own.
inline constexpr std::string_view kPartOf = "--part-of-penstock=";

/// Replaces this process by the training part with the tool's arguments `argv`, so that exit code,
/// output, signals and process id are the training part's. Returns never. Throws RuntimeError: the
/// part is missing or cannot be started, or a limit leaves it too little address space.
[[noreturn]] void start_training_part(char** argv);

/// Runs the training part with these words, such as {"profile", "--model", "mlp"}, and waits for
/// it. What it prints on standard output is dropped. Throws as start_training_part; ConfigError
/// where it found the words or what they name wrong, RuntimeError where it failed otherwise: it has
/// said why.
void run_training_part(const std::vector<std::string>& words);

/// Throws as start_training_part where a command that starts it later would fail.
void require_training_part(const std::string& command);

}  // namespace penstock::tool

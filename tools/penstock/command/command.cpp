#include "tools/penstock/command/command.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <string>

#include "penstock/launch/job_environment.h"
#include "penstock/util/error.h"
#include "penstock/util/files/files.h"
#include "tools/penstock/command/end_signals.h"

namespace penstock::tool {

bool is_standard_output(const std::string& path) {
  if (path == "-") return true;
  struct stat file {
  }, output{};
  if (stat(path.c_str(), &file) != 0 || fstat(STDOUT_FILENO, &output) != 0) return false;
  // What is thrown away may be written to from both sides.
  if (S_ISCHR(output.st_mode) && isatty(STDOUT_FILENO) == 0) return false;
  return file.st_dev == output.st_dev && file.st_ino == output.st_ino;
}

void add_common(CLI::App& app, CommonOptions& options) {
  app.add_flag(
      "--json", options.json,
      "Print one JSON object on standard output; progress and messages go to standard error");
  app.add_option("--seed", options.seed, "Seed of all random numbers")
      ->capture_default_str()
      // the conversion to an unsigned number would wrap around
      ->check([](const std::string& text) {
        return text.find('-') == std::string::npos
                   ? std::string()
                   : fmt::format("expected a whole number of at least 0, found '{}'", text);
      });
}

std::function<std::string(const std::string&)> whole_number(int64_t least, int64_t most) {
  return [least, most](const std::string& text) -> std::string {
    int64_t value = 0;
    // What is no number at all is the parser's to refuse.
    double number = 0;
    if (!CLI::detail::lexical_cast(text, value))
      return text.find_first_of(".eE") != std::string::npos &&
                     CLI::detail::lexical_cast(text, number)
                 ? fmt::format("expected a whole number, found {}", text)
                 : std::string();
    if (value >= least && value <= most) return {};
    return most == INT64_MAX
               ? fmt::format("expected a whole number of at least {}, found {}", least, text)
               : fmt::format("expected a whole number from {} to {}, found {}", least, most, text);
  };
}

namespace {

sigset_t end_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, signal);
  return signals;
}

}  // namespace

void hold_end_signals() {
  const sigset_t signals = end_signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

void catch_end_signals(void (*handler)(int)) {
  std::signal(SIGINT, handler);
  std::signal(SIGTERM, handler);
  if (std::signal(SIGHUP, handler) == SIG_IGN) std::signal(SIGHUP, SIG_IGN);
  const sigset_t signals = end_signals();
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
}

void end_at_next_signal() {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

bool is_later_rank() {
  try {
    const auto job = launch::own_job();
    return job && job->rank > 0;
  } catch (const ConfigError&) {
    return false;  // said when the job is joined
  }
}

void check_output(const std::string& option, const std::string& path) {
  if (path.empty() || is_later_rank()) return;
  if (is_standard_output(path))
    throw ConfigError(fmt::format(
        "{} expected a file name, found '{}': standard output has the command's own result", option,
        path));
  std::error_code ignored;
  const std::filesystem::file_status status = std::filesystem::status(path, ignored);
  if (std::filesystem::is_directory(status))
    throw ConfigError(
        fmt::format("{}: cannot write '{}': it is a directory, expected a file", option, path));
  // A file is replaced, which takes rights on its folder; devices and pipes are written to.
  const bool replaced =
      !std::filesystem::exists(status) || std::filesystem::is_regular_file(status);
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  const std::filesystem::path needed = !replaced        ? std::filesystem::path(path)
                                       : parent.empty() ? "."
                                                        : parent;
  if (access(needed.c_str(), replaced ? W_OK | X_OK : W_OK) == 0) return;
  throw ConfigError(fmt::format("{}: cannot write '{}': {} '{}': {}", option, path,
                                replaced ? "the folder" : "the file", needed.string(),
                                std::strerror(errno)));
}

void write_output(const std::string& path, const std::string& text) {
  if (!path.empty() && path != "-") return write_file_atomic(path, text);
  std::cout << text << std::flush;
  if (!std::cout) throw RuntimeError("cannot write to standard output");
}

}  // namespace penstock::tool

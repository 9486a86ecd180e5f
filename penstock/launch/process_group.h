// A program in a process group of its own that does not outlive this process.
//
//   ProcessGroup group({.command = {"sleep", "1"}, .environment = {"RANK=0"}});
//   group.send(SIGTERM);
//   if (const auto ending = group.ending()) report(ending->exit_code());
#pragma once

#include <signal.h>  // NOLINT(modernize-deprecated-headers): sigset_t is POSIX
#include <sys/resource.h>
#include <sys/types.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <vector>

namespace penstock::launch {

struct ProcessStart {
  std::vector<std::string> command;      ///< program (found through PATH) and arguments
  std::vector<std::string> environment;  ///< NAME=value, all of it
  int output = STDOUT_FILENO;            ///< becomes standard output; stays the caller's
  int error = STDERR_FILENO;             ///< becomes standard error; stays the caller's
  int inherited = -1;                    ///< stays open in the program; -1: none
  sigset_t blocked_signals{};
  std::optional<rlimit> open_files{};  ///< RLIMIT_NOFILE of the program, if not this process's
};

/// How a process ended.
struct Ending {
  int code = 0;    ///< its exit code, if it was not killed
  int signal = 0;  ///< what killed it, or 0

  /// As a shell has it: 128 + signal for a process that was killed.
  int exit_code() const { return signal == 0 ? code : 128 + signal; }
  /// "ended with exit code 3" or "was killed by signal 9 (SIGKILL)".
  std::string text() const;
};

/// The program reads /dev/null. If this process dies, however it dies, the program is killed, but
/// not the processes that it started. Forks, and waits for the start of the program: milliseconds.
/// The thread that makes it must live as long (PR_SET_PDEATHSIG). Not thread-safe.
class ProcessGroup {
 public:
  /// Throws ConfigError if the program cannot be started, RuntimeError if there is no process or
  /// file descriptor left.
  explicit ProcessGroup(const ProcessStart& start);
  /// Kills the group if the program still runs, and waits for it.
  ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  /// How the program ended, or nothing while it runs; does not block. What is left of the group is
  /// killed at the first call that returns something.
  std::optional<Ending> ending();
  /// Sends the signal to the whole group; nothing once the program has ended.
  void send(int signal);

 private:
  pid_t pid_ = -1;
  std::optional<Ending> ending_;
};

}  // namespace penstock::launch

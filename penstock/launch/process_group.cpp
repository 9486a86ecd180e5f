#include "penstock/launch/process_group.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>  // NOLINT(modernize-deprecated-headers): sigabbrev_np() is GNU's
#include <sys/prctl.h>
#include <sys/wait.h>

#include <array>
#include <cerrno>

#include "penstock/launch/file_descriptor.h"
#include "penstock/util/check.h"
#include "penstock/util/error.h"
#include "penstock/util/text/quoted.h"

namespace penstock::launch {

namespace {

/// Pointers to the texts and a null pointer, as exec takes them.
std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  result.reserve(texts.size() + 1);
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

/// In the child: becomes the program, or returns with errno set. Only system calls, on memory that
/// was there before the fork.
void become(const ProcessStart& start, pid_t parent, char* const* arguments,
            char* const* environment) {
  setpgid(0, 0);
  // If the parent died before prctl(), nobody will send that signal.
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent) return;
  // A terminal may stop writers that are not in its foreground group (stty tostop).
  signal(SIGTTOU, SIG_IGN);
  // What the launcher may ignore is not for the rank to inherit.
  signal(SIGPIPE, SIG_DFL);
  signal(SIGXFSZ, SIG_DFL);
  const int nothing = open("/dev/null", O_RDONLY);
  if (nothing < 0 || dup2(nothing, STDIN_FILENO) < 0) return;
  if (dup2(start.output, STDOUT_FILENO) < 0 || dup2(start.error, STDERR_FILENO) < 0) return;
  if (nothing > STDERR_FILENO) close(nothing);
  if (start.inherited >= 0 && fcntl(start.inherited, F_SETFD, 0) != 0) return;
  if (start.open_files) setrlimit(RLIMIT_NOFILE, &*start.open_files);
  sigprocmask(SIG_SETMASK, &start.blocked_signals, nullptr);
  execvpe(arguments[0], arguments, environment);
}

/// The errno that kept the program from starting, or 0; blocks until it is known.
int start_error(int fd) {
  int error = 0;
  ssize_t size = 0;
  do {
    size = read(fd, &error, sizeof error);
  } while (size < 0 && errno == EINTR);
  return size == sizeof error ? error : 0;
}

}  // namespace

std::string Ending::text() const {
  if (signal == 0) return fmt::format("ended with exit code {}", code);
  const char* name = sigabbrev_np(signal);
  return name == nullptr ? fmt::format("was killed by signal {}", signal)
                         : fmt::format("was killed by signal {} (SIG{})", signal, name);
}

ProcessGroup::ProcessGroup(const ProcessStart& start) {
  PENSTOCK_CHECK(!start.command.empty());
  std::vector<std::string> command = start.command;
  std::vector<std::string> environment = start.environment;
  const std::vector<char*> arguments = pointers(command);
  const std::vector<char*> variables = pointers(environment);
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0)
    throw RuntimeError(fmt::format("cannot start a process: {}", strerror(errno)));
  const FileDescriptor result(ends[0]);
  FileDescriptor failure(ends[1]);
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ < 0) throw RuntimeError(fmt::format("cannot start a process: {}", strerror(errno)));
  if (pid_ == 0) {
    become(start, parent, arguments.data(), variables.data());
    const int error = errno;
    // If even that fails, the exit code says it.
    [[maybe_unused]] const ssize_t size = write(failure.get(), &error, sizeof error);
    _exit(127);  // tidy: allow(exits) the child of a fork must not run the parent's destructors
  }
  setpgid(pid_, pid_);  // as the child does, whoever comes first
  failure.reset();
  if (const int error = start_error(result.get()); error != 0) {
    while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) continue;
    throw ConfigError(
        fmt::format("cannot start {}: {}", in_quotes(start.command.front(), 200), strerror(error)));
  }
}

ProcessGroup::~ProcessGroup() {
  if (ending_) return;
  kill(-pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) continue;
}

std::optional<Ending> ProcessGroup::ending() {
  if (ending_) return ending_;
  siginfo_t info{};
  if (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid != pid_)
    return std::nullopt;
  // The process keeps its number until it is waited for, so this cannot hit another group.
  kill(-pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  ending_.emplace();
  (info.si_code == CLD_EXITED ? ending_->code : ending_->signal) = info.si_status;
  return ending_;
}

void ProcessGroup::send(int signal) {
  if (!ending_) kill(-pid_, signal);
}

}  // namespace penstock::launch

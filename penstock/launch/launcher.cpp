#include "penstock/launch/launcher.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <string_view>

#include "penstock/launch/free_port.h"
#include "penstock/launch/job_run.h"
#include "penstock/util/error.h"

namespace penstock::launch {

namespace {

void check_bounds(std::string_view what, int64_t value, int64_t least, int64_t most) {
  if (value < least || value > most)
    throw ConfigError(
        fmt::format("the {} must lie between {} and {}, found {}", what, least, most, value));
}

void check(const LaunchOptions& options) {
  check_bounds("number of ranks", options.ranks, 1, kMostLaunchedRanks);
  check_bounds("number of restarts", options.max_restarts, 0, kMostLaunchRestarts);
  const int64_t most_ms = std::chrono::milliseconds(kMostGrace).count();
  check_bounds("grace in milliseconds", options.grace.count(), 0, most_ms);
  check_bounds("time before killing in milliseconds", options.kill_after.count(), 0, most_ms);
  check_bounds("port (0: any)", options.port, 0, 65535);
  if (options.command.empty()) throw ConfigError("there is no command to launch");
}

void make_log_dir(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!std::filesystem::is_directory(folder))
    throw ConfigError(fmt::format("cannot make the folder '{}' for logs: {}", folder.string(),
                                  error ? error.message() : "it is a file"));
}

/// Descriptors 0 to 2 are open from here on, so that no pipe is taken for one of them.
void open_standard_streams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    // open() takes the lowest number that is free.
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) < 0) return;
  }
}

/// Allows this process the file descriptors that its ranks take, while it lives.
class OpenFiles {
 public:
  explicit OpenFiles(int ranks) {
    const auto needed = static_cast<rlim_t>(ranks) + 64;
    if (getrlimit(RLIMIT_NOFILE, &before_) != 0 || before_.rlim_cur >= needed) return;
    if (before_.rlim_max < needed)
      throw RuntimeError(
          fmt::format("{} ranks need {} open files, the limit is {}: raise it "
                      "(ulimit -n)",
                      ranks, needed, before_.rlim_max));
    const rlimit raised{needed, before_.rlim_max};
    raised_ = setrlimit(RLIMIT_NOFILE, &raised) == 0;
  }
  ~OpenFiles() {
    if (raised_) setrlimit(RLIMIT_NOFILE, &before_);
  }
  OpenFiles(const OpenFiles&) = delete;
  OpenFiles& operator=(const OpenFiles&) = delete;

  /// What the ranks are to have.
  std::optional<rlimit> of_ranks() const { return raised_ ? std::optional(before_) : std::nullopt; }

 private:
  rlimit before_{};
  bool raised_ = false;
};

/// Blocks until everything is written, or a signal says that nobody waits for it.
void write_rest(JobStreams& streams) {
  while (streams.output.pending() || streams.error.pending()) {
    pollfd files[] = {{streams.signals.fd(), POLLIN, 0}, {-1, POLLOUT, 0}, {-1, POLLOUT, 0}};
    if (streams.output.pending()) files[1].fd = streams.output.fd();
    if (streams.error.pending()) files[2].fd = streams.error.fd();
    poll(files, std::size(files), -1);
    while (const int signal = streams.signals.next()) {
      if (signal != SIGCHLD && signal != SIGPIPE) return;
    }
    streams.output.write_some();
    streams.error.write_some();
  }
}

/// All starts of the job.
int run(const LaunchOptions& options, JobStreams& streams) {
  for (int restart = 0;; ++restart) {
    const int port = options.port > 0 ? options.port : free_port(options.address);
    const JobOutcome outcome = JobRun(options, port, restart, streams).watch();
    constexpr int kWrongUsage = 2;  // the same the next time
    if (outcome.exit_code == 0 || outcome.exit_code == kWrongUsage || outcome.interrupted ||
        restart == options.max_restarts)
      return outcome.exit_code;
    streams.say(fmt::format("restart {} of {}", restart + 1, options.max_restarts));
  }
}

}  // namespace

int launch(const LaunchOptions& options) {
  check(options);
  if (options.port > 0) check_port_is_free(options.address, options.port);
  if (!options.log_dir.empty()) make_log_dir(options.log_dir);
  open_standard_streams();
  const OpenFiles open_files(options.ranks);
  SignalInbox signals;
  OutputQueue output(STDOUT_FILENO);
  OutputQueue error(STDERR_FILENO);
  JobStreams streams{signals, output, error, open_files.of_ranks()};
  const int exit_code = run(options, streams);
  write_rest(streams);
  return exit_code;
}

}  // namespace penstock::launch

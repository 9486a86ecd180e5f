#include "penstock/launch/launcher.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/launch/free_port.h"
#include "penstock/launch/job_run.h"
#include "penstock/launch/job_token.h"
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

/// Tells of a rank that is the first to fail in one start after another, in the same way.
class Repeats {
 public:
  void add(const JobOutcome& outcome, JobStreams& streams) {
    if (outcome.first_failed < 0 || outcome.first_failed != last_.first_failed ||
        outcome.ending != last_.ending)
      times_.clear();
    last_ = outcome;
    times_.push_back(
        fmt::format("{:.1f} s", std::chrono::duration<double>(outcome.lasted).count()));
    if (outcome.first_failed < 0 || times_.size() < 2) return;
    streams.say(
        fmt::format("rank {} was the first to fail in each of the last {} starts: it {} "
                    "after {}",
                    last_.first_failed, times_.size(), last_.ending,
                    fmt::join(times_.end() - 2, times_.end(), " and ")));
  }

 private:
  JobOutcome last_;
  std::vector<std::string> times_;
};

JobStart new_start(const LaunchOptions& options, int restart) {
  return {.restart = restart,
          .port = options.port > 0 ? options.port : free_port(),
          .token = make_job_token()};
}

/// All starts of the job.
int run_starts(const LaunchOptions& options, JobStreams& streams) {
  Repeats repeats;
  for (int restart = 0;; ++restart) {
    const JobOutcome outcome = JobRun(options, new_start(options, restart), streams).watch();
    // The same the next time.
    constexpr int kAnswerNo = 1;
    constexpr int kWrongUsage = 2;
    if (outcome.exit_code == 0 || outcome.exit_code == kAnswerNo ||
        outcome.exit_code == kWrongUsage || outcome.interrupted || restart == options.max_restarts)
      return outcome.exit_code;
    repeats.add(outcome, streams);
    streams.say(fmt::format("restart {} of {}", restart + 1, options.max_restarts));
  }
}

}  // namespace

int launch(const LaunchOptions& options) {
  check(options);
  if (options.port > 0) check_port_is_free(options.port);
  if (!options.log_dir.empty()) make_log_dir(options.log_dir);
  open_standard_streams();
  const OpenFiles open_files(options.ranks);
  SignalInbox signals;
  OutputQueue output(STDOUT_FILENO);
  OutputQueue error(STDERR_FILENO);
  JobStreams streams{signals, output, error, open_files.of_ranks()};
  const int exit_code = run_starts(options, streams);
  write_rest(streams);
  return exit_code;
}

}  // namespace penstock::launch

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

#include "penstock/launch/first_host.h"
#include "penstock/launch/free_port.h"
#include "penstock/launch/host_lines.h"
#include "penstock/launch/job_environment.h"
#include "penstock/launch/job_run.h"
#include "penstock/launch/job_token.h"
#include "penstock/launch/other_host.h"
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
  check_bounds("number of hosts", options.hosts, 1, kMostHosts);
  check_bounds("number of this host", options.host, 0, options.hosts - 1);
  check_bounds("minimum of ranks", options.min_ranks, 0, kMaxJobRanks);
  check_bounds("number of restarts", options.max_restarts, 0, kMostLaunchRestarts);
  const int64_t most_ms = std::chrono::milliseconds(kMostGrace).count();
  check_bounds("grace in milliseconds", options.grace.count(), 0, most_ms);
  check_bounds("time before killing in milliseconds", options.kill_after.count(), 0, most_ms);
  check_bounds("wait for other hosts in milliseconds", options.rejoin.count(), 0, most_ms);
  if (options.hosts > 1) check_bounds("port of host 0", options.port, 1, 65535);
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

/// All of the job's ranks on this machine.
JobStart start_alone(const LaunchOptions& options, int restart) {
  return {.restart = restart,
          .ranks = options.ranks,
          .servers = options.servers,
          .local = numbers_from(0, options.ranks, 0, 0),
          .address = options.address,
          .port = options.port > 0 ? options.port : free_port(options.address),
          .token = make_job_token()};
}

/// All starts of the job; `group` is null on the only host.
int run_starts(const LaunchOptions& options, JobStreams& streams, FirstHost* group) {
  Repeats repeats;
  for (int restart = 0;; ++restart) {
    const std::optional<JobStart> start = group == nullptr
                                              ? std::optional(start_alone(options, restart))
                                              : group->next_start(restart);
    if (!start) {
      const int exit_code = 128 + group->signal();
      group->end(exit_code);
      return exit_code;
    }
    JobOutcome outcome = JobRun(options, *start, streams, group).watch();
    if (group != nullptr) group->collect(outcome);
    // The same the next time.
    constexpr int kAnswerNo = 1;
    constexpr int kWrongUsage = 2;
    if (outcome.exit_code == 0 || outcome.exit_code == kAnswerNo ||
        outcome.exit_code == kWrongUsage || outcome.interrupted ||
        restart == options.max_restarts) {
      if (group != nullptr) group->end(outcome.exit_code);
      return outcome.exit_code;
    }
    repeats.add(outcome, streams);
    streams.say(fmt::format("restart {} of {}", restart + 1, options.max_restarts));
  }
}

/// This host's part of all starts.
int follow(const LaunchOptions& options, JobStreams& streams) {
  OtherHost group(options, streams);
  for (;;) {
    const OtherHost::Order order = group.next();
    if (!order.start) return order.exit_code;
    group.tell_ended(JobRun(options, *order.start, streams, &group).watch());
  }
}

int run(const LaunchOptions& options, JobStreams& streams) {
  if (options.hosts == 1) return run_starts(options, streams, nullptr);
  if (options.host > 0) return follow(options, streams);
  FirstHost group(options, streams);
  return run_starts(options, streams, &group);
}

}  // namespace

int launch(const LaunchOptions& options) {
  check(options);
  if (options.port > 0 && options.hosts == 1) check_port_is_free(options.address, options.port);
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

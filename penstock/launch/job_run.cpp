#include "penstock/launch/job_run.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <string.h>  // NOLINT(modernize-deprecated-headers): sigabbrev_np() is GNU's

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <utility>

#include "penstock/launch/rank_environment.h"
#include "penstock/util/error.h"

namespace penstock::launch {

namespace {

/// Failures that are told one by one; the rest are counted.
constexpr int kMostToldFailures = 8;
constexpr size_t kMostNamedRanks = 8;

std::string seconds(std::chrono::milliseconds time) {
  return fmt::format("{:g} s", static_cast<double>(time.count()) / 1000);
}

}  // namespace

void JobStreams::say(std::string_view message) {
  error.add(fmt::format("penstock: {}\n", message));
  error.write_some();
}

JobRun::JobRun(const LaunchOptions& options, JobStart start, JobStreams streams)
    : options_(options),
      start_(std::move(start)),
      streams_(streams),
      running_(static_cast<size_t>(options.ranks)) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0)
    throw RuntimeError(fmt::format("cannot make a pipe: {}", strerror(errno)));
  failure_seen_.reset(ends[0]);
  failure_told_.reset(ends[1]);
  for (size_t rank = 0; rank < running_.size() && !outcome_.interrupted; ++rank) {
    start_rank(rank);
    handle_signals();
  }
  failure_seen_.reset();
}

void JobRun::start_rank(size_t rank) {
  JobEnvironment job;
  job.rank = job.local_rank = static_cast<int>(rank);
  job.ranks = job.local_ranks = options_.ranks;
  job.address = "127.0.0.1";
  job.port = start_.port;
  job.token = start_.token;
  job.restart = start_.restart;
  job.servers = options_.servers;
  job.failure_pipe = failure_seen_.get();
  RankOutput output(job.rank, options_.log_dir, start_.restart > 0, streams_.output,
                    streams_.error);
  const ProcessStart start{.command = options_.command,
                           .environment = rank_environment(job),
                           .output = output.child_output(),
                           .error = output.child_error(),
                           .inherited = failure_seen_.get(),
                           .blocked_signals = streams_.signals.mask_before(),
                           .open_files = streams_.open_files_of_ranks};
  std::unique_ptr<Rank>& running = running_[rank];
  running = std::make_unique<Rank>(std::move(output), start);
  running->output.started();
  ++count_;
}

JobOutcome JobRun::watch() {
  reap_ended_ranks();
  while (count_ > 0) {
    wait_for_event();
    forward_output();
    handle_signals();
    enforce_deadline();
  }
  if (failures_ > kMostToldFailures)
    streams_.say(fmt::format("{} more ranks failed", failures_ - kMostToldFailures));
  return outcome_;
}

/// Blocks until a signal, output, room for output, or the deadline.
void JobRun::wait_for_event() {
  std::vector<pollfd> files{{streams_.signals.fd(), POLLIN, 0}};
  for (const OutputQueue* queue : {&streams_.output, &streams_.error}) {
    if (queue->pending()) files.push_back({queue->fd(), POLLOUT, 0});
  }
  for (const auto& rank : running_) {
    if (!rank) continue;
    for (const Relay& relay : rank->output.relays()) {
      if (relay.ready()) files.push_back({relay.fd(), POLLIN, 0});
    }
  }
  constexpr int64_t kHourMs = 3'600'000;
  int64_t timeout_ms = -1;  // none
  if (deadline_) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(*deadline_ - Clock::now()).count();
    timeout_ms = std::clamp<int64_t>(left, 0, kHourMs);
  }
  poll(files.data(), files.size(), static_cast<int>(timeout_ms));
}

void JobRun::forward_output() {
  for (const auto& rank : running_) {
    if (!rank) continue;
    for (Relay& relay : rank->output.relays()) {
      if (relay.ready()) relay.pass_on_some();
    }
  }
  streams_.output.write_some();
  streams_.error.write_some();
}

void JobRun::handle_signals() {
  bool child = false;
  while (const int signal = streams_.signals.next()) {
    if (signal == SIGCHLD) {
      child = true;
    } else if (signal != SIGPIPE) {
      interrupt(signal);
    }
  }
  if (child) reap_ended_ranks();
}

void JobRun::interrupt(int signal) {
  if (!outcome_.interrupted) {
    outcome_.interrupted = true;
    send(signal);
    return;
  }
  if (phase_ == Phase::Killed || count_ == 0) return;
  streams_.say(fmt::format("SIG{} after an earlier signal: killing {}", sigabbrev_np(signal),
                           running_ranks()));
  phase_ = Phase::Killed;
  deadline_.reset();
  send(SIGKILL);
}

void JobRun::reap_ended_ranks() {
  for (size_t rank = 0; rank < running_.size(); ++rank) {
    std::unique_ptr<Rank>& running = running_[rank];
    if (!running) continue;
    const std::optional<Ending> ending = running->process.ending();
    if (!ending) continue;
    running->output.finish();
    running.reset();
    --count_;
    // Those that still wait for the others to come need not wait for this one.
    failure_told_.reset();
    if (ending->exit_code() != 0) note_failure(rank, *ending);
  }
}

void JobRun::note_failure(size_t rank, const Ending& ending) {
  if (outcome_.first_failed < 0) {
    outcome_.exit_code = ending.exit_code();
    outcome_.first_failed = static_cast<int>(rank);
    outcome_.ending = ending.text();
    outcome_.lasted = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin_);
  }
  // What this process did to a rank was told when it did it.
  const bool ended_by_us = phase_ == Phase::Terminating || phase_ == Phase::Killed;
  if (!ended_by_us && ++failures_ <= kMostToldFailures)
    streams_.say(fmt::format("rank {} {}", rank, ending.text()));
  start_grace();
}

void JobRun::start_grace() {
  failure_told_.reset();
  if (phase_ != Phase::Running) return;
  phase_ = Phase::Grace;
  deadline_ = Clock::now() + options_.grace;
}

void JobRun::enforce_deadline() {
  if (!deadline_ || count_ == 0 || Clock::now() < *deadline_) return;
  if (phase_ == Phase::Grace) {
    streams_.say(fmt::format("{} did not end within {}: sending SIGTERM", running_ranks(),
                             seconds(options_.grace)));
    phase_ = Phase::Terminating;
    deadline_ = Clock::now() + options_.kill_after;
    send(SIGTERM);
    send(SIGCONT);  // a rank that is stopped would not see it
  } else {
    streams_.say(fmt::format("{} did not end within {}: killing", running_ranks(),
                             seconds(options_.kill_after)));
    phase_ = Phase::Killed;
    deadline_.reset();
    send(SIGKILL);
  }
}

void JobRun::send(int signal) {
  for (const auto& rank : running_) {
    if (rank) rank->process.send(signal);
  }
}

std::string JobRun::running_ranks() const {
  std::vector<size_t> named;
  for (size_t rank = 0; rank < running_.size() && named.size() < kMostNamedRanks; ++rank) {
    if (running_[rank]) named.push_back(rank);
  }
  const int more = count_ - static_cast<int>(named.size());
  return fmt::format("{} {}{}", count_ == 1 ? "rank" : "ranks", fmt::join(named, ", "),
                     more > 0 ? fmt::format(" and {} more", more) : "");
}

}  // namespace penstock::launch

#include "penstock/launch/job_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <string.h>  // NOLINT(modernize-deprecated-headers): sigabbrev_np() is GNU's

#include <algorithm>
#include <memory>
#include <utility>

#include "penstock/launch/job_token.h"
#include "penstock/launch/rank_environment.h"

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

JobRun::JobRun(const LaunchOptions& options, int port, int restart, JobStreams streams)
    : options_(options),
      restart_(restart),
      streams_(streams),
      running_(static_cast<size_t>(options.ranks)) {
  const std::string token = make_job_token();
  for (int rank = 0; rank < options.ranks && !outcome_.interrupted; ++rank) {
    start_rank(rank, rank_environment(rank, options.ranks, options.address, port, token, restart,
                                      options.servers));
    hear_signals();
  }
}

void JobRun::start_rank(int rank, const std::vector<std::string>& environment) {
  RankOutput output(rank, options_.log_dir, restart_ > 0, streams_.output, streams_.error);
  const ProcessStart start{.command = options_.command,
                           .environment = environment,
                           .output = output.child_output(),
                           .error = output.child_error(),
                           .blocked_signals = streams_.signals.mask_before(),
                           .open_files = streams_.open_files_of_ranks};
  std::unique_ptr<Rank>& running = running_[static_cast<size_t>(rank)];
  running = std::make_unique<Rank>(std::move(output), start);
  running->output.started();
  ++count_;
}

JobOutcome JobRun::watch() {
  find_ended_ranks();
  while (count_ > 0) {
    wait_for_something();
    pass_on_output();
    hear_signals();
    meet_deadline();
  }
  if (failures_ > kMostToldFailures)
    streams_.say(fmt::format("{} more ranks failed", failures_ - kMostToldFailures));
  return outcome_;
}

/// Blocks until a signal, output, room for output, or the deadline.
void JobRun::wait_for_something() {
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
  int timeout_ms = -1;
  if (deadline_) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(*deadline_ - Clock::now()).count();
    timeout_ms = static_cast<int>(std::clamp<int64_t>(left, 0, 3'600'000));
  }
  poll(files.data(), files.size(), timeout_ms);
}

void JobRun::pass_on_output() {
  for (const auto& rank : running_) {
    if (!rank) continue;
    for (Relay& relay : rank->output.relays()) {
      if (relay.ready()) relay.pass_on_some();
    }
  }
  streams_.output.write_some();
  streams_.error.write_some();
}

void JobRun::hear_signals() {
  bool child = false;
  while (const int signal = streams_.signals.next()) {
    if (signal == SIGCHLD) {
      child = true;
    } else if (signal != SIGPIPE) {
      interrupt(signal);
    }
  }
  if (child) find_ended_ranks();
}

void JobRun::interrupt(int signal) {
  if (!outcome_.interrupted) {
    outcome_.interrupted = true;
    send(signal);
    return;
  }
  if (stage_ == Stage::kKilled || count_ == 0) return;
  streams_.say(fmt::format("SIG{} after an earlier signal: killing {}", sigabbrev_np(signal),
                           running_ranks()));
  stage_ = Stage::kKilled;
  deadline_.reset();
  send(SIGKILL);
}

void JobRun::find_ended_ranks() {
  for (int rank = 0; rank < options_.ranks; ++rank) {
    std::unique_ptr<Rank>& running = running_[static_cast<size_t>(rank)];
    if (!running) continue;
    const std::optional<Ending> ending = running->process.ending();
    if (!ending) continue;
    running->output.finish();
    running.reset();
    --count_;
    if (ending->exit_code() != 0) note_failure(rank, *ending);
  }
}

void JobRun::note_failure(int rank, const Ending& ending) {
  const bool first = outcome_.exit_code == 0;
  if (first) outcome_.exit_code = ending.exit_code();
  // What this process did to a rank was told when it did it.
  const bool ended_by_us = stage_ == Stage::kTerminating || stage_ == Stage::kKilled;
  if (!ended_by_us && ++failures_ <= kMostToldFailures)
    streams_.say(fmt::format("rank {} {}", rank, ending.text()));
  if (!first || stage_ != Stage::kRunning) return;
  stage_ = Stage::kGrace;
  deadline_ = Clock::now() + options_.grace;
}

void JobRun::meet_deadline() {
  if (!deadline_ || count_ == 0 || Clock::now() < *deadline_) return;
  if (stage_ == Stage::kGrace) {
    streams_.say(fmt::format("{} did not end within {}: sending SIGTERM", running_ranks(),
                             seconds(options_.grace)));
    stage_ = Stage::kTerminating;
    deadline_ = Clock::now() + options_.kill_after;
    send(SIGTERM);
  } else {
    streams_.say(fmt::format("{} did not end within {}: killing", running_ranks(),
                             seconds(options_.kill_after)));
    stage_ = Stage::kKilled;
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
  std::vector<int> named;
  for (int rank = 0; rank < options_.ranks && named.size() < kMostNamedRanks; ++rank) {
    if (running_[static_cast<size_t>(rank)]) named.push_back(rank);
  }
  const int more = count_ - static_cast<int>(named.size());
  return fmt::format("{} {}{}", count_ == 1 ? "rank" : "ranks", fmt::join(named, ", "),
                     more > 0 ? fmt::format(" and {} more", more) : "");
}

}  // namespace penstock::launch

// One start of a job's ranks, until all of them have ended.
//
//   JobRun run(options, port, restart, {signals, output, error});
//   const JobOutcome outcome = run.watch();
#pragma once

#include <sys/resource.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "penstock/launch/launch_options.h"
#include "penstock/launch/output_queue.h"
#include "penstock/launch/process_group.h"
#include "penstock/launch/rank_output.h"
#include "penstock/launch/signal_inbox.h"

namespace penstock::launch {

/// What all starts of a job share.
struct JobStreams {
  SignalInbox& signals;
  OutputQueue& output;
  OutputQueue& error;
  std::optional<rlimit> open_files_of_ranks;

  /// Tells the user, as a line of its own on standard error.
  void say(std::string_view message);
};

struct JobOutcome {
  int exit_code = 0;         ///< of the first rank that failed
  bool interrupted = false;  ///< SIGINT, SIGTERM or SIGHUP came
};

/// Not thread-safe. Ranks that still run at its end are killed.
class JobRun {
 public:
  /// Starts the ranks; throws as launch().
  JobRun(const LaunchOptions& options, int port, int restart, JobStreams streams);
  /// Blocks until all ranks have ended.
  JobOutcome watch();

 private:
  using Clock = std::chrono::steady_clock;

  struct Rank {
    Rank(RankOutput its_output, const ProcessStart& start)
        : output(std::move(its_output)), process(start) {}
    RankOutput output;
    ProcessGroup process;
  };
  /// What is done to ranks that still run after a failure.
  enum class Stage { kRunning, kGrace, kTerminating, kKilled };

  void start_rank(int rank, const std::vector<std::string>& environment);
  void wait_for_something();
  void pass_on_output();
  void hear_signals();
  void interrupt(int signal);
  void find_ended_ranks();
  void note_failure(int rank, const Ending& ending);
  void meet_deadline();
  void send(int signal);
  std::string running_ranks() const;

  const LaunchOptions& options_;
  int restart_;
  JobStreams streams_;
  std::vector<std::unique_ptr<Rank>> running_;  // by rank; null before the start and after the end
  int count_ = 0;                               // of ranks that run
  Stage stage_ = Stage::kRunning;
  std::optional<Clock::time_point> deadline_;
  int failures_ = 0;
  JobOutcome outcome_;
};

}  // namespace penstock::launch

// One start of a job's ranks, until all of them have ended.
//
//   JobRun run(options, {.ranks = 2, .local = {0, 1}, ...}, {signals, output, error});
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

#include "penstock/launch/file_descriptor.h"
#include "penstock/launch/job_start.h"
#include "penstock/launch/launch_options.h"
#include "penstock/launch/other_launches.h"
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
  int exit_code = 0;                    ///< of the first rank that failed
  bool interrupted = false;             ///< SIGINT, SIGTERM or SIGHUP came
  int first_failed = -1;                ///< the rank; -1: none
  std::string ending = {};              ///< how it ended, as Ending::text()
  std::chrono::milliseconds lasted{0};  ///< from the start to that failure
};

/// Not thread-safe. Ranks that still run at its end are killed.
class JobRun {
 public:
  /// Starts this machine's ranks; throws as launch(). `others` may be null.
  JobRun(const LaunchOptions& options, JobStart start, JobStreams streams, OtherLaunches* others);
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

  void start_rank(size_t place);
  void wait_for_something();
  void pass_on_output();
  void hear_signals();
  void interrupt(int signal);
  void find_ended_ranks();
  void note_failure(int rank, const Ending& ending);
  /// The other ranks have the grace from now on.
  void begin_grace();
  void meet_deadline();
  void send(int signal);
  std::string running_ranks() const;

  const LaunchOptions& options_;
  JobStart start_;
  JobStreams streams_;
  OtherLaunches* others_;
  Clock::time_point begin_ = Clock::now();
  // Ranks have the first end; the other one is closed when a rank has failed.
  FileDescriptor failure_seen_;
  FileDescriptor failure_told_;
  // As JobStart::local; null before the start and after the end.
  std::vector<std::unique_ptr<Rank>> running_;
  int count_ = 0;  // of ranks that run
  Stage stage_ = Stage::kRunning;
  std::optional<Clock::time_point> deadline_;
  int failures_ = 0;
  JobOutcome outcome_;
};

}  // namespace penstock::launch

// One start of a job's ranks, until all of them have ended.
//
//   JobRun run(options, {.restart = 0, .port = 4711, .token = token}, {signals, output, error});
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

struct JobStart {
  int restart = 0;         ///< how often the job was started before
  int port = 0;            ///< at which rank 0 listens
  std::string token = {};  ///< a secret
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
  /// Starts the ranks; throws as launch(). Keeps a reference to the options.
  JobRun(const LaunchOptions& options, JobStart start, JobStreams streams);
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
  enum class Phase { Running, Grace, Terminating, Killed };

  void start_rank(size_t rank);
  void wait_for_event();
  void forward_output();
  void handle_signals();
  void interrupt(int signal);
  void reap_ended_ranks();
  void note_failure(size_t rank, const Ending& ending);
  /// The other ranks have the grace from now on.
  void start_grace();
  void enforce_deadline();
  void send(int signal);
  std::string running_ranks() const;

  const LaunchOptions& options_;
  JobStart start_;
  JobStreams streams_;
  Clock::time_point begin_ = Clock::now();
  // Ranks have the first end; the other one is closed when a rank has failed.
  FileDescriptor failure_seen_;
  FileDescriptor failure_told_;
  // By number; null before the start and after the end.
  std::vector<std::unique_ptr<Rank>> running_;
  int count_ = 0;  // of ranks that run
  Phase phase_ = Phase::Running;
  std::optional<Clock::time_point> deadline_;
  int failures_ = 0;
  JobOutcome outcome_;
};

}  // namespace penstock::launch

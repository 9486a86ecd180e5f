// The launch of host 0 in a job on several hosts: it waits for the launches of the other hosts,
// numbers the ranks of each start, and leaves out a host whose launch does not come back.
//
//   FirstHost group(options, streams);
//   while (const auto start = group.next_start(restart)) {
//     JobOutcome outcome = JobRun(options, *start, streams, &group).watch();
//     group.collect(outcome);
//     if (outcome.exit_code == 0) break;
//   }
//   group.end(0);
//
// What the launches tell each other, a line each over one connection per host:
//
//   to host 0     launch-1 SECRET HOSTS HOST RANKS SERVERS    once; the secret in hexadecimal
//                 failed CODE                                 the first failure of a start there
//                 ended CODE INTERRUPTED                      all its ranks have ended
//   from host 0   refused WHY
//                 start RESTART RANKS SERVERS PORT TOKEN FIRST_RANK FIRST_SERVER
//                 stop                                        a rank has failed elsewhere
//                 end CODE WHY                                the job is over
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "penstock/launch/job_run.h"
#include "penstock/launch/job_start.h"
#include "penstock/launch/launch_options.h"
#include "penstock/launch/line_socket.h"
#include "penstock/launch/other_launches.h"
#include "penstock/util/repeated_messages.h"

namespace penstock::launch {

/// Not thread-safe.
class FirstHost : public OtherLaunches {
 public:
  /// Listens. Throws ConfigError. Both must outlive it.
  FirstHost(const LaunchOptions& options, JobStreams& streams);

  /// Blocks until all hosts are there that took part last (at first all), `rejoin` at most. Nothing
  /// after a signal, which signal() tells then. Throws RuntimeError when too few ranks have come.
  std::optional<JobStart> next_start(int restart);
  /// Blocks until the other hosts' ranks have ended, too; after a failure for a limited time. Adds
  /// what they say to the outcome of this host.
  void collect(JobOutcome& outcome);
  /// Tells all hosts that the job is over.
  void end(int exit_code, const std::string& why = {});
  /// The last one that ended a wait; 0: none.
  int signal() const { return signal_; }

  bool has_deadlines() const override { return !visitors_.empty(); }
  void add_files(std::vector<pollfd>& files) const override;
  void hear() override;
  bool has_failed() const override { return failure_ != 0; }
  void tell_failure(int exit_code) override { note_failure(exit_code); }

 private:
  using Clock = std::chrono::steady_clock;
  enum class State { kAbsent, kReady, kRunning };
  struct Host {
    LineSocket socket;
    State state = State::kAbsent;
    int ranks = 0;  // servers included
    int servers = 0;
    bool took_part = true;  // in the last start; at first all are to
  };
  struct Visitor {
    LineSocket socket;
    Clock::time_point deadline;
    std::string line = {};  // that it has said
  };

  void hear_visitor(Visitor& visitor);
  void refuse(Visitor& visitor, const std::string& why);
  std::string why_refused(const std::string& line, std::vector<int64_t>& numbers) const;
  void hear_host(size_t host);
  void lose(size_t host);
  void note_failure(int exit_code);
  /// Waits for the others until `done`, the deadline or a signal; false after a signal.
  bool wait(const std::optional<Clock::time_point>& deadline, const std::function<bool()>& done);
  JobStart number_ranks(int restart);
  std::vector<size_t> missing() const;

  const LaunchOptions& options_;
  JobStreams& streams_;
  FileDescriptor listener_;
  std::vector<Host> hosts_;  // [0] is this one, without a socket
  std::vector<Visitor> visitors_;
  RepeatedMessages refusals_{"launches refused"};
  int failure_ = 0;  // exit code of the start's first failure
  bool interrupted_ = false;
  int signal_ = 0;
};

}  // namespace penstock::launch

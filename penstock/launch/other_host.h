// A launch on another host than 0 in a job on several hosts: it does what the launch of host 0
// (first_host.h) says.
//
//   OtherHost group(options, streams);
//   for (;;) {
//     const OtherHost::Order order = group.next();
//     if (!order.start) return order.exit_code;
//     group.tell_ended(JobRun(options, *order.start, streams, &group).watch());
//   }
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "penstock/launch/job_run.h"
#include "penstock/launch/job_start.h"
#include "penstock/launch/launch_options.h"
#include "penstock/launch/line_socket.h"
#include "penstock/launch/other_launches.h"

namespace penstock::launch {

/// Not thread-safe.
class OtherHost : public OtherLaunches {
 public:
  struct Order {
    std::optional<JobStart> start;  ///< nothing: the job is over
    int exit_code = 0;              ///< of the job
  };

  /// Both must outlive it.
  OtherHost(const LaunchOptions& options, JobStreams& streams)
      : options_(options), streams_(streams) {}

  /// Blocks until host 0 says what to do; connects to it first where need be, for `rejoin` at most.
  /// Throws ConfigError when host 0 refuses this launch, RuntimeError when it cannot be reached.
  Order next();
  /// All ranks of this host have ended.
  void tell_ended(const JobOutcome& outcome);

  void add_files(std::vector<pollfd>& files) const override;
  void hear() override;
  bool has_failed() const override { return has_failed_; }
  void tell_failure(int exit_code) override;

 private:
  using Clock = std::chrono::steady_clock;

  /// False after a signal.
  bool connect();
  /// False after a signal.
  bool wait_for_line();
  Order obey(const std::string& line);

  const LaunchOptions& options_;
  JobStreams& streams_;
  LineSocket socket_;
  /// Since when host 0 has not answered; nothing: it does.
  bool welcome_ = false;  // host 0 has answered on this connection
  std::optional<Clock::time_point> alone_since_;
  std::vector<std::string> lines_;  // that came while a start ran
  int signal_ = 0;
  bool has_failed_ = false;
};

}  // namespace penstock::launch

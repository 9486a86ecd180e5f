// The job's launches on other machines, as a start on this one sees them (host_group.h).
#pragma once

#include <poll.h>

#include <vector>

namespace penstock::launch {

/// While a start runs. None of the calls blocks.
class OtherLaunches {
 public:
  virtual ~OtherLaunches() = default;
  OtherLaunches() = default;
  OtherLaunches(const OtherLaunches&) = delete;
  OtherLaunches& operator=(const OtherLaunches&) = delete;

  /// Whether hear() has something to do after some time, too.
  virtual bool has_deadlines() const { return false; }
  /// What to wait for before hear() has something to do.
  virtual void add_files(std::vector<pollfd>& files) const = 0;
  virtual void hear() = 0;
  /// Whether the job cannot go on, because of something on another machine.
  virtual bool has_failed() const = 0;
  /// A rank of this machine has failed, with this exit code.
  virtual void tell_failure(int exit_code) = 0;
};

}  // namespace penstock::launch

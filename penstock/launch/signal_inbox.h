// Signals to this process as something to read, in the order in which they are noticed.
//
//   SignalInbox inbox;
//   poll(...POLLIN on inbox.fd()...);
//   while (const int signal = inbox.next()) handle(signal);
#pragma once

#include <signal.h>  // NOLINT(modernize-deprecated-headers): sigset_t is POSIX

#include "penstock/launch/file_descriptor.h"

namespace penstock::launch {

/// While one lives, SIGINT, SIGTERM, SIGHUP, SIGCHLD and SIGPIPE to the calling thread wait in it.
/// SIGINT, SIGTERM and SIGHUP that the program ignores (nohup) stay ignored. In a program with
/// several threads the others must block these signals.
class SignalInbox {
 public:
  /// Throws RuntimeError without a free file descriptor.
  SignalInbox();
  ~SignalInbox();
  SignalInbox(const SignalInbox&) = delete;
  SignalInbox& operator=(const SignalInbox&) = delete;

  int fd() const { return fd_.get(); }
  /// The next signal, 0 if there is none. Does not block.
  int next();
  /// The signals that were blocked before: what a child process must get back.
  const sigset_t& mask_before() const { return mask_before_; }

 private:
  sigset_t mask_before_{};
  FileDescriptor fd_;
};

}  // namespace penstock::launch

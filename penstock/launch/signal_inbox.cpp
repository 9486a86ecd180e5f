#include "penstock/launch/signal_inbox.h"

#include <fmt/format.h>
#include <sys/signalfd.h>

#include <cerrno>
#include <cstring>

#include "penstock/util/error.h"

namespace penstock::launch {

SignalInbox::SignalInbox() {
  sigset_t wanted{};
  sigemptyset(&wanted);
  sigaddset(&wanted, SIGCHLD);
  sigaddset(&wanted, SIGPIPE);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action {};
    // A blocked signal is kept even where it is ignored.
    if (sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN) continue;
    sigaddset(&wanted, signal);
  }
  fd_.reset(signalfd(-1, &wanted, SFD_NONBLOCK | SFD_CLOEXEC));
  if (!fd_.is_open())
    throw RuntimeError(fmt::format("cannot wait for signals: {}", std::strerror(errno)));
  pthread_sigmask(SIG_BLOCK, &wanted, &mask_before_);
}

SignalInbox::~SignalInbox() {
  while (next() != 0) continue;  // or a SIGPIPE of ours would end the program now
  pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
}

int SignalInbox::next() {
  signalfd_siginfo info{};
  ssize_t size = 0;
  do {
    size = read(fd_.get(), &info, sizeof info);
  } while (size < 0 && errno == EINTR);
  return size == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
}

}  // namespace penstock::launch
